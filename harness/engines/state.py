"""What a run keeps of every request, as arrays: engines write them, records are made of them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.interface.entities import ServiceId
from harness.interface.graph import NOBODY
from harness.interface.tables import RequestTable, attained_s

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

ELSEWHERE = -2
"""Value of `RequestArrays.next`, beside NOBODY, that is no request: see there."""

# Places in the last axis of `RequestArrays.pieces`
END, VALUE, SLOPE, PIECE = range(4)

# Places in the last axis of `RequestArrays.swap`
HOST, SWAPS, SWAP_BYTES, SWAP_S, SWAP = range(5)

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
    "held_tokens",
    "promised_tokens",
    "lent_tokens",
    "free_tokens",
    "waiting_requests",
    "paused_requests",
)
"""Columns of the log of iterations, one row per run of equal ones; see `Work` and `Use`."""

BRIEF = LOG_COLUMNS.index("held_tokens")
"""How many of them, the first, say what was computed and when; the others who held KV or waited."""


class RequestArrays(NamedTuple):
    """One entry per request of the run. `output` is the true length: engines only.

    `started_s` is when it first ran, `preempted_at_s` when it was preempted if it has not run
    since, `preempted_s` the seconds between preemptions and restarts, `gpu_s` those of its
    iterations and `prefill_s` the part of them that computed its prompt. `next` is the
    request that arrives in the same replica when this one is answered, NOBODY, or ELSEWHERE where
    the replica stops to say so. `joined`, `ends` and `place` are scratch of the replica that
    decodes the request: decode step at which it joined, at which it ends, and its position in the
    replica's list. `reserved` is the context for which KV is set aside while it holds any,
    `wanted` for which it is when it next begins, `grows` (scratch) the decode step from which it
    takes blocks beyond that. `pieces` has what a key that
    moves is made of: request, piece, and END, VALUE and SLOPE as in `MovingKey`; no rows where keys
    stand still. At `turns_s`, when its prediction comes, a request's key becomes `turned_key`,
    where that was known ahead; no rows where none is. `swap` has the tokens with KV in host memory
    (HOST), how often it was sent there (SWAPS), and bytes and seconds copied there and back
    (SWAP_BYTES, SWAP_S); no rows where nothing is.
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
    reserved: Ints
    wanted: Ints
    grows: Ints
    turns_s: Floats
    turned_key: Floats
    pieces: Floats
    swap: Floats


def new_arrays(prompt: Ints, output: Ints, generated: Ints, arrival_s: Floats) -> RequestArrays:
    """Requests that hold nothing and have not run since they had generated so much."""
    count = len(prompt)
    # Of arrays that may not be written, as data frames give them, code would be compiled anew.
    prompt, output = (np.require(tokens, np.int64, ["C", "W"]) for tokens in (prompt, output))
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
        reserved=np.zeros(count, np.int64),
        wanted=np.zeros(count, np.int64),
        grows=np.zeros(count, np.int64),
        turns_s=np.zeros(0),
        turned_key=np.zeros(0),
        pieces=np.zeros((0, 1, PIECE)),
        swap=np.zeros((0, SWAP)),
    )


def request_table(
    requests: RequestArrays,
    rows: Ints,
    *,
    ids: Ints,
    max_output_tokens: Ints,
    deadline_s: Floats,
    predicted_mean_tokens: Floats,
    service: Ints,
    services: tuple[ServiceId, ...],
) -> RequestTable:
    """What policies may see of these rows where they are now, with the rest of it given by row."""
    return RequestTable(
        id=ids,
        arrival_s=requests.arrival_s[rows],
        prompt_tokens=requests.prompt[rows],
        generated_tokens=requests.generated[rows],
        kv_tokens=requests.kv[rows],
        gpu_s=attained_s(requests.gpu_s[rows]),
        max_output_tokens=max_output_tokens,
        deadline_s=deadline_s,
        predicted_mean_tokens=predicted_mean_tokens,
        service=service,
        services=services,
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
    if len(requests.swap):
        requests.swap[ids] = 0.0
    requests.arrival_s[ids] = np.inf
