"""State of one group under a priority order, as arrays that compiled code works on.

A replica is one group with one service. Requests live in arrays shared by all replicas, indexed by
request id; a replica holds ids. All decoding requests advance together, so a request's finish is a
fixed count of decode steps away and nothing needs touching per request and iteration.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# Positions in LaneArrays.counts
WAITING, DECODING, PARTIAL, NEXT_ARRIVAL, STEPS, CONTEXT = range(6)
LONGEST, USED_BLOCKS, HEAP, BUSY, LOGGED, FLIGHT, PREEMPTED, DONE, STOPPED, COUNTS = range(6, 16)

# Positions in LaneArrays.time_s: the last iteration boundary, the decode seconds of this call (to
# share out attained GPU time), and how long the iteration in flight takes
CLOCK, DECODED, FLIGHT_S = range(3)

# Values of RequestArrays.next that are no request: nothing follows; others say who follows
NOBODY, ELSEWHERE = -1, -2

# Values of counts[FLIGHT]: which iteration has begun and ends after the horizon
NOTHING, PROMPTS, CHUNKS, DECODES = range(4)

# Columns of LaneArrays.log, one row per run of equal iterations
LOG_COLUMNS = (
    "start_s",
    "duration_s",
    "iterations",
    "prefill_requests",
    "prefill_tokens",
    "prefill_padded_tokens",
    "prefill_attended",
    "decode_requests",
    "context_tokens",
    "longest_tokens",
)


class RequestArrays(NamedTuple):
    """One entry per request of the run. `output` is the true length: engines only.

    `started_s` is when it first ran, `preempted_at_s` when it was preempted if it has not run
    since, `preempted_s` the seconds between preemptions and restarts, `gpu_s` those of its
    iterations and `prefill_s` the part of them that computed its prompt. `next` is the
    request that arrives in the same replica when this one is answered, NOBODY, or ELSEWHERE where
    the replica stops to say so. `joined`, `ends` and `place` are scratch of the replica that
    decodes the request: decode step at which it joined, at which it ends, and its position in the
    replica's list.
    """

    prompt: Ints
    output: Ints
    generated: Ints
    kv: Ints
    arrival_s: Floats
    key: Floats
    first_token_s: Floats
    finished_s: Floats
    gpu_s: Floats
    preemptions: Ints
    started_s: Floats
    prefill_s: Floats
    preempted_at_s: Floats
    preempted_s: Floats
    next: Ints
    joined: Ints
    ends: Ints
    place: Ints


def new_arrays(prompt: Ints, output: Ints, generated: Ints, arrival_s: Floats) -> RequestArrays:
    """Requests that hold nothing and have not run since they had generated so much."""
    count = len(prompt)
    return RequestArrays(
        prompt=prompt,
        output=output,
        generated=generated.copy(),
        kv=np.zeros(count, np.int64),
        arrival_s=arrival_s.copy(),
        key=np.zeros(count),
        first_token_s=np.full(count, np.nan),
        finished_s=np.full(count, np.nan),
        gpu_s=np.zeros(count),
        preemptions=np.zeros(count, np.int64),
        started_s=np.full(count, np.nan),
        prefill_s=np.zeros(count),
        preempted_at_s=np.full(count, np.nan),
        preempted_s=np.zeros(count),
        next=np.full(count, NOBODY),
        joined=np.zeros(count, np.int64),
        ends=np.zeros(count, np.int64),
        place=np.zeros(count, np.int64),
    )


def forget(requests: RequestArrays, ids: Ints) -> None:
    """Requests that followed others have not arrived after all."""
    unknown = (
        requests.first_token_s,
        requests.finished_s,
        requests.started_s,
        requests.preempted_at_s,
    )
    for times_s in unknown:
        times_s[ids] = np.nan
    for totals in (requests.gpu_s, requests.prefill_s, requests.preempted_s):
        totals[ids] = 0.0
    for counts in (requests.generated, requests.kv, requests.preemptions):
        counts[ids] = 0
    requests.arrival_s[ids] = np.inf


class ReplicaArrays(NamedTuple):
    """One group: heap of waiting ids, lists of holders, arrivals to come, time, intervals, log.

    `chunk` gives the tokens that each of `partial` computes in the iteration begun; `work` its
    prefill requests, tokens, padded tokens and attended. `heap` orders decoding ids by their end;
    `phase` counts them by the step (modulo the block) at which they need a new block. `done` lists
    finished ids in the order of their end.
    """

    waiting: Ints
    decoding: Ints
    partial: Ints
    chunk: Ints
    arrivals: Ints
    heap: Ints
    phase: Ints
    done: Ints
    counts: Ints
    time_s: Floats
    work: Floats
    busy_s: Floats
    log: Floats


class ReplicaRule(NamedTuple):
    """A batch rule and the replica's KV in numbers. `log_on` asks for a row per run of batches."""

    chunked_prefill: bool
    pads: bool
    max_requests: int
    max_tokens: int
    max_padding: int
    watermark_blocks: int
    capacity_blocks: int
    block_tokens: int
    log_on: bool


def new_replica(ids: int, rule: ReplicaRule, log_rows: int) -> ReplicaArrays:
    """An empty replica with room for `ids` requests."""
    return ReplicaArrays(
        waiting=np.zeros(ids + 1, np.int64),
        decoding=np.zeros(rule.max_requests + 1, np.int64),
        partial=np.zeros(rule.max_requests + 1, np.int64),
        chunk=np.zeros(rule.max_requests + 1, np.int64),
        arrivals=np.zeros(0, np.int64),
        heap=np.zeros(rule.max_requests + 1, np.int64),
        phase=np.zeros(rule.block_tokens, np.int64),
        done=np.zeros(ids + 1, np.int64),
        counts=np.zeros(COUNTS, np.int64),
        time_s=np.zeros(3),
        work=np.zeros(4),
        busy_s=np.zeros((16, 2)),
        log=np.zeros((log_rows, len(LOG_COLUMNS))),
    )
