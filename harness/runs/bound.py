"""Bounds that no scheduler passes: mean latencies and the last answer of a load known beforehand.

An iteration takes at least a fixed part, and for each of its requests a part of its own: a decode
some seconds and some for each token of its context, a prompt some for each of its tokens. Without
the fixed parts the clock of a group is that of one machine that works on one request at a time. Its
least sum of flow times is that of the shortest remaining work first (Schrage 1968), also where
the fixed parts that are left out make arrivals come closer together; and every request waits for
the fixed parts of its own iterations beside that:

    sum of JCT >= sum of fixed x tokens answered + sum of flow times, shortest remaining work first

Any line below the seconds of a batch by its size says what is fixed and what is a request's own;
the line with the largest bound counts. Every token of an answer but the first is taken to come from
a decode: to drop a context that is cached but for its last block, and to compute that block as a
prompt, may be faster. KV is such a machine: of it a request takes tokens x seconds of its
iterations, and where it takes all these, they lie on average so long before its end as they do if
it runs alone (mean busy times, Goemans 1996). And no request is faster than alone: the k-th answer
comes no earlier than the k-th of any of these machines, nor than the k-th alone.

Jaillet et al. (arXiv 2502.07115, section 3) have an integer program for iterations that all last as
long: requests start once, and KV fits at all times. Its optimum is not below these bounds, which
take the seconds of a load of thousands of requests to compute.
"""

import heapq
from typing import NamedTuple

import numpy as np

from harness.costs.iteration import IterationTable
from harness.interface.tables import Floats, Ints
from harness.runs.building import cell_of
from harness.runs.cells import Run
from harness.runs.config import stored_configuration
from harness.workloads.workload import Workload

LINES = 12
"""Batch sizes, in equal ratios, between which lines have the slopes of the seconds of a batch."""


class Machine(NamedTuple):
    """Equal groups of GPUs that serve one model, and the limits of each."""

    groups: int
    kv_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int


class KnownLoad(NamedTuple):
    """Requests of which all is known: when each reaches its scheduler, and its tokens.

    `cached_tokens` are those of a prompt that may be found cached, `waited_s` what passes between
    sending a request and its scheduler having it.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    cached_tokens: Ints
    waited_s: Floats


class Bounds(NamedTuple):
    """Seconds that no scheduler passes, of the load as a whole."""

    jct_s_mean: float
    ttft_s_mean: float
    makespan_s: float


class _Parts(NamedTuple):
    """Least seconds of an iteration: fixed, for a decode, a token of its context, of a prompt.

    And for a pair of tokens of a prompt that attend to each other.
    """

    fixed_s: float
    decode_s: float
    context_s: float
    prompt_s: float
    attended_s: float


def bounds_of(table: IterationTable, machine: Machine, load: KnownLoad) -> Bounds:
    """Bounds for a load on a machine whose iterations take what the table says."""
    lines = _lines(table, machine, _at_once(machine, load))
    found = [_by_line(parts, machine, load) for parts in lines]
    alone, through_0 = max(lines, key=lambda it: it.fixed_s), lines[-1]
    held_s, before_s = _held_s(alone, machine, load)
    jct_s, ttft_s, makespan_s = np.max(found, axis=0).tolist()
    come_s, groups = load.arrival_s, machine.groups
    ends_s = [
        come_s + alone.fixed_s * load.output_tokens + _own_s(alone, load),
        shortest_remaining(come_s, held_s / groups),
        shortest_remaining(come_s, _own_s(through_0, load) / groups),
    ]
    kth_s = np.max([np.sort(it) for it in ends_s], axis=0)
    by_kv_s = mean_busy(come_s, held_s / groups) + before_s
    both_s = (float((it - come_s + load.waited_s).mean()) for it in (kth_s, by_kv_s))
    last = np.argsort(-come_s, kind="stable")
    latest_s = float((come_s[last] + np.cumsum(held_s[last]) / groups).max())
    by_held_s = latest_s - float((come_s - load.waited_s).min())
    return Bounds(max(jct_s, *both_s), ttft_s, max(makespan_s, by_held_s))


def _by_line(parts: _Parts, machine: Machine, load: KnownLoad) -> Bounds:
    """By one line: the fixed parts of own iterations, and the order of all other seconds."""
    come_s, groups = load.arrival_s, machine.groups
    prompt_s, own_s = _prompt_s(parts, load), _own_s(parts, load)
    fixed_s, sent_s = parts.fixed_s * load.output_tokens, come_s - load.waited_s
    flow_s = shortest_remaining(come_s, own_s / groups) - sent_s + fixed_s
    alone_s = come_s - sent_s + own_s + fixed_s
    first_s = shortest_remaining(come_s, prompt_s / groups) - sent_s + parts.fixed_s
    first_alone_s = come_s - sent_s + prompt_s + parts.fixed_s
    last = np.argsort(-come_s, kind="stable")
    left_s = np.cumsum(own_s[last]) + np.maximum.accumulate(fixed_s[last])
    latest_s = max(float((sent_s + alone_s).max()), float((come_s[last] + left_s / groups).max()))
    return Bounds(
        float(max(flow_s.mean(), alone_s.mean())),
        float(max(first_s.mean(), first_alone_s.mean())),
        latest_s - float(sent_s.min()),
    )


def _held_s(parts: _Parts, machine: Machine, load: KnownLoad) -> tuple[Floats, Floats]:
    """Of each request its share of the KV x the seconds of its own iterations.

    And by how much the mean time at which it holds them lies before its end, if it runs alone. A
    decode with a context of c tokens holds them, a prompt half of its tokens on average.
    """
    prompt, cached = load.prompt_tokens, load.cached_tokens
    last, prompt_s = prompt + load.output_tokens - 1, _prompt_s(parts, load)
    tokens = np.arange(int(last.max()) + 1.0)
    step_s = np.asarray(parts.fixed_s + parts.decode_s + parts.context_s * tokens, np.float64)
    up_to_s: Floats = np.cumsum(step_s)

    def of_decodes(values: Floats) -> Floats:
        """Sums over the decodes of each request."""
        up_to = np.cumsum(values)
        return np.asarray(up_to[last] - up_to[prompt], np.float64)

    decodes_s = of_decodes(step_s)
    held = prompt_s * (prompt - cached) / 2.0 + of_decodes(tokens * step_s) - cached * decodes_s
    later_s = [of_decodes(it * step_s * up_to_s) for it in (tokens, np.ones(len(tokens)))]
    of_tokens = up_to_s[last] * (of_decodes(tokens * step_s) - cached * decodes_s)
    of_tokens += cached * later_s[1] - later_s[0] + prompt_s * (prompt - cached) / 2.0 * decodes_s
    held = np.maximum(held, 1e-12)
    return np.asarray(held / machine.kv_tokens, np.float64), of_tokens / held


def _own_s(parts: _Parts, load: KnownLoad) -> Floats:
    """Seconds of each request that are its own, of all its iterations."""
    decodes = load.output_tokens - 1.0
    contexts = decodes * (load.prompt_tokens + 1.0) + decodes * (decodes - 1.0) / 2.0
    own_s = _prompt_s(parts, load) + decodes * parts.decode_s + contexts * parts.context_s
    return np.asarray(own_s, np.float64)


def _prompt_s(parts: _Parts, load: KnownLoad) -> Floats:
    """Seconds of a prompt's own, but for what is cached of it."""
    prompt, cached = load.prompt_tokens.astype(float), load.cached_tokens.astype(float)
    pairs = prompt**2 - cached**2
    return np.asarray(parts.prompt_s * (prompt - cached) + parts.attended_s * pairs, np.float64)


def _at_once(machine: Machine, load: KnownLoad) -> int:
    """Most requests of an iteration: within its limits, and with their own KV in memory."""
    held = np.cumsum(np.sort(load.prompt_tokens - load.cached_tokens))
    fit = int(np.searchsorted(held, machine.kv_tokens, side="right"))
    return max(1, min(machine.max_num_seqs, machine.max_num_batched_tokens, fit))


def _lines(table: IterationTable, machine: Machine, at_once: int) -> list[_Parts]:
    """Lines below the seconds of a batch by its size, from one that is flat to one through 0."""
    running = np.arange(1, min(at_once, len(table.decode_base_s) - 1) + 1)
    base_s, (alone_s, beside_s) = table.decode_base_s[running], _piece_s(table, machine)
    tokens = np.arange(1, len(alone_s) + 1)
    context_s = float((table.decode_per_context_s + table.decode_per_padded_s)[running].min())
    attended_s = float(table.prefill_per_attended_s[running].min())
    sizes = np.unique(np.geomspace(1, len(running), LINES).astype(int)) - 1
    through_0_s = float((base_s / running).min())
    slopes_s = np.clip(np.diff(base_s[sizes]) / np.diff(sizes), 0.0, through_0_s)
    found = []
    for decode_s in (0.0, *slopes_s.tolist(), through_0_s):
        fixed_s = max(0.0, min(float((base_s - decode_s * running).min()), float(alone_s.min())))
        prompt_s = min(((alone_s - fixed_s) / tokens).min(), (beside_s / tokens).min())
        found.append(_Parts(fixed_s, decode_s, context_s, float(max(0.0, prompt_s)), attended_s))
    return found


def _piece_s(table: IterationTable, machine: Machine) -> tuple[Floats, Floats]:
    """Least seconds of 1, 2, ... tokens of prompts in an iteration: alone, and beside decodes.

    Beside them it may share what both read. Attention is not counted.
    """
    tokens = np.arange(1, machine.max_num_batched_tokens + 1)
    steps, shared = (
        it[np.minimum(tokens, len(it) - 1)] for it in (table.prefill_step_s, table.shared_s)
    )
    prompts = np.arange(1, min(machine.max_num_seqs, len(table.prefill_base_s) - 1) + 1)
    of_token = (table.prefill_per_padded_token_s + table.prefill_per_token_s)[prompts].min()
    alone_s = table.prefill_base_s[prompts].min() + of_token * tokens + steps
    return alone_s, np.maximum(0.0, alone_s - np.maximum.accumulate(shared))


def shortest_remaining(come_s: Floats, size_s: Floats) -> Floats:
    """When each ends on one machine that always works on the one with the least left."""
    ends_s = np.empty(len(come_s))
    order, left = np.argsort(come_s, kind="stable").tolist(), list[tuple[float, int]]()
    now_s, comes, sizes = -np.inf, come_s.tolist(), size_s.tolist()
    for place, request in enumerate([*order, -1]):
        until_s = comes[request] if place < len(order) else np.inf
        while left and now_s < until_s:
            more_s, first = left[0]
            if now_s + more_s > until_s:
                heapq.heapreplace(left, (more_s - (until_s - now_s), first))
                break
            heapq.heappop(left)
            now_s += more_s
            ends_s[first] = now_s
        now_s = max(now_s, until_s)
        if place < len(order):
            heapq.heappush(left, (sizes[request], request))
    return ends_s


def mean_busy(come_s: Floats, size_s: Floats) -> Floats:
    """The mean time at which each is worked on, on one machine that prefers the smallest."""
    means_s = np.zeros(len(come_s))
    order, waits = np.argsort(come_s, kind="stable").tolist(), list[tuple[float, int]]()
    now_s, comes, sizes, left = -np.inf, come_s.tolist(), size_s.tolist(), size_s.tolist()
    for place, request in enumerate([*order, -1]):
        until_s = comes[request] if place < len(order) else np.inf
        while waits and now_s < until_s:
            size, first = waits[0]
            spent_s = min(left[first], until_s - now_s)
            if size > 0:
                means_s[first] += spent_s * (now_s + spent_s / 2) / size
            else:
                means_s[first] = now_s
            left[first] -= spent_s
            now_s += spent_s
            if left[first] > 0:
                break
            heapq.heappop(waits)
        now_s = max(now_s, until_s)
        if place < len(order):
            heapq.heappush(waits, (sizes[request], request))
    return means_s


def bounds_of_run(run: Run) -> Bounds:
    """Bounds for what a run of one service was asked, on its machine and within its limits.

    Raises ValueError for a run of several services or of applications.
    """
    config = stored_configuration(run.config)
    cell = cell_of(config)
    workload = cell.workload_factory.build(cell.seed)
    degree, copies = (
        config.system["placement"].get(key) for key in ("tensor_parallel", "data_parallel")
    )
    if len(workload.services) > 1 or len(workload.edges) or not (degree and copies):
        raise ValueError("bounds are of independent requests of one service in equal groups")
    costs, service = cell.costs, workload.services[0].id
    kv_tokens = costs.kv_blocks(service, degree) * costs.block_tokens(service)
    limits = (int(config.engine[key]) for key in ("max_num_seqs", "max_num_batched_tokens"))
    waited_s = costs.intake_s(service, workload.prompt_tokens)
    reuses = config.engine.get("prefix_caching") is not False
    cached = common_tokens(workload) if reuses else np.zeros(len(workload), np.int64)
    load = KnownLoad(
        workload.arrival_s + waited_s,
        workload.prompt_tokens,
        workload.output_tokens,
        cached,
        waited_s,
    )
    return bounds_of(costs.table(service, degree), Machine(copies, kv_tokens, *limits), load)


def common_tokens(workload: Workload) -> Ints:
    """Of each prompt the most that it has in common with another, but for its last token."""
    common = np.zeros(len(workload), np.int64)
    if len(workload.prefix):
        begins = workload.prefix >= 0
        common[begins] = workload.prefix_tokens[begins]
        np.maximum.at(common, workload.prefix[begins], workload.prefix_tokens[begins])
    return np.asarray(np.minimum(common, workload.prompt_tokens - 1), np.int64)
