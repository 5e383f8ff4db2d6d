"""The log of a group's iterations: what each computed, what held KV, what did not run."""

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.kv import growth, taken
from harness.engines.simulator.kernel.layout import (
    LOG_CONTEXT,
    LOG_DECODES,
    LOG_DURATION,
    LOG_FREE,
    LOG_HELD,
    LOG_ITERATIONS,
    LOG_LENT,
    LOG_LONGEST,
    LOG_PAUSED,
    LOG_PROMISED,
    LOG_START,
    LOG_WAITING,
    LOG_WORK,
    Group,
    Records,
)
from harness.engines.state import BRIEF, Ints


@compiled
def _of_decoding(requests: Records, group: Group, decodes: bool) -> tuple[int, int]:
    """Tokens promised to decoding requests, and the blocks they take; 0 where sums tell."""
    promised = used = 0
    for i in range(group.n_decoding if group.reserves or group.displaces else 0):
        request = group.decoding[i]
        kv = requests[request].kv + group.steps - requests[request].joined + int(decodes)
        promised += requests[request].reserved
        used += taken(requests, group, request, kv)
    return promised, used


@compiled
def write_use(requests: Records, group: Group, queue: Ints, decodes: bool, prefills: bool) -> None:
    """Fill the last columns of the open row: which requests hold KV and do not run; see `Use`.

    `decodes` and `prefills` say whether the requests of these lists run. The sums of the group are
    used where they tell: a look at all requests in every iteration would be most of the time.
    """
    row = group.rows[group.n_rows]
    promised, used = _of_decoding(requests, group, decodes)
    waiting = 0
    held = group.context - (0 if decodes else group.n_decoding)
    paused = 0 if decodes else group.n_decoding
    for i in range(group.n_partial):
        request = group.partial[i]
        tokens = group.chunk[i] if prefills else 0
        kv = requests[request].kv + tokens
        paused += tokens == 0 and kv > 0
        waiting += kv == 0
        if kv > 0:
            held, used = held + kv, used + taken(requests, group, request, kv)
            promised += requests[request].reserved
    # Waiting requests hold KV only where `paused_blocks` says so.
    for i in range(group.n_waiting if group.paused_blocks > 0 else 0):
        request = queue[group.queue_at + i]
        kv = requests[request].kv
        if kv > 0:
            held, used = held + kv, used + taken(requests, group, request, kv)
            promised += requests[request].reserved
            paused, waiting = paused + 1, waiting - 1
    if not (group.displaces or group.until):
        used = group.used_blocks + (growth(group) if decodes else 0)
    row[LOG_HELD], row[LOG_PROMISED], row[LOG_LENT] = held, promised, 0.0
    row[LOG_FREE] = (group.capacity_blocks - used) * group.block_tokens
    row[LOG_WAITING], row[LOG_PAUSED] = waiting + group.n_waited, paused


@compiled
def write_work(group: Group, prefills: bool) -> None:
    """Fill the columns of the open row that say what is computed of prompts."""
    row = group.rows[group.n_rows]
    row[LOG_WORK] = group.work_requests if prefills else 0
    row[LOG_WORK + 1] = group.work_tokens if prefills else 0
    row[LOG_WORK + 2] = group.work_padded if prefills else 0
    row[LOG_WORK + 3] = group.work_attended if prefills else 0.0


@compiled
def write_log(
    requests: Records,
    group: Group,
    queue: Ints,
    duration_s: float,
    iterations: int,
    decodes: bool,
    prefills: bool,
) -> None:
    """Write one row: a run of equal iterations that is over, before its progress is counted."""
    row = group.rows[group.n_rows]
    row[LOG_START], row[LOG_DURATION] = group.clock_s, duration_s
    row[LOG_ITERATIONS] = iterations
    write_work(group, prefills)
    runs = decodes and group.n_decoding > 0
    row[LOG_DECODES] = group.n_decoding if runs else 0
    row[LOG_CONTEXT] = group.context if runs else 0
    row[LOG_LONGEST] = group.longest + group.steps if runs else 0
    if group.log_columns > BRIEF:
        write_use(requests, group, queue, runs, prefills)
    group.n_rows += 1
