"""The log of a replica's iterations: what each computed, who held KV, who did not run."""

from harness.costs.compiled import compiled, inlined
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
    PAUSED,
    STEPS,
    USED_BLOCKS,
    WAITING,
    WORKS,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.simulator.fast.kv import taken
from harness.engines.state import BRIEF, RequestArrays


@inlined
def _of_decoding(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, decodes: bool
) -> tuple[int, int]:
    """Tokens promised to the decoding ones, and the blocks that they take; 0 where sums tell."""
    counts, promised, used = replica.counts, 0, 0
    for i in range(counts[DECODING] if rule.reserves or rule.displaces else 0):
        request = replica.decoding[i]
        kv = requests.kv[request] + counts[STEPS] - requests.joined[request] + int(decodes)
        promised += requests.reserved[request]
        used += taken(requests, rule, request, kv)
    return promised, used


@compiled
def write_use(
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    decodes: bool,
    prefills: bool,
) -> None:
    """Who holds KV while the iteration of the open row runs, and who does not run; see `Use`.

    `decodes` and `prefills` say whether those of these lists run. From sums that are kept anyway
    where they tell: a look at everybody in every iteration is most of the time of large batches.
    """
    counts, row, log = replica.counts, replica.counts[LOGGED], replica.log
    promised, used = _of_decoding(requests, replica, rule, decodes)
    waiting = 0
    held = counts[CONTEXT] - (0 if decodes else counts[DECODING])
    paused = 0 if decodes else counts[DECODING]
    for i in range(counts[PARTIAL]):
        request = replica.partial[i]
        tokens = replica.chunk[i] if prefills else 0
        kv = requests.kv[request] + tokens
        paused += tokens == 0 and kv > 0
        waiting += kv == 0
        if kv > 0:
            held, used = held + kv, used + taken(requests, rule, request, kv)
            promised += requests.reserved[request]
    # Who waits holds KV only where `PAUSED` says so.
    for i in range(counts[WAITING] if counts[PAUSED] > 0 else 0):
        request, kv = replica.waiting[i], requests.kv[replica.waiting[i]]
        if kv > 0:
            held, used = held + kv, used + taken(requests, rule, request, kv)
            promised += requests.reserved[request]
            paused, waiting = paused + 1, waiting - 1
    if not (rule.displaces or rule.until):
        growth = replica.phase[-counts[STEPS] % rule.block_tokens] if decodes else 0
        used = counts[USED_BLOCKS] + growth
    log[row, LOG_HELD], log[row, LOG_PROMISED], log[row, LOG_LENT] = held, promised, 0.0
    log[row, LOG_FREE] = (rule.capacity_blocks - used) * rule.block_tokens
    log[row, LOG_WAITING], log[row, LOG_PAUSED] = waiting + counts[WAITING], paused


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
    if rule.log_columns > BRIEF:
        write_use(requests, replica, rule, runs, prefills)
    counts[LOGGED] += 1
