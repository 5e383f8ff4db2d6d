"""Static batching: one batch of whole requests after the other (`core.fill`).

Between two batches all unfinished requests wait, those that have begun with their KV and
reservation.
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.costs.iteration import decode_run_seconds
from harness.engines.simulator.kernel.admission import take
from harness.engines.simulator.kernel.layout import ALL, FIRST, LOG_HELD, Record, Records
from harness.engines.simulator.kernel.order import before, take_waiting
from harness.engines.simulator.kernel.running import held_blocks, missing, note_preempted, taken
from harness.engines.simulator.kernel.work import write_row
from harness.engines.state import Ints


@compiled
def waits(requests: Records, group: Record, queue: Ints) -> bool:
    """Whether the next batch waits for more requests; then `flight_s` is until when."""
    if group.used_blocks > 0 or group.n_waiting >= group.max_requests:
        return False
    oldest_s = np.inf
    for i in range(group.n_waiting):
        oldest_s = min(oldest_s, requests[queue[group.queue_at + i]].arrival_s)
    until_s = float(oldest_s + group.max_wait_s)
    if group.clock_s < until_s:
        group.flight_s = until_s
    return bool(group.clock_s < until_s)


@compiled
def take_batch(requests: Records, group: Record, queue: Ints) -> None:
    """Move the first in order that fit into `partial`; holders alone where the first does not.

    With refills, those that have begun and are not in the batch are preempted, and keep their KV.
    """
    tokens, at, only_holders = 0, 0, False
    while 0 <= at < group.n_waiting and group.n_partial < group.max_requests:
        request = queue[group.queue_at + at]
        held = held_blocks(requests, group, request)
        needed = taken(requests, group, request, 0) - held
        tokens += missing(requests, request)
        if tokens <= group.max_tokens and group.used_blocks + needed <= group.capacity_blocks:
            take_waiting(requests, group, queue, at)
            group.used_blocks += needed
            group.paused_blocks -= held
            take(requests, group, request, missing(requests, request))
        elif held > 0 or group.n_partial > 0:
            break
        else:
            only_holders, tokens = True, 0
        at = _first_holder(requests, group, queue) if only_holders else 0
    for i in range(group.n_waiting if group.until == FIRST and group.paused_blocks > 0 else 0):
        request = queue[group.queue_at + i]
        if requests[request].kv > 0 and np.isnan(requests[request].preempted_at_s):
            note_preempted(requests, group, request)


@compiled
def _first_holder(requests: Records, group: Record, queue: Ints) -> int:
    """Place in the waiting heap of the first request in order that holds KV; -1 if none does."""
    best, base = -1, group.queue_at
    for i in range(group.n_waiting):
        if requests[queue[base + i]].kv > 0 and (
            best < 0 or before(requests, queue[base + i], queue[base + best])
        ):
            best = i
    return best


@compiled
def go_on(table: Record, requests: Records, group: Record) -> None:
    """The batch whose first iteration has been launched runs until its first or last answer."""
    least, most = np.int64(1 << 62), np.int64(0)
    for i in range(group.n_partial):
        request = group.partial[i]
        left = requests[request].output - requests[request].generated
        least, most = min(least, left), max(most, left)
    group.iterations = most if group.until == ALL else least
    sums = _sum_later(requests, group)
    group.first_s = group.flight_s
    group.flight_s += decode_run_seconds(table, group.n_partial, *sums, group.iterations - 1)
    group.first_gap_s = decode_run_seconds(table, group.n_partial, *sums, 1)


@compiled
def _sum_later(requests: Records, group: Record) -> tuple[int, int]:
    """Sum and longest of the contexts in a batch's second iteration, where all decode."""
    context = longest = 0
    for i in range(group.n_partial):
        total = requests[group.partial[i]].kv + group.chunk[i] + 1
        context, longest = context + total, max(longest, total)
    return context, longest


@compiled
def write_later(requests: Records, group: Record) -> None:
    """Write the row of the iterations of a batch after its first, if there are any.

    What holds KV and what waits is as in the row before, but for the tokens that were promised.
    """
    count, seconds = group.iterations - 1, group.flight_s - group.first_s
    if count == 0:
        return
    for column in range(group.rows.shape[1]):
        group.rows[1, column] = group.rows[0, column]
    context, longest = _sum_later(requests, group)
    start_s = group.clock_s + group.first_s
    write_row(group, start_s, seconds, count, False, group.n_partial, context, longest)
    group.rows[1, LOG_HELD] += group.n_partial
    group.n_rows = 2


@compiled
def count_all(requests: Records, group: Record) -> None:
    """Count the tokens of all answers of a batch, but for the last of each."""
    for i in range(group.n_partial):
        request = group.partial[i]
        more = requests[request].output - requests[request].generated - 1
        requests[request].generated += more
        group.chunk[i] += more
        group.generated += more
