"""Requests that hold KV in a group: how they join, grow, leave, are preempted and finish.

A request for which KV is set aside takes all of that from the start, and grows beyond it only.
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel import prefixes
from harness.engines.simulator.kernel.layout import GroupArrays, Record, Records
from harness.engines.simulator.kernel.order import (
    before,
    move_keys,
    progress_of,
    push_end,
    push_waiting,
    take_end,
)
from harness.engines.simulator.kernel.prefixes import CacheRecords
from harness.engines.simulator.kernel.swapping import swap_out
from harness.engines.state import END, Floats, Ints
from harness.engines.token_gaps import add_gaps, add_run, note_tokens

# Value of the field `grows` for a request that ends within what is set aside for it
NEVER = 1 << 62


@compiled
def blocks(tokens: int, block_tokens: int) -> int:
    """Blocks that hold `tokens`; in floating point, which is exact here and divides faster."""
    return int((tokens + block_tokens - 1) / block_tokens)


@compiled
def taken(requests: Records, group: Record, request: int, tokens: int) -> int:
    """KV that a request takes while it holds `tokens`: of those, or of what is set aside.

    In blocks, but in bytes where services share it, as all KV of a group.
    """
    place = requests[request].service if group.services_end > 0 else 0
    count = blocks(max(tokens, requests[request].reserved), group.block_tokens)
    return int(count * group.block_kv[place])


@compiled
def held_blocks(requests: Records, group: Record, request: int) -> int:
    """KV that a request takes which does not decode."""
    held = requests[request].kv
    return taken(requests, group, request, held) if held > 0 else 0


@compiled
def begin_growth(requests: Records, group: Record, request: int) -> None:
    """Note from which decode step on a request needs new blocks; it has just joined."""
    kv = requests[request].kv
    aside = blocks(requests[request].reserved, group.block_tokens) * group.block_tokens
    grows = group.steps + max(0, aside - kv)
    if grows == group.steps:
        group.phase[(kv - group.steps) % group.block_tokens] += 1
        group.growing += 1
    elif grows < requests[request].ends:
        group.covered += 1
    else:
        grows = NEVER
    requests[request].grows = grows


@compiled
def end_growth(requests: Records, group: Record, request: int) -> None:
    """A request leaves the decoding ones; its progress has been written back."""
    if requests[request].grows <= group.steps:
        group.phase[(requests[request].kv - group.steps) % group.block_tokens] -= 1
        group.growing -= 1
    elif requests[request].grows != NEVER:
        group.covered -= 1


@compiled
def growth(group: Record) -> int:
    """KV that the next decode step needs."""
    return int(group.phase[-group.steps % group.block_tokens] * group.block_kv[group.turn])


@compiled
def iterations_that_fit(group: Record, most: int) -> int:
    """Decode steps, at most `most`, until the KV is full, or a request in a slot would lose it."""
    free = min(group.capacity_blocks - group.used_blocks, group.slack_kv + growth(group))
    free //= group.block_kv[group.turn]
    if (most // group.block_tokens + 1) * group.growing <= free:
        return most
    cycles = free // max(1, group.growing)
    fit = min(most, cycles * group.block_tokens)
    free -= cycles * group.growing
    while fit < most:
        free -= group.phase[-(group.steps + fit) % group.block_tokens]
        if free < 0:
            break
        fit += 1
    return int(fit)


@compiled
def take_blocks(group: Record, iterations: int) -> None:
    """Take the blocks that so many decode steps of all need."""
    count = iterations // group.block_tokens * group.growing
    for j in range(iterations % group.block_tokens):
        count += group.phase[-(group.steps + j) % group.block_tokens]
    group.used_blocks += count * group.block_kv[group.turn]


@compiled
def join(requests: Records, group: Record, request: int) -> None:
    """A request whose KV is complete but for its last token starts decoding."""
    step = group.steps
    requests[request].joined = step
    requests[request].ends = step + requests[request].output - requests[request].generated
    requests[request].place = group.n_decoding
    group.decoding[group.n_decoding] = request
    group.token_s[group.n_decoding] = requests[request].token_s
    group.longest_gap_s[group.n_decoding] = requests[request].longest_gap_s
    group.n_decoding += 1
    context = requests[request].prompt + requests[request].generated
    group.context += context
    # Contexts grow alike, so the longest stays the longest: kept as if at step 0.
    group.longest = max(group.longest, context - step)
    begin_growth(requests, group, request)
    requests[request].gpu_s -= group.decoded_s
    push_end(requests, group, request)


@compiled
def leave(requests: Records, group: Record, request: int) -> None:
    """A decoding request leaves the group's lists with its KV; progress is written back."""
    take_end(requests, group, request)
    _bring_up(requests, group, request)
    requests[request].gpu_s += group.decoded_s
    context = context_of(requests, group, request, False)
    group.context -= context
    group.n_decoding -= 1
    place, last = requests[request].place, group.n_decoding
    requests[request].token_s = group.token_s[place]
    requests[request].longest_gap_s = group.longest_gap_s[place]
    moved = group.decoding[last]
    group.decoding[place] = moved
    group.token_s[place], group.longest_gap_s[place] = (
        group.token_s[last],
        group.longest_gap_s[last],
    )
    requests[moved].place = place
    end_growth(requests, group, request)
    if context - group.steps == group.longest:
        group.longest = -(1 << 62)
        for i in range(group.n_decoding):
            context = context_of(requests, group, group.decoding[i], True)
            group.longest = max(group.longest, context - group.steps)


@compiled
def _bring_up(requests: Records, group: Record, request: int) -> None:
    """Write the tokens of a decoding request into its record."""
    done = group.steps - requests[request].joined
    requests[request].joined = group.steps
    requests[request].generated += done
    requests[request].kv += done


@compiled
def write_back(requests: Records, group: Record) -> None:
    """Write the progress of all decoding requests into their records."""
    for i in range(group.n_decoding):
        request = group.decoding[i]
        _bring_up(requests, group, request)
        requests[request].gpu_s += group.decoded_s
        requests[request].token_s = group.token_s[i]
        requests[request].longest_gap_s = group.longest_gap_s[i]
    group.decoded_s = 0.0


@compiled
def note_gaps(group: Record, iterations: int, duration_s: float) -> None:
    """All decoding requests have produced a token in each of so many iterations."""
    start_s = group.clock_s
    end_s = start_s + duration_s
    first_s = duration_s if iterations == 1 else float(group.first_gap_s)
    in_run_s = add_run(group.gaps, first_s, duration_s, iterations, group.n_decoding)
    longest_s, alike = max(first_s, in_run_s), 0
    token_s, kept_s = group.token_s, group.longest_gap_s
    for i in range(group.n_decoding):
        gap_s = longest_s
        if token_s[i] == start_s:
            alike += 1
        elif not np.isnan(token_s[i]):
            add_gaps(group.gaps, start_s + first_s - token_s[i], 1)
            gap_s = max(start_s + first_s - token_s[i], in_run_s)
        else:
            gap_s = in_run_s
        if gap_s > kept_s[i]:
            kept_s[i] = gap_s
        token_s[i] = end_s
    if alike > 0:
        add_gaps(group.gaps, first_s, alike)


@compiled
def drop(requests: Records, group: Record, cache: CacheRecords | None, request: int) -> None:
    """Free the KV of a request that does not decode."""
    held = requests[request].kv
    if cache is not None:
        group.used_blocks -= prefixes.free(cache, group, request, held)
    else:
        group.used_blocks -= taken(requests, group, request, held)
    requests[request].kv = 0


@compiled
def note_preempted(requests: Records, group: Record, request: int) -> None:
    """A request is preempted now; when it begins again, what it then wants is set aside.

    That may be less than before, so waiting requests are looked at again after one iteration.
    """
    group.preempted = True
    requests[request].reserved = requests[request].wanted
    requests[request].preemptions += 1
    requests[request].preempted_at_s = group.clock_s


@compiled
def preempt(
    requests: Records, swap: Floats, group: Record, cache: CacheRecords | None, request: int
) -> None:
    """A request that does not decode loses its KV, which may be kept in host memory."""
    if group.host_tokens > 0:
        swap_out(requests, swap, group, request)
    drop(requests, group, cache, request)
    note_preempted(requests, group, request)


@compiled
def preempt_last(arrays: GroupArrays, group: Record, cache: CacheRecords | None) -> None:
    """Preempt the last holder in order: partly prefilled ones stand behind decoding ones."""
    requests, pieces, swap, queue = arrays
    move_keys(requests, pieces, group)
    if group.n_partial > 0:
        group.n_partial -= 1
        victim = group.partial[group.n_partial]
    else:
        victim, key = -1, -np.inf
        for i in range(group.n_decoding):
            # `before`, without a call for each
            request = group.decoding[i]
            other = requests[request].key
            if other > key or (other == key and request > victim):
                victim, key = request, other
        leave(requests, group, victim)
    preempt(requests, swap, group, cache, victim)
    push_waiting(requests, group, queue, victim)


@compiled
def make_room_to_decode(arrays: GroupArrays, group: Record, cache: CacheRecords | None) -> None:
    """Preempt from behind until every remaining decode fits."""
    while growth(group) > group.capacity_blocks - group.used_blocks:
        preempt_last(arrays, group, cache)


@compiled
def finish(requests: Records, group: Record, request: int) -> None:
    """Note the end of a request."""
    requests[request].finished_s = group.clock_s
    group.load -= requests[request].weight
    group.generated -= requests[request].output
    group.finished[group.n_finished] = request
    group.n_finished += 1


@compiled
def note_due(requests: Records, pieces: Floats, group: Record) -> None:
    """Write down the decoding requests that end with the iterations in flight, in their order now.

    Where prefixes are cached, it decides whose blocks were used more recently.
    """
    ends, due = group.steps + group.iterations, 0
    if group.n_heap == 0 or requests[group.heap[0]].ends > ends:
        return
    move_keys(requests, pieces, group)
    for i in range(group.n_decoding):
        request = group.decoding[i]
        if requests[request].ends > ends:
            continue
        at = due
        while at > 0 and before(requests, request, group.moved[at - 1]):
            group.moved[at] = group.moved[at - 1]
            at -= 1
        group.moved[at] = request
        due += 1


@compiled
def finish_due(requests: Records, group: Record, cache: CacheRecords | None) -> None:
    """Finish every decoding request whose last token has just been produced."""
    count = 0
    while group.n_heap > 0 and requests[group.heap[0]].ends <= group.steps:
        request = group.moved[count] if cache is not None else group.heap[0]
        count += 1
        leave(requests, group, request)
        drop(requests, group, cache, request)
        finish(requests, group, request)


@compiled
def start(requests: Records, request: int, now_s: float) -> None:
    """Note that a request begins to run, first or again."""
    if np.isnan(requests[request].started_s):
        requests[request].started_s = now_s
    elif not np.isnan(requests[request].preempted_at_s):
        requests[request].preempted_s += now_s - requests[request].preempted_at_s
        requests[request].preempted_at_s = np.nan


@compiled
def produce(requests: Records, group: Record, cache: CacheRecords | None, request: int) -> None:
    """A request whose context is computed produces a token; it ends or goes on decoding."""
    if np.isnan(requests[request].first_token_s):
        requests[request].first_token_s = group.clock_s
    if group.keeps_gaps:
        note_tokens(requests, group.gaps, request, group.clock_s, group.clock_s, 0.0)
    requests[request].generated += 1
    group.generated += 1
    if requests[request].generated == requests[request].output:
        finish(requests, group, request)
        drop(requests, group, cache, request)
    else:
        join(requests, group, request)
        note_overrun(requests, group, request, context_of(requests, group, request, False))


@compiled
def note_overrun(requests: Records, group: Record, request: int, context: int) -> None:
    """A request has produced a token: has it outgrown what was set aside, and is that observed?"""
    aside = requests[request].reserved
    if group.tells and aside > 0 and context == aside + 1:
        group.over[group.n_over] = request
        group.n_over += 1


@compiled
def note_steps(requests: Records, group: Record) -> None:
    """Decode steps have passed: requests use up what was set aside for them, and outgrow it."""
    for i in range(group.n_decoding):
        request = group.decoding[i]
        if requests[request].grows == group.steps:
            # What is set aside is whole blocks, so the next token needs a new one.
            group.phase[-group.steps % group.block_tokens] += 1
            group.growing += 1
            group.covered -= 1
        if requests[request].ends > group.steps:
            note_overrun(requests, group, request, context_of(requests, group, request, True))


@compiled
def context_of(requests: Records, group: Record, request: int, decodes: bool) -> int:
    """Context tokens of a request now; `decodes` if it is a decoding one."""
    context = requests[request].prompt + requests[request].generated
    if decodes:
        context += group.steps - requests[request].joined
    return int(context)


@compiled
def missing(requests: Records, request: int) -> int:
    """Tokens of the context of a request that does not decode for which there is no KV yet."""
    context = requests[request].prompt + requests[request].generated
    return int(context - requests[request].kv)


@compiled
def is_last(requests: Records, request: int) -> bool:
    """Whether a request that does not decode misses nothing but the KV of its last output token.

    It decodes in its next iteration, though it is admitted by that.
    """
    begun = requests[request].kv > 0 and requests[request].generated > 0
    return bool(begun and missing(requests, request) == 1)


@compiled
def steps_set_aside(requests: Records, group: Record, most: int) -> int:
    """Decode steps, at most `most`, until a request has used up what was set aside for it.

    Or has outgrown it, where that is observed or more is due.
    """
    for i in range(group.n_decoding):
        request = group.decoding[i]
        aside = requests[request].reserved
        left = requests[request].grows - group.steps
        if left > 0:
            most = min(most, left)
        if aside > 0 and (group.tells or requests[request].wanted > aside):
            left = aside + 1 - context_of(requests, group, request, True)
            if left > 0:
                most = min(most, left)
    return most


@compiled
def _is_due(requests: Records, group: Record, request: int, decodes: bool) -> bool:
    """Whether a holder has just outgrown what is set aside for it, and more would be now."""
    aside = requests[request].reserved
    if requests[request].kv == 0 or aside == 0 or requests[request].wanted <= aside:
        return False
    return bool(context_of(requests, group, request, decodes) == aside + 1)


@compiled
def renew_reservations(requests: Records, pieces: Floats, group: Record, queue: Ints) -> None:
    """Set more aside for holders for which it is due, in order, where there is room."""
    move_keys(requests, pieces, group)
    last = -1
    waiting = group.n_waiting if group.paused_blocks > 0 else 0
    while True:
        best, at = -1, 0
        for i in range(group.n_decoding + group.n_partial + waiting):
            request = holder(group, queue, i)
            if (
                _is_due(requests, group, request, i < group.n_decoding)
                and (last < 0 or before(requests, last, request))
                and (best < 0 or before(requests, request, best))
            ):
                best, at = request, i
        if best < 0:
            return
        last = best
        more = blocks(requests[best].wanted, group.block_tokens)
        # What it holds is all that was set aside for it.
        more -= blocks(requests[best].reserved, group.block_tokens)
        if _used(requests, group, queue, waiting) + more <= group.capacity_blocks:
            group.used_blocks += more
            group.paused_blocks += more if at >= group.n_decoding + group.n_partial else 0
            _renew(requests, group, best, at < group.n_decoding)


@compiled
def holder(group: Record, queue: Ints, i: int) -> int:
    """Decoding requests, then partly prefilled ones, then waiting ones."""
    if i < group.n_decoding:
        return int(group.decoding[i])
    i -= group.n_decoding
    if i < group.n_partial:
        return int(group.partial[i])
    return int(queue[group.queue_at + i - group.n_partial])


@compiled
def _used(requests: Records, group: Record, queue: Ints, waiting: int) -> int:
    """Blocks that all holders take now, without what slots keep for prompts to come."""
    used = 0
    for i in range(group.n_decoding + group.n_partial + waiting):
        request = holder(group, queue, i)
        held = requests[request].kv
        if i < group.n_decoding:
            held += group.steps - requests[request].joined
        used += taken(requests, group, request, held) if held > 0 else 0
    return used


@compiled
def _renew(requests: Records, group: Record, request: int, decodes: bool) -> None:
    """What is now wanted for a request is set aside."""
    if decodes:
        _bring_up(requests, group, request)
        end_growth(requests, group, request)
    requests[request].reserved = requests[request].wanted
    if decodes:
        begin_growth(requests, group, request)


@compiled
def must_ask(requests: Records, pieces: Floats, group: Record, queue: Ints) -> bool:
    """Whether the last piece of a running request's key has ended; in shared groups, of any's."""
    last = pieces.shape[1] - 1
    is_any = group.services_end > 0
    for i in range(group.n_waiting if is_any else group.n_decoding + group.n_partial):
        request = holder(group, queue, i)
        progress = progress_of(requests, group, request, i < group.n_decoding)
        if pieces[request, last, END] <= progress:
            return True
    return False
