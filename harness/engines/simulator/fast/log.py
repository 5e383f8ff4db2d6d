"""The log of a replica's iterations: what each computed, who held KV, who did not run."""

from harness.costs.compiled import inlined
from harness.engines.simulator.fast.arrays import (
    CLOCK,
    CONTEXT,
    DECODING,
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
    LOGGED,
    LONGEST,
    PARTIAL,
    STEPS,
    USED_BLOCKS,
    WAITING,
    WORKS,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.state import RequestArrays


@inlined
def _write_use(
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    decodes: bool,
    prefills: bool,
) -> None:
    """Who holds KV while the iteration of the open row runs, and who does not run; see `Use`."""
    counts, row, log = replica.counts, replica.counts[LOGGED], replica.log
    held = counts[CONTEXT] if decodes else counts[CONTEXT] - counts[DECODING]
    paused = 0 if decodes else counts[DECODING]
    for i in range(counts[PARTIAL]):
        tokens = replica.chunk[i] if prefills else 0
        held += requests.kv[replica.partial[i]] + tokens
        paused += tokens == 0
    needed = replica.phase[-counts[STEPS] % rule.block_tokens] if decodes else 0
    free = rule.capacity_blocks - counts[USED_BLOCKS] - needed
    log[row, LOG_HELD], log[row, LOG_FREE] = held, free * rule.block_tokens
    log[row, LOG_PROMISED] = log[row, LOG_LENT] = 0.0
    log[row, LOG_WAITING], log[row, LOG_PAUSED] = counts[WAITING], paused


@inlined
def write_log(
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    duration_s: float,
    iterations: int,
    decodes: bool,
    prefills: bool,
) -> None:
    """One row: a run of equal iterations that is about to be timed."""
    counts = replica.counts
    row, log = counts[LOGGED], replica.log
    log[row, LOG_START], log[row, LOG_DURATION] = replica.time_s[CLOCK], duration_s
    log[row, LOG_ITERATIONS] = iterations
    for i in range(WORKS):
        log[row, LOG_WORK + i] = replica.work[i] if prefills else 0.0
    runs = decodes and counts[DECODING] > 0
    log[row, LOG_DECODES] = counts[DECODING] if runs else 0
    log[row, LOG_CONTEXT] = counts[CONTEXT] if runs else 0
    log[row, LOG_LONGEST] = counts[LONGEST] + counts[STEPS] if runs else 0
    _write_use(requests, replica, rule, runs, prefills)
    counts[LOGGED] += 1
