"""State of one group under a priority order, as arrays that compiled code works on.

A replica is one group with one service. Requests live in `RequestArrays`, shared by all replicas
and indexed by request id; a replica holds ids. All decoding requests advance together, so a
request's finish is a fixed count of decode steps away and nothing needs touching per request and
iteration.
"""

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from harness.engines.state import BRIEF, LOG_COLUMNS, Floats, Ints

T = TypeVar("T", bound=np.generic)

# Positions in ReplicaArrays.counts
WAITING, DECODING, PARTIAL, NEXT_ARRIVAL, STEPS, CONTEXT = range(6)
LONGEST, USED_BLOCKS, HEAP, BUSY, LOGGED, FLIGHT, PREEMPTED, DONE, STOPPED = range(6, 15)
# Decoding ones that take blocks as they grow, and that will but have not used up what is set aside;
# those with a seat under an order that displaces; blocks of those that pause, or of all that a
# static batch has begun; iterations of the static batch in flight; predictions that have come;
# tokens with KV in host memory; overruns that nobody has been told of; how many entries of
# `arrivals` and of `turns` there are, and of the heap in `moved` that says who comes last
GROWING, COVERED, SEATED, PAUSED, BATCH, NEXT_TURN = range(15, 21)
HOST_TOKENS, OVERRAN, ARRIVALS, TURNS, RANKED, COUNTS = range(21, 27)

# Positions in ReplicaArrays.time_s: the last iteration boundary, the decode seconds of this call
# (to share out attained GPU time), how long the iteration in flight takes, or all those of the
# static batch in flight and the first of them, and what is copied to host memory and back with the
# next iteration
CLOCK, DECODED, FLIGHT_S, FIRST_S, SWAPPING, TIMES = range(6)

# Positions in ReplicaArrays.work: what an iteration computes of prompts
WORK_REQUESTS, WORK_TOKENS, WORK_PADDED, WORK_ATTENDED, WORKS = range(5)

# Columns of ReplicaArrays.log, as LOG_COLUMNS names them; from LOG_WORK on those of `work`
LOG_START, LOG_DURATION, LOG_ITERATIONS, LOG_WORK = range(4)
LOG_DECODES, LOG_CONTEXT, LOG_LONGEST = range(LOG_WORK + WORKS, BRIEF)
LOG_HELD, LOG_PROMISED, LOG_LENT, LOG_FREE, LOG_WAITING, LOG_PAUSED = range(BRIEF, len(LOG_COLUMNS))

# Values of counts[FLIGHT]: which iteration has begun and ends after the horizon
NOTHING, PROMPTS, CHUNKS, DECODES, WHOLE = range(5)

# Values of ReplicaRule.displaces and ReplicaRule.until; 0 stands for not at all
PAUSE, RECOMPUTE, SWAP_OUT = 1, 2, 3
FIRST, ALL = 1, 2

# Values of ReplicaRule.moves: what keys move with; 0 for those that stand still
BY_TOKENS, BY_GPU_S = 1, 2


class ReplicaArrays(NamedTuple):
    """One group: heap of waiting ids, lists of holders, arrivals to come, time, intervals, log.

    `turns` has those whose prediction comes at a known time, which changes their key, `over` those
    that have just outgrown what was set aside for them, if somebody learns of that.

    `chunk` gives the tokens that each of `partial` computes in the iteration begun; `work` what
    that is in all. `heap` orders decoding ids by their end;
    `phase` counts those that grow by the step (modulo the block) at which they need a new block.
    `done` lists finished ids in the order of their end.

    Under an order that displaces, `seats` has all of `decoding` and `partial` in that order
    (`moved` is its scratch), those of `partial` need not have begun, and those that wait may hold
    KV: they pause. Under others whose keys stand still `moved` is a heap, last in order first, of
    all that decode, once somebody has been preempted; who has ended may still be in it.
    Under static batching `partial` is the batch in flight, and who waits may hold KV, too.
    """

    waiting: Ints
    decoding: Ints
    partial: Ints
    chunk: Ints
    arrivals: Ints
    turns: Ints
    seats: Ints
    moved: Ints
    heap: Ints
    phase: Ints
    done: Ints
    over: Ints
    counts: Ints
    time_s: Floats
    work: Floats
    busy_s: Floats
    log: Floats


class ReplicaRule(NamedTuple):
    """A priority order's rule and the replica's KV in numbers.

    `log_columns` is how many a row of the log has, one per run of batches: none, BRIEF or all.
    `until` tells static batches (FIRST, ALL) from continuous batching (0). `reserves` says whether
    KV is set aside, `moves` with what keys move, `asks` whether their last pieces end, `renews`
    whether more is wanted for a holder than is set aside for it, `tells` whether somebody learns of
    overruns; who follows in a chain comes `hand_over_s` after the answer.
    Host memory takes the KV of `host_tokens`, each of `token_bytes` and `swap_token_s` to copy.
    """

    chunked_prefill: bool
    pads: bool
    max_requests: int
    max_tokens: int
    max_padding: int
    watermark_blocks: int
    capacity_blocks: int
    block_tokens: int
    log_columns: int
    displaces: int = 0
    reserves: bool = False
    moves: int = 0
    asks: bool = False
    renews: bool = False
    tells: bool = False
    until: int = 0
    max_wait_s: float = 0.0
    hand_over_s: float = 0.0
    decide_s: float = 0.0
    host_tokens: int = 0
    token_bytes: int = 0
    swap_token_s: float = 0.0
    swap_overlaps: bool = False


def new_replica(ids: int, rule: ReplicaRule, log_rows: int) -> ReplicaArrays:
    """An empty replica with room for `ids` requests."""
    return ReplicaArrays(
        waiting=np.zeros(ids + 1, np.int64),
        decoding=np.zeros(rule.max_requests + 1, np.int64),
        partial=np.zeros(rule.max_requests + 1, np.int64),
        chunk=np.zeros(rule.max_requests + 1, np.int64),
        arrivals=np.zeros(0, np.int64),
        turns=np.zeros(0, np.int64),
        seats=np.zeros(rule.max_requests + 1, np.int64),
        moved=np.zeros(rule.max_requests + 1, np.int64),
        heap=np.zeros(rule.max_requests + 1, np.int64),
        phase=np.zeros(rule.block_tokens, np.int64),
        done=np.zeros(ids + 1, np.int64),
        over=np.zeros(rule.max_requests + 1, np.int64),
        counts=np.zeros(COUNTS, np.int64),
        time_s=np.zeros(TIMES),
        work=np.zeros(WORKS),
        busy_s=np.zeros((16, 2)),
        log=np.zeros((log_rows if rule.log_columns else 0, rule.log_columns)),
    )


def with_room(array: NDArray[T], length: int) -> NDArray[T]:
    """The array, or a longer one with room to grow."""
    return array if len(array) > length else _longer(array, 2 * length + 1)


def _longer(array: NDArray[T], length: int) -> NDArray[T]:
    grown = np.zeros((length, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown
