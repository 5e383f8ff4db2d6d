"""What a run keeps of every request, as arrays: engines write them, records are made of them."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.engines.token_gaps import BINS
from harness.interface.entities import Work
from harness.interface.tables import RequestTable, attained_s

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Places in the last axis of `RequestArrays.pieces`
END, VALUE, SLOPE, PIECE = range(4)

# Places in the last axis of `RequestArrays.swap`
HOST, SWAPS, SWAP_BYTES, SWAP_S, SWAP = range(5)


class KvUse(NamedTuple):
    """KV of a group, in tokens, and its requests that do not run, while an iteration does.

    Held includes what the iteration computes; promised are the own parts of reservations, whether
    held or not, lent their loans; free is neither held nor promised, in whole blocks. A
    waiting request has no KV, a paused one has some.
    """

    held_tokens: int
    promised_tokens: int
    lent_tokens: int
    free_tokens: int
    waiting_requests: int
    paused_requests: int


LOG_COLUMNS = ("start_s", "duration_s", "iterations", *Work.__slots__, *KvUse._fields)
"""Columns of the log of iterations, one row per run of equal ones; see `Work` and `KvUse`."""

BRIEF = LOG_COLUMNS.index(KvUse._fields[0])
"""How many of them, the first, say what was computed and when; the others: held KV, waits."""


REQUEST = np.dtype(
    [
        ("prompt", np.int64),
        ("output", np.int64),
        ("generated", np.int64),
        ("kv", np.int64),
        ("arrival_s", np.float64),
        ("intake_s", np.float64),
        ("key", np.float64),
        ("gpu_s", np.float64),
        ("joined", np.int64),
        ("ends", np.int64),
        ("reserved", np.int64),
        ("wanted", np.int64),
        ("grows", np.int64),
        ("first_token_s", np.float64),
        ("finished_s", np.float64),
        ("started_s", np.float64),
        ("prefill_s", np.float64),
        ("preempted_at_s", np.float64),
        ("preempted_s", np.float64),
        ("token_s", np.float64),
        ("longest_gap_s", np.float64),
        ("weight", np.int64),
        ("preemptions", np.int32),
        ("place", np.int32),
        ("group", np.int32),
        ("service", np.int32),
    ],
    align=True,
)
"""One request of a run. What a field means says `RequestArrays`."""

CONTEXT = np.dtype(
    [
        ("prefix", np.int64),
        ("prefix_tokens", np.int64),
        ("cached", np.int64),
        ("row", np.int64),
    ],
    align=True,
)
"""What a context begins with, where prefixes are cached; see `RequestArrays`."""
# Values of `stage` in `RequestArrays.idle`: the request is in no group that promotes or has just
# run, does not run and is in the chain of those that do not, runs, or has been promoted since
ELSEWHERE, IN_CHAIN, RUNS, PROMOTED_NOW = range(4)

IDLE = np.dtype(
    [
        ("since", np.float64),
        ("begun", np.float64),
        ("own_key", np.float64),
        ("promoted_key", np.float64),
        ("left", np.int64),
        ("round", np.int64),
        ("earlier", np.int32),
        ("later", np.int32),
        ("stage", np.int32),
    ],
    align=True,
)
"""What an order that promotes needs of a request. What a field means says `RequestArrays`."""

UNDISPATCHED, OUTSIDE = -1, -2
"""Values of `RequestArrays.group` that are no group: see there."""

UNWEIGHED = -1
"""Value of `RequestArrays.weight` for a request that no load order has weighed."""


class RequestArrays(NamedTuple):
    """One entry per request of the run. `output` is the true length: engines only.

    The arrays are the fields of `rows`, one record of REQUEST each, which compiled code works on.
    A request is sent at `arrival_s` and reaches its scheduler `intake_s` later.
    `started_s` is when a request first ran, `preempted_at_s` when it was preempted if it has not
    run since, `preempted_s` the seconds between preemptions and restarts, `gpu_s` those of its
    iterations and `prefill_s` the part of them that computed its prompt. `group` is the number of
    the compiled group that it is or was in or will come to, UNDISPATCHED, or OUTSIDE where it is
    dispatched by others when it comes; `weight` what it counts in a load order. `reserved` is the
    context for which KV is set aside while it holds any, `wanted` for which it is when it next
    begins. `joined`, `ends`, `place` and `grows` are scratch of the group: the decode step at which
    it joined the decoding requests, at which it ends, its position in a list, and the decode step
    from which it takes blocks beyond what is set aside. `pieces` has what a key that moves is made
    of: request, piece, and END, VALUE and SLOPE as in `MovingKey`; no rows where keys stand still.
    `promoted` has the pieces by which it goes once it is promoted, and `idle` since when it has
    not run (`since`, in seconds or iterations of its group), its progress when it was promoted
    (`begun`), the number of the decision in which it was (`round`; 0: never), its neighbours among
    those of its group that do not run, by when they last ran (`earlier`, `later`; -1: none), and
    its `stage` there; after iterations, its keys of numbers (`own_key`, `promoted_key`) and how
    many iterations it may yet run in as promoted (`left`); no rows where no order promotes.
    `token_s` is when its last token came, and `longest_gap_s` the longest time between two of its
    tokens; a decoding request of a compiled group has both there. `gaps` counts the gaps of all
    requests by length (`token_gaps`).
    `swap` has the tokens with KV in host memory (HOST), how often it was sent there (SWAPS), and
    bytes and seconds copied there and back (SWAP_BYTES, SWAP_S); no rows where nothing is.
    `contexts` are records of CONTEXT: the request that a context begins like, for so many tokens,
    the tokens of a prompt found cached when its request first began (`cached`), and the row of
    block tables that it has or had in a compiled group; empty where no prefix is cached.
    """

    rows: NDArray[np.void]
    prompt: Ints
    output: Ints
    generated: Ints
    kv: Ints
    arrival_s: Floats
    intake_s: Floats
    key: Floats
    first_token_s: Floats
    finished_s: Floats
    gpu_s: Floats
    preemptions: Ints
    started_s: Floats
    prefill_s: Floats
    preempted_at_s: Floats
    preempted_s: Floats
    token_s: Floats
    longest_gap_s: Floats
    reserved: Ints
    wanted: Ints
    weight: Ints
    group: Ints
    pieces: Floats
    promoted: Floats
    idle: NDArray[np.void]
    swap: Floats
    contexts: NDArray[np.void]
    cached: Ints
    gaps: Ints


TIMES = ("first_token_s", "finished_s", "started_s", "preempted_at_s", "token_s")
"""Fields of REQUEST that are NaN until they have happened."""


def new_arrays(
    prompt: Ints, output: Ints, generated: Ints, arrival_s: Floats, service: Ints | int = 0
) -> RequestArrays:
    """Requests that hold nothing and have not run since they had generated so much."""
    rows = np.zeros(len(prompt), REQUEST)
    given = {"prompt": prompt, "output": output, "generated": generated, "arrival_s": arrival_s}
    unknown = dict.fromkeys(TIMES, np.nan)
    places = {"service": service, "group": UNDISPATCHED, "weight": UNWEIGHED}
    for name, values in {**given, **unknown, **places}.items():
        rows[name] = values
    contexts = np.zeros(0, CONTEXT)
    fields = {name: rows[name] for name in RequestArrays._fields if name in (REQUEST.names or ())}
    return RequestArrays(
        rows=rows,
        **fields,
        pieces=np.zeros((0, 1, PIECE)),
        promoted=np.zeros((0, 1, PIECE)),
        idle=np.zeros(0, IDLE),
        swap=np.zeros((0, SWAP)),
        contexts=contexts,
        cached=contexts["cached"],
        gaps=np.zeros(BINS, np.int64),
    )


def request_table(requests: RequestArrays, rows: Ints, known: RequestTable) -> RequestTable:
    """What policies may see of the requests in these rows where they are now.

    `known` has what is known of the same requests.
    """
    return replace(
        known,
        arrival_s=requests.arrival_s[rows],
        prompt_tokens=requests.prompt[rows],
        generated_tokens=requests.generated[rows],
        kv_tokens=requests.kv[rows],
        gpu_s=attained_s(requests.gpu_s[rows]),
    )
