"""What a group's iterations compute: how long they take, their log, floating-point operations."""

import numpy as np

from harness.costs.compiled import compiled
from harness.costs.iteration import decode_iterations_within, decode_run_seconds, iteration_seconds
from harness.engines.simulator.kernel import layout
from harness.engines.simulator.kernel.layout import BY_GPU_S, LOG_WORK, Record, Records
from harness.engines.simulator.kernel.running import growth, holder, is_last, taken
from harness.engines.state import BRIEF, Floats, Ints
from harness.interface.tables import PER_S

MARGIN_S = 2.0 / PER_S
"""So long before a key turns by GPU seconds the order is looked at: rounding moves it less."""

_PADDED, _ATTENDED = LOG_WORK + 2, LOG_WORK + 3


@compiled
def add_work(requests: Records, group: Record) -> None:
    """Sum up the prompts, or chunks of them, that the requests in `partial` compute."""
    group.work_requests = group.work_tokens = group.work_padded = 0
    group.work_attended = 0.0
    group.work_decodes = group.work_context = group.work_longest = 0
    longest = 0
    for i in range(group.n_partial):
        request, tokens = group.partial[i], group.chunk[i]
        if tokens == 0:
            continue
        held = requests[request].kv
        if is_last(requests, request):
            group.work_decodes += 1
            group.work_context += held + 1
            group.work_longest = max(group.work_longest, held + 1)
            continue
        group.work_requests += 1
        group.work_tokens += tokens
        group.work_attended += tokens * (2.0 * (held + tokens) - tokens)
        longest = max(longest, tokens)
    group.work_padded = group.work_tokens
    if group.pads:
        # All are computed as if they were as long as the longest.
        group.work_padded = group.work_requests * longest
        group.work_attended = group.work_requests * (float(longest) * longest)


@compiled
def work_s(table: Record, group: Record, decodes: int, context: int, longest: int) -> float:
    """Seconds of one iteration of the work that was summed up, and of so many decodes beside it."""
    return iteration_seconds(
        table,
        group.work_requests,
        group.work_tokens,
        group.work_padded,
        group.work_attended,
        decodes + group.work_decodes,
        context + group.work_context,
        max(longest, group.work_longest),
    )


@compiled
def decodes_s(table: Record, group: Record, iterations: int) -> float:
    """Seconds of so many decode iterations of all decoding requests."""
    longest = group.longest + group.steps
    return decode_run_seconds(table, group.n_decoding, group.context, longest, iterations)


@compiled
def note_first(table: Record, group: Record) -> None:
    """Keep the seconds of the first of the decode iterations in flight, for gaps of tokens."""
    if group.keeps_gaps and group.iterations > 1:
        group.first_gap_s = decodes_s(table, group, 1)


@compiled
def decodes_within(table: Record, group: Record, seconds: float, most: int) -> int:
    """Fewest of their iterations that take at least so long; `most` if none do."""
    longest = group.longest + group.steps
    return decode_iterations_within(table, group.n_decoding, group.context, longest, seconds, most)


@compiled
def steps_until(table: Record, group: Record, progress: float, most: int) -> int:
    """Decode steps, at most `most`, until each has made so much progress."""
    if group.moves != BY_GPU_S or progress == np.inf:
        return most if progress >= most else max(1, int(np.ceil(progress)))
    return decodes_within(table, group, progress - MARGIN_S, most)


@compiled
def write_use(requests: Records, group: Record, queue: Ints, decodes: bool, prefills: bool) -> None:
    """Fill the last columns of the open row: which requests hold KV and do not run; see `KvUse`.

    `decodes` and `prefills` say whether the requests of these lists run. Waiting requests hold KV
    only where `paused_blocks` says so. An order that displaces counts the room of slots as used.
    """
    row, held, promised, paused = group.rows[group.n_rows], 0, 0, 0
    used, first, behind = 0, group.n_decoding, group.n_decoding + group.n_partial
    waiting = group.n_waited + group.n_partial
    for i in range(behind + (group.n_waiting if group.paused_blocks > 0 else 0)):
        request, tokens = holder(group, queue, i), int(decodes)
        if i >= first:
            tokens = group.chunk[i - first] if prefills and i < behind else 0
        kv = requests[request].kv + tokens
        if i < first:
            kv += group.steps - requests[request].joined
        else:
            waiting -= kv > 0
        if kv > 0:
            held, promised = held + kv, promised + requests[request].reserved
            paused += tokens == 0
            used += taken(requests, group, request, kv) if group.displaces else 0
    if not group.displaces:
        used = group.used_blocks + group.shared_blocks + (growth(group) if decodes else 0)
    held -= group.shared_blocks * group.block_tokens
    free = (group.capacity_blocks + group.shared_blocks - used) // group.block_kv[group.turn]
    row[layout.LOG_HELD], row[layout.LOG_PROMISED], row[layout.LOG_LENT] = held, promised, 0.0
    row[layout.LOG_FREE] = free * group.block_tokens
    row[layout.LOG_WAITING], row[layout.LOG_PAUSED] = waiting, paused


@compiled
def write_row(
    group: Record,
    start_s: float,
    duration_s: float,
    iterations: int,
    prefills: bool,
    decodes: int,
    context: int,
    longest: int,
) -> None:
    """Fill the first columns of the open row, which say what is computed and when."""
    row = group.rows[group.n_rows]
    row[layout.LOG_START], row[layout.LOG_DURATION] = start_s, duration_s
    row[layout.LOG_ITERATIONS] = iterations
    row[LOG_WORK] = group.work_requests if prefills else 0
    row[LOG_WORK + 1] = group.work_tokens if prefills else 0
    row[_PADDED] = group.work_padded if prefills else 0
    row[_ATTENDED] = group.work_attended if prefills else 0.0
    if prefills:
        decodes, context = decodes + group.work_decodes, context + group.work_context
        longest = max(longest, group.work_longest)
    row[layout.LOG_DECODES], row[layout.LOG_CONTEXT] = decodes, context
    row[layout.LOG_LONGEST] = longest


@compiled
def write_log(
    requests: Records,
    group: Record,
    queue: Ints,
    duration_s: float,
    iterations: int,
    decodes: bool,
    prefills: bool,
) -> None:
    """Write one row: a run of equal iterations that is over, before its progress is counted."""
    runs = decodes and group.n_decoding > 0
    write_row(
        group,
        group.clock_s,
        duration_s,
        iterations,
        prefills,
        group.n_decoding if runs else 0,
        group.context if runs else 0,
        group.longest + group.steps if runs else 0,
    )
    if group.log_columns > BRIEF:
        write_use(requests, group, queue, runs, prefills)
    group.n_rows += 1


@compiled
def add_flops(
    log: Floats,
    layers: int,
    per_token: float,
    hidden_size: int,
    grid_s: Floats,
    done: Floats,
) -> None:
    """Add to `done` what a group has computed by each time of the grid (arXiv 2503.16893 eq. 1-2).

    `log` has its rows of the log.
    Between the ends of two runs of iterations it grows linearly. The grid ascends from 0.
    """
    at, end_s, before = 0, 0.0, 0.0
    for row in range(len(log)):
        n, batch = log[row, layout.LOG_ITERATIONS], log[row, layout.LOG_DECODES]
        matmul = log[row, _PADDED] + batch * n
        attention = log[row, _ATTENDED] + n * log[row, layout.LOG_CONTEXT] + batch * n * (n - 1) / 2
        work = layers * (per_token * matmul + 2 * hidden_size * attention)
        begin_s, end_s = end_s, log[row, layout.LOG_START] + log[row, layout.LOG_DURATION]
        while at < len(grid_s) and grid_s[at] < end_s:
            done[at] += before + work / (end_s - begin_s) * (grid_s[at] - begin_s)
            at += 1
        before += work
    for rest in range(at, len(grid_s)):
        done[rest] += before


@compiled
def note_busy(
    busy: Floats, state: Record, group: Record, i: int, from_s: float, to_s: float
) -> None:
    """Extend the stretch in which a group computes, or write it down and open another."""
    if from_s != group.busy_to_s:
        if group.busy_to_s > group.busy_from_s:
            busy[state.n_busy, 0] = i
            busy[state.n_busy, 1] = group.busy_from_s
            busy[state.n_busy, 2] = group.busy_to_s
            state.n_busy += 1
        group.busy_from_s = from_s
    group.busy_to_s = to_s


@compiled
def take_rows(log: Floats, state: Record, group: Record, i: int) -> None:
    """Move a group's rows of the log to those of all groups."""
    for k in range(group.n_rows):
        log[state.n_log, 0] = i
        for column in range(group.log_columns):
            log[state.n_log, 1 + column] = group.rows[k, column]
        state.n_log += 1
    group.n_rows = 0
