"""Runs of equal decode iterations of a replica: how many, and what they leave."""

from harness.costs.compiled import inlined
from harness.costs.iteration import IterationTable, decode_iterations_within, decode_run_seconds
from harness.engines.simulator.fast.arrays import (
    CLOCK,
    CONTEXT,
    COVERED,
    DECODED,
    DECODES,
    DECODING,
    FLIGHT,
    FLIGHT_S,
    LONGEST,
    PREEMPTED,
    STEPS,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.simulator.fast.holders import (
    finish_due,
    pass_time,
)
from harness.engines.simulator.fast.keys import steps_in_order
from harness.engines.simulator.fast.kv import (
    iterations_that_fit,
    steps_covered,
    take_blocks,
    uncover,
)
from harness.engines.simulator.fast.log import write_log
from harness.engines.simulator.fast.overruns import note_overruns, steps_within
from harness.engines.simulator.fast.swaps import with_swaps
from harness.engines.state import RequestArrays


@inlined
def begin_decodes(table: IterationTable, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """One decode iteration begins, with the KV that is copied before or during it."""
    counts = replica.counts
    longest = counts[LONGEST] + counts[STEPS]
    seconds = decode_run_seconds(table, counts[DECODING], counts[CONTEXT], longest, 1)
    replica.time_s[FLIGHT_S] = with_swaps(replica, rule, seconds)
    counts[FLIGHT] = DECODES


@inlined
def _equal_steps(
    table: IterationTable, requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule
) -> int:
    """Decode iterations until a finish, an end of the KV, or a key that may pass another."""
    counts = replica.counts
    most = requests.ends[replica.heap[0]] - counts[STEPS]
    # Asked for here: a call costs as much as a short run, and few orders need any of them.
    if counts[COVERED] > 0:
        most = steps_covered(requests, replica, most)
    if rule.renews or rule.tells:
        most = steps_within(requests, replica, rule, most)
    if rule.moves:
        most = steps_in_order(table, requests, replica, rule, most)
    # After a preemption the waiting ones are looked at again one iteration later.
    return 1 if counts[PREEMPTED] else iterations_that_fit(replica, rule, most)


@inlined
def run_decodes(
    table: IterationTable,
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    sees_s: float,
    horizon_s: float,
) -> None:
    """Run equal decode iterations until the next thing can change.

    That is a finish, KV that is full or used up, a key that may pass another, the first boundary at
    or after `sees_s`, or the last one within the horizon; if none ends within it, one begins.
    """
    counts = replica.counts
    batch, context, longest = counts[DECODING], counts[CONTEXT], counts[LONGEST] + counts[STEPS]
    iterations = _equal_steps(table, requests, replica, rule)
    duration_s = decode_run_seconds(table, batch, context, longest, iterations)
    clock_s = replica.time_s[CLOCK]
    if clock_s + duration_s > sees_s:
        iterations = decode_iterations_within(
            table, batch, context, longest, sees_s - clock_s, iterations
        )
        duration_s = decode_run_seconds(table, batch, context, longest, iterations)
    if clock_s + duration_s > horizon_s:
        iterations = decode_iterations_within(
            table, batch, context, longest, horizon_s - clock_s, iterations
        )
        duration_s = decode_run_seconds(table, batch, context, longest, iterations)
        if clock_s + duration_s > horizon_s:
            iterations -= 1
            duration_s = decode_run_seconds(table, batch, context, longest, iterations)
    if iterations == 0:
        begin_decodes(table, replica, rule)
    else:
        end_decodes(requests, replica, rule, iterations, duration_s)


@inlined
def end_decodes(
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    iterations: int,
    duration_s: float,
) -> None:
    """`iterations` decode steps of everybody are over."""
    if rule.log_columns > 0:
        write_log(requests, replica, rule, duration_s, iterations, True, False)
    step_decodes(requests, replica, rule, iterations, duration_s)
    pass_time(replica, duration_s)
    finish_due(requests, replica, rule)


@inlined
def step_decodes(
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    iterations: int,
    duration_s: float,
) -> None:
    """Tokens, blocks and attained time of `iterations` decode steps."""
    counts = replica.counts
    take_blocks(replica, rule, iterations)
    counts[STEPS] += iterations
    if counts[COVERED] > 0:
        uncover(requests, replica, rule)
    if rule.tells:
        note_overruns(requests, replica, rule)
    counts[CONTEXT] += iterations * counts[DECODING]
    replica.time_s[DECODED] += duration_s
