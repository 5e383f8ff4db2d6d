"""State of the groups that compiled code runs, as records: one per group, one per run.

All decoding requests of a group advance together, so the end of a request is a fixed count of
decode steps away, and no step touches single requests. Lists hold request ids; their lengths are
the fields `n_...`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.costs.iteration import MAX_REQUESTS
from harness.engines.state import BRIEF, LOG_COLUMNS, Floats, Ints
from harness.engines.token_gaps import BINS

Records = NDArray[np.void]
Record = Any
"""A record of GROUP; numba reads its fields as attributes."""


class GroupArrays(NamedTuple):
    """Arrays of a run that a group reads and writes beside its record, as `World` has them."""

    requests: Records
    pieces: Floats
    swap: Floats
    queue: Ints


MAX_BLOCK_TOKENS = 2048
"""Tokens of the largest KV block."""

# Values of `flight`: which iteration, or run of equal ones, has begun
NOTHING, PROMPTS, CHUNKS, DECODES = range(4)

# What beginning one comes to: the group computes, or waits for an event; its first waiting request
# can never be admitted; the key of a running request is to be told again
BEGUN, UNADMITTED, ASKED = range(3)

# Values of `displaces` and `until`; 0 stands for not at all
PAUSE, RECOMPUTE = 1, 2
FIRST, ALL = 1, 2

# Values of `moves`: with what the keys move; 0 for keys that stand
BY_TOKENS, BY_GPU_S = 1, 2

# Columns of the log, as LOG_COLUMNS names them; from LOG_WORK on the fields of `Work`
LOG_START, LOG_DURATION, LOG_ITERATIONS, LOG_WORK = range(4)
WORKS = 4
LOG_DECODES, LOG_CONTEXT, LOG_LONGEST = range(LOG_WORK + WORKS, BRIEF)
LOG_HELD, LOG_PROMISED, LOG_LENT, LOG_FREE, LOG_WAITING, LOG_PAUSED = range(BRIEF, len(LOG_COLUMNS))

MAX_SERVICES = 62
"""Services of a run with groups of several of them."""

_LIST = (np.int64, (MAX_REQUESTS + 1,))


class Rule(NamedTuple):
    """The batch rule and the order in numbers, with the values of a plain order."""

    chunked_prefill: bool
    pads: bool
    max_requests: int
    max_tokens: int
    max_padding: int
    watermark: float
    capacity_blocks: int
    block_tokens: int
    log_columns: int
    displaces: int = 0
    tells: bool = False  # whether a policy observes overruns
    until: int = 0
    max_wait_s: float = 0.0
    decide_s: float = 0.0  # before every static batch
    host_tokens: int = 0  # room for KV of requests that are preempted
    token_bytes: int = 0
    swap_token_s: float = 0.0
    swap_overlaps: bool = False
    prompts_first: bool = True
    keeps_gaps: bool = False  # whether gaps between tokens are counted
    promotes_after: float = np.inf  # seconds, or iterations
    promoted_for: int = 0  # iterations; 0 where promotions are after seconds


STATE = [
    ("is_live", np.bool_),  # whether compiled code runs the group
    ("is_due", np.bool_),  # whether its next iteration is to begin
    ("is_stopping", np.bool_),  # whether none begins any more
    ("moves", np.int64),
    ("asks", np.bool_),  # whether the last pieces of keys end
    ("renews", np.bool_),  # whether more is wanted for a holder than is set aside for it
    ("stops_at_arrival", np.bool_),  # whether all keys are to be asked when the next request comes
    ("preempted", np.bool_),  # whether a request was preempted as this iteration began
    ("table", np.int64),  # of its costs
    ("queue_at", np.int64),  # where its heap of waiting requests begins
    ("queue_room", np.int64),
    ("n_waiting", np.int64),
    ("n_waited", np.int64),  # when the iteration in flight began
    ("n_decoding", np.int64),
    ("n_partial", np.int64),
    ("n_heap", np.int64),
    ("n_in_slots", np.int64),
    ("n_over", np.int64),
    ("n_finished", np.int64),
    ("n_rows", np.int64),
    ("steps", np.int64),
    ("load", np.int64),  # what its unanswered requests weigh
    ("generated", np.int64),  # tokens that they have generated
    ("context", np.int64),  # tokens of all decoding requests
    ("longest", np.int64),  # of them, as if at step 0
    ("used_blocks", np.int64),
    ("growing", np.int64),  # decoding requests that take blocks as they grow
    ("covered", np.int64),  # decoding requests still within what is set aside for them
    ("paused_blocks", np.int64),  # of waiting requests
    ("host_used_tokens", np.int64),
    ("n_swapped", np.int64),  # waiting requests with KV in host memory
    # Where prefixes are cached: blocks without a content or a holder, and held by more than one
    # request, counted once for each further one; blocks that have had a content, and the first of
    # those that have none any more; rows of the tables that requests have had, and the one that was
    # left last, counted from 1 (0: none); what the first waiting request finds that has no room,
    # else -1; the decode steps of the flight whose blocks are taken, 0 or 1; the group's parts of
    # the arrays
    ("blank_blocks", np.int64),
    ("shared_blocks", np.int64),
    ("n_named", np.int64),
    ("unnamed", np.int64),
    ("n_rows_had", np.int64),
    ("row_left", np.int64),
    ("found_blocks", np.int64),
    ("grown", np.int64),
    ("first_block", np.int64),
    ("buckets", np.int64),
    ("first_row", np.int64),
    ("row_blocks", np.int64),
    ("flight", np.int64),
    ("iterations", np.int64),  # in flight
    ("is_rest", np.bool_),  # whether others of its run have ended and are counted
    ("ready_s", np.float64),  # when it has loaded; before that requests wait
    ("clock_s", np.float64),  # begin of the flight, or the last boundary
    ("flight_s", np.float64),
    ("first_s", np.float64),  # of the first iteration of a static batch
    ("swapping_s", np.float64),  # copied with the next iteration
    ("receiving_s", np.float64),  # to take in, before it, the requests that have come
    ("decoded_s", np.float64),  # seconds of decode steps that requests do not have yet
    ("busy_from_s", np.float64),
    ("busy_to_s", np.float64),
    ("work_requests", np.int64),  # what an iteration computes of prompts
    ("work_tokens", np.int64),
    ("work_padded", np.int64),
    ("work_attended", np.float64),
    ("work_decodes", np.int64),  # of requests that begin with all of their context but one token
    ("work_context", np.int64),
    ("work_longest", np.int64),
    ("first_gap_s", np.float64),  # of the first iteration of a run of decodes
    ("gaps", np.int64, (BINS,)),
    ("decoding", *_LIST),
    # By place in `decoding`: when the last token came, and the longest gap before it
    ("token_s", np.float64, (MAX_REQUESTS + 1,)),
    ("longest_gap_s", np.float64, (MAX_REQUESTS + 1,)),
    ("partial", *_LIST),  # in mid-prompt, or the static batch in flight
    ("chunk", *_LIST),  # tokens that each of `partial` computes in flight
    ("heap", *_LIST),  # decoding requests by their end
    # With an order that displaces, requests with a slot in order, and scratch; where prefixes are
    # cached `moved` has the decoding requests that end with the iterations in flight, in order
    ("slots", *_LIST),
    ("moved", *_LIST),
    ("over", *_LIST),  # requests that have outgrown what was set aside, not told yet
    ("finished", *_LIST),  # in the event that is being carried out
    ("phase", np.int64, (MAX_BLOCK_TOKENS,)),  # growing requests by the step of their next block
    # By service, of a group of one at place 0: seconds to take in the first request between two
    # iterations, and each further one
    ("received_s", np.float64, (MAX_SERVICES, 2)),
    # By service, of a group of one at place 0: KV of a block, and of the watermark. In bytes where
    # every batch is of one service and one phase, else in blocks
    ("block_kv", np.int64, (MAX_SERVICES,)),
    ("spare_kv", np.int64, (MAX_SERVICES,)),
    # Where every batch is of one service and one phase: above the number of each service, else 0;
    # the service of the batch; by service, the table of costs; by how much KV requests in slots may
    # grow and keep their slots
    ("services_end", np.int64),
    ("turn", np.int64),
    ("tables", np.int64, (MAX_SERVICES,)),
    ("slack_kv", np.int64),
    # By service, where any may starve: after how long, when its last batch ended, and when it will
    ("may_starve", np.bool_),
    ("starves_after_s", np.float64, (MAX_SERVICES,)),
    ("ran_s", np.float64, (MAX_SERVICES,)),
    ("starves_at_s", np.float64, (MAX_SERVICES,)),
    ("starved", np.int64),  # bit n: service n
    ("due_s", np.float64),  # when a request may be promoted next, or a service starve
    # With an order that promotes: the ends of the chain of requests that do not run (-1: none), the
    # ones that ran last, scratch, and decisions that promoted; iterations that have ended, and that
    # had in the last decision
    ("chain_first", np.int64),
    ("chain_end", np.int64),
    ("ran", *_LIST),
    ("n_ran", np.int64),
    ("running", *_LIST),
    ("promotion_rounds", np.int64),
    ("ended", np.int64),
    ("seen", np.int64),
    ("rows", np.float64, (2, len(LOG_COLUMNS))),  # of the log, not taken yet
]

GROUP = np.dtype([*Rule.__annotations__.items(), *STATE], align=True)
"""One group under a priority order: its rule, and its state."""

RUN = np.dtype(
    [
        ("now_s", np.float64),
        ("hand_over_s", np.float64),  # from an answer to the calls that waited for it
        ("releases", np.bool_),  # whether calls that waited for answers come by themselves
        ("stops_at_parents", np.bool_),  # whether others release them
        ("stops_at_finish", np.bool_),  # whether every answer is observed
        ("stops_at_units", np.bool_),  # whether begin and end of every unit are observed
        ("is_stopped", np.bool_),  # whether something of this instant is for others to see to
        ("next_coming", np.int64),
        ("n_delayed", np.int64),
        ("next_delayed", np.int64),
        ("n_external", np.int64),
        ("next_external", np.int64),
        ("next_turn", np.int64),
        ("n_instant", np.int64),
        ("next_instant", np.int64),
        ("n_done", np.int64),
        ("n_busy", np.int64),
        ("n_log", np.int64),
        ("n_outside", np.int64),
        ("promotions", np.int64),
        ("subject", np.int64),  # the group that a status speaks of
    ],
    align=True,
)
"""How far a run is. Counts `n_...` are of the arrays in `World`."""
