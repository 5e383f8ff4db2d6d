"""Requests that outgrow what was set aside for them: noted, told, and set more aside for."""

from harness.costs.compiled import compiled, inlined
from harness.engines.simulator.fast.arrays import (
    DECODING,
    OVERRAN,
    PARTIAL,
    PAUSED,
    STEPS,
    STOPPED,
    USED_BLOCKS,
    WAITING,
    ReplicaArrays,
    ReplicaRule,
)
from harness.engines.simulator.fast.heaps import before
from harness.engines.simulator.fast.keys import move_keys
from harness.engines.simulator.fast.kv import begin_growth, blocks, end_growth, taken
from harness.engines.state import RequestArrays


@inlined
def note_overrun(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, request: int, context: int
) -> None:
    """A request has produced a token: where somebody learns of overruns, the replica stops."""
    aside = requests.reserved[request]
    if rule.tells and aside > 0 and context == aside + 1:
        replica.over[replica.counts[OVERRAN]] = request
        replica.counts[OVERRAN] += 1
        replica.counts[STOPPED] = 1


@compiled
def note_overruns(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """All decoding ones have produced a token; those that are answered with it do not count."""
    for i in range(replica.counts[DECODING]):
        request = replica.decoding[i]
        if requests.ends[request] > replica.counts[STEPS]:
            context = _context(requests, replica, request, True)
            note_overrun(requests, replica, rule, request, context)


@inlined
def _context(requests: RequestArrays, replica: ReplicaArrays, request: int, decodes: bool) -> int:
    context = requests.prompt[request] + requests.generated[request]
    if decodes:
        context += replica.counts[STEPS] - requests.joined[request]
    return int(context)


@compiled
def steps_within(
    requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, most: int
) -> int:
    """Decode steps, at most `most`, until an overrun that somebody learns of or more is due for."""
    for i in range(replica.counts[DECODING]):
        request = replica.decoding[i]
        aside = requests.reserved[request]
        if aside > 0 and (rule.tells or requests.wanted[request] > aside):
            left = aside + 1 - _context(requests, replica, request, True)
            if left > 0:
                most = min(most, left)
    return most


@inlined
def _is_due(requests: RequestArrays, replica: ReplicaArrays, request: int, decodes: bool) -> bool:
    """Whether a holder has just outgrown what is set aside for it, and more would be now."""
    aside = requests.reserved[request]
    if requests.kv[request] == 0 or aside == 0 or requests.wanted[request] <= aside:
        return False
    return bool(_context(requests, replica, request, decodes) == aside + 1)


@compiled
def renew_promises(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule) -> None:
    """Set more aside for those it is due for, in order, where there is room."""
    move_keys(requests, replica, rule)
    counts, last = replica.counts, -1
    waiting = counts[WAITING] if counts[PAUSED] > 0 else 0
    while True:
        best, at = -1, 0
        for i in range(counts[DECODING] + counts[PARTIAL] + waiting):
            request = _holder(replica, i)
            if (
                _is_due(requests, replica, request, i < counts[DECODING])
                and (last < 0 or before(requests, last, request))
                and (best < 0 or before(requests, request, best))
            ):
                best, at = request, i
        if best < 0:
            return
        last = best
        more = blocks(requests.wanted[best], rule.block_tokens)
        # What it holds is all that was set aside for it.
        more -= blocks(requests.reserved[best], rule.block_tokens)
        if _used(requests, replica, rule, waiting) + more <= rule.capacity_blocks:
            counts[USED_BLOCKS] += more
            counts[PAUSED] += more if at >= counts[DECODING] + counts[PARTIAL] else 0
            _renew(requests, replica, rule, best, at < counts[DECODING])


@inlined
def _holder(replica: ReplicaArrays, i: int) -> int:
    """Those that decode, then those in mid-prompt, then those that wait."""
    counts = replica.counts
    if i < counts[DECODING]:
        return int(replica.decoding[i])
    i -= counts[DECODING]
    return int(replica.partial[i] if i < counts[PARTIAL] else replica.waiting[i - counts[PARTIAL]])


@compiled
def _used(requests: RequestArrays, replica: ReplicaArrays, rule: ReplicaRule, waiting: int) -> int:
    """Blocks that all holders take now, without what seats keep for prompts to come."""
    used = 0
    for i in range(replica.counts[DECODING] + replica.counts[PARTIAL] + waiting):
        request = _holder(replica, i)
        held = requests.kv[request]
        if i < replica.counts[DECODING]:
            held += replica.counts[STEPS] - requests.joined[request]
        used += taken(requests, rule, request, held) if held > 0 else 0
    return used


@compiled
def _renew(
    requests: RequestArrays,
    replica: ReplicaArrays,
    rule: ReplicaRule,
    request: int,
    decodes: bool,
) -> None:
    """What is now wanted for a request is set aside."""
    if decodes:
        done = replica.counts[STEPS] - requests.joined[request]
        requests.joined[request] += done
        requests.generated[request] += done
        requests.kv[request] += done
        end_growth(requests, replica, rule, request)
    requests.reserved[request] = requests.wanted[request]
    if decodes:
        begin_growth(requests, replica, rule, request)
