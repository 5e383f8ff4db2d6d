"""How long every service has left: estimated lengths, served by the engine's compiled core.

Output lengths are predicted or sampled (arXiv 2503.16893 sec. 4.1, output length sampler), then
the requests are served in simulated time (same section, request scheduling simulator) on costs per
iteration (eq. 5). Nothing here is a second simulator: groups are the same compiled replicas that
the engine runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from harness.costs.model import TableCosts
from harness.costs.model_facts import ModelFacts
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.kernel.layout import LOG_WORK, WORKS, Rule
from harness.engines.simulator.kernel.work import add_flops
from harness.engines.simulator.rules import continuous_rule
from harness.engines.state import BRIEF, RequestArrays, new_arrays
from harness.interface.decisions import ContinuousBatching
from harness.interface.entities import ServiceId
from harness.interface.graph import NO_CALL, Edges, Graph
from harness.interface.tables import CallTable, Floats, Ints, RequestTable
from harness.interface.views import ClusterView
from harness.planning.plans import Load, Plan
from harness.workloads.ecdf import Ecdf, output_lengths

CURVE_POINTS = 65


def estimated_workloads(
    view: ClusterView,
    lengths: Mapping[ServiceId, Ecdf],
    rngs: Mapping[ServiceId, np.random.Generator],
) -> dict[ServiceId, Load]:
    """Every unfinished request and call to come, per service, with an estimated output length.

    That is the predicted one, or where nothing is predicted one sampled from the `lengths` of its
    service by its generator. The prompt of a call to come contains the estimated answers that will
    be carried to it. Raises ValueError where calls of one service wait for each other in another
    way than one by one.
    """
    unfinished = {service: view.unfinished(service) for service in view.services}
    to_come = {service: view.to_come(service) for service in view.services}
    ids = {s: np.concatenate([unfinished[s].id, to_come[s].id]) for s in view.services}
    count = 1 + max((int(i.max()) for i in ids.values() if len(i)), default=-1)
    prompt, generated, answer, service_of = (np.zeros(count, np.int64) for _ in range(4))
    for index, (service, table) in enumerate(unfinished.items()):
        service_of[ids[service]] = index
        prompt[table.id] = table.prompt_tokens
        generated[table.id] = table.generated_tokens
        context = view.services[service].max_context_tokens
        answer[table.id] = _answers(table, lengths[service], context, rngs[service])
    for service, calls in to_come.items():
        sampled = lengths[service].sample(len(calls.id), rngs[service])
        answer[calls.id] = _known_or(calls.predicted_mean_tokens, sampled)
        prompt[calls.id] = calls.own_tokens
    edges = view.edges
    _carry(view, to_come, edges, prompt, answer)
    following = _chains(edges, service_of)
    return {
        service: _load(np.sort(ids[service]), prompt, generated, answer, following)
        for service in view.services
    }


def _answers(table: RequestTable, lengths: Ecdf, context: int, rng: np.random.Generator) -> Ints:
    """Estimated output tokens of unfinished requests, more than they have generated."""
    sampled = output_lengths(
        lengths,
        table.prompt_tokens,
        max_output_tokens=table.max_output_tokens,
        max_context_tokens=context,
        rng=rng,
    )
    estimated = _known_or(table.predicted_mean_tokens, sampled)
    return np.maximum(estimated, table.generated_tokens + 1)


def _known_or(predicted_tokens: Floats, sampled: Ints) -> Ints:
    """What is predicted, in whole tokens, else what was sampled."""
    known = ~np.isnan(predicted_tokens)
    estimated = sampled.copy()
    estimated[known] = np.rint(predicted_tokens[known]).astype(np.int64)
    return estimated


def edges_between(view: ClusterView) -> Ints:
    """Rows (id, id of one that waits for it) of calls to come that ask different services."""
    edges = view.edges
    service_of = {
        call: service
        for service in view.services
        for table in (view.unfinished(service), view.to_come(service))
        for call in table.id.tolist()
    }
    pairs = zip(edges.parent.tolist(), edges.child.tolist(), strict=True)
    kept = [pair for pair in pairs if service_of[pair[0]] != service_of[pair[1]]]
    return np.array(kept, np.int64).reshape(-1, 2)


def _carry(
    view: ClusterView,
    to_come: Mapping[ServiceId, CallTable],
    edges: Edges,
    prompt: Ints,
    answer: Ints,
) -> None:
    """Add carried answers to prompts and cut answers to their limits, in order of id."""
    limit, context = np.zeros_like(prompt), np.zeros_like(prompt)
    for service, calls in to_come.items():
        limit[calls.id] = calls.max_output_tokens
        context[calls.id] = view.services[service].max_context_tokens
    pairs = zip(
        edges.parent[edges.carries].tolist(), edges.child[edges.carries].tolist(), strict=True
    )
    carried: dict[int, list[int]] = {}
    for parent, child in pairs:
        carried.setdefault(child, []).append(parent)
    later = np.sort(np.concatenate([np.zeros(0, np.int64), *(c.id for c in to_come.values())]))
    # Lists: a number of theirs is had in a tenth of the time, and there are as many as calls.
    read, said = prompt.tolist(), answer.tolist()
    most, fits = limit.tolist(), context.tolist()
    for call in later.tolist():
        read[call] += sum(said[parent] for parent in carried.get(call, ()))
        said[call] = max(1, min(said[call], most[call], fits[call] - read[call]))
    prompt[:], answer[:] = read, said


def _chains(edges: Edges, service_of: Ints) -> Ints:
    """The call that follows each within its service, or NO_CALL."""
    chain = Graph(edges, service_of).chain
    within = service_of[edges.parent] == service_of[edges.child]
    if (loose := within & (chain[edges.parent] != edges.child)).any():
        row = int(np.argmax(loose))
        raise ValueError(
            f"r{edges.child[row]} waits for r{edges.parent[row]} of its own service, and one of "
            "the two for or with others: only chains of calls can be planned"
        )
    return chain


def _load(ids: Ints, prompt: Ints, generated: Ints, answer: Ints, following: Ints) -> Load:
    row = np.full(len(prompt) + 1, NO_CALL)
    row[ids] = np.arange(len(ids))
    return Load(
        id=ids,
        prompt_tokens=prompt[ids],
        generated_tokens=generated[ids],
        output_tokens=answer[ids],
        ready_s=np.zeros(len(ids)),
        next=row[following[ids]] if len(ids) else np.zeros(0, np.int64),
    )


@cache
def _groups() -> CompiledGroups:
    """The arrays in which this process makes one forecast after the other."""
    return CompiledGroups(new_arrays(*np.zeros((4, 0), np.int64)), 1)


@dataclass(frozen=True)
class Forecast:
    """One service under one plan from the moment its groups are loaded (time 0).

    `finish_s` is when its last request is answered, `finished_s` when each is.
    """

    load: Load
    finish_s: float
    finished_s: Floats
    flops: float
    _curve_flops: tuple[float, ...]
    _forecaster: "Forecaster"
    _service: ServiceId
    _plan: Plan

    def flops_by(self, time_s: float) -> float:
        """Floating-point operations done by then."""
        if time_s >= self.finish_s:
            return self.flops
        place = max(0.0, time_s) / self.finish_s * (CURVE_POINTS - 1)
        before = int(place)
        low, high = self._curve_flops[before : before + 2]
        return low + (place - before) * (high - low)

    def load_after(self, time_s: float) -> Load:
        """What is unfinished then. Requests keep what they have generated; all `ready_s` are 0."""
        if time_s <= 0:
            return replace(self.load, ready_s=np.zeros(len(self.load)))
        arrays, *_ = self._forecaster.run(self._service, self._plan, self.load, time_s, log=False)
        return self.load.rest(np.isnan(arrays.finished_s), arrays.generated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What counts as an operation (arXiv 2503.16893 eq. 1-2, of which it says little).

    Of a mixture of experts the matrices of all experts count, or those that a token is sent to.
    What is computed counts, padding and what is computed again after a preemption or a change of
    plan included, or with `needed_only` no more than every token once, as the paper's program has
    it. `scale` multiplies the operations of the services that it names.
    """

    every_expert: bool = True
    needed_only: bool = False
    scale: Mapping[str, float] = field(default_factory=dict)

    def per_token(self, facts: ModelFacts) -> int:
        """`c` of the equations."""
        return facts.layer_parameters if self.every_expert else facts.layer_matmul_parameters


@dataclass(frozen=True, kw_only=True)
class Forecaster:
    """Forecasts by costs and batch rule."""

    costs: TableCosts
    rule: ContinuousBatching
    counted: Counted = field(default_factory=Counted)
    _rules: dict[tuple[ServiceId, int, bool], Rule] = field(default_factory=dict, compare=False)

    def forecast(self, service: ServiceId, facts: ModelFacts, plan: Plan, load: Load) -> Forecast:
        """Serve the load to its end, requests dealt to the groups in turn."""
        arrays, finish_s, logs = self.run(service, plan, load, np.inf, log=True)
        grid_s, done = np.linspace(0.0, finish_s, CURVE_POINTS), np.zeros(CURVE_POINTS)
        per_token = float(self.counted.per_token(facts))
        for rows in logs:
            if self.counted.needed_only:
                rows[:, LOG_WORK : LOG_WORK + WORKS] = 0.0
            add_flops(rows, facts.layers, per_token, facts.layer_attended_width, grid_s, done)
        if self.counted.needed_only:
            done = self._needed(facts, load, done, arrays.first_token_s, grid_s)
        done *= self.counted.scale.get(service, 1.0)
        return Forecast(
            load=load,
            finish_s=finish_s,
            finished_s=arrays.finished_s,
            flops=float(done[-1]),
            _curve_flops=tuple(done.tolist()),
            _forecaster=self,
            _service=service,
            _plan=plan,
        )

    def _needed(
        self, facts: ModelFacts, load: Load, decoded: Floats, first_token_s: Floats, grid_s: Floats
    ) -> Floats:
        """Operations of every token once, by each time: `decoded`, and prompts when they are read.

        A token of a prompt sees the tokens before it. A request that has generated tokens has been
        read. What is decoded leaves out tokens that came of reading a prompt again: it grows as it
        does, to what all of them need.
        """
        per_token, width = self.counted.per_token(facts), 2 * facts.layer_attended_width
        prompt, first = load.prompt_tokens.astype(np.float64), np.maximum(load.generated_tokens, 1)
        count = load.output_tokens - first
        contexts = count * (prompt + (load.output_tokens - 1 + first) / 2)
        whole = facts.layers * float((per_token * count + width * contexts).sum())
        at_end = np.where(grid_s < grid_s[-1], 0.0, whole)
        decoded = decoded * (whole / decoded[-1]) if decoded[-1] else at_end
        is_new = load.generated_tokens == 0
        work = facts.layers * (per_token * prompt + width * prompt * (prompt - 1) / 2)[is_new]
        order = np.argsort(first_token_s[is_new], kind="stable")
        read = np.concatenate([[0.0], np.cumsum(work[order])])
        found: Floats = (
            decoded + read[np.searchsorted(first_token_s[is_new][order], grid_s, side="right")]
        )
        return found

    def run(
        self, service: ServiceId, plan: Plan, load: Load, until_s: float, *, log: bool
    ) -> tuple[RequestArrays, float, list[Floats]]:
        """Advance the groups of a plan to `until_s` from an empty, loaded state.

        Returns the requests, when the last group has stood still, and the log of each group.
        """
        arrays = new_arrays(
            load.prompt_tokens, load.output_tokens, load.generated_tokens, load.ready_s
        )
        arrays.key[:] = load.ready_s
        follows = np.zeros(len(load), np.bool_)
        follows[load.next[load.next != NO_CALL]] = True
        first_come = np.argsort(load.ready_s, kind="stable")
        heads = first_come[~follows[first_come]]
        logs: dict[int, list[Floats]] = {}
        compiled = _groups()
        compiled.reset(arrays)
        compiled.record = lambda number, _, rows: logs.setdefault(number, []).append(rows)
        rule = self._rule_of(service, plan.tensor_parallel, log=log)
        table = self.costs.table(service, plan.tensor_parallel)
        numbers = [compiled.reserve() for _ in range(min(plan.data_parallel, len(heads)))]
        for number in numbers:
            compiled.open(number, table, rule, 0.0)
        if follows.any():
            has_next = load.next != NO_CALL
            first_child = np.concatenate([[0], np.cumsum(has_next)])
            compiled.release_calls(
                first_child, load.next[has_next], follows.astype(np.int64), load.next, 0.0
            )
        compiled.add_coming(heads, np.resize(numbers, len(heads)))
        compiled.run(until_s)
        compiled.settle()
        compiled.write_down()
        finish_s = max((compiled.boundary_s(number)[0] for number in numbers), default=0.0)
        return arrays, finish_s, [np.concatenate(rows) for rows in logs.values()]

    def _rule_of(self, service: ServiceId, tensor_parallel: int, *, log: bool) -> Rule:
        key = service, tensor_parallel, log
        if key not in self._rules:
            if not self.rule.prompts_first:
                raise ValueError("rule.prompts_first is off, which is not supported in a forecast")
            self._rules[key] = continuous_rule(
                self.rule,
                capacity_blocks=self.costs.kv_blocks(service, tensor_parallel),
                block_tokens=self.costs.block_tokens(service),
                log_columns=BRIEF if log else 0,
            )
        return self._rules[key]
