"""What groups would make of requests that have come: asked many thousand times in a search.

Nothing here is a second simulator: groups are the same compiled groups that the engine runs,
without the engine's loop around them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from harness.costs.iteration import IterationTable
from harness.costs.model import TableCosts
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.kernel.layout import Rule
from harness.engines.simulator.kernel.world import BY_LOAD, BY_TOKENS, HOMES, HOW, IN_TURN, TURN
from harness.engines.simulator.rules import (
    group_kv,
    open_group,
    order_rule,
    refuse_unfit,
    tell_keys,
)
from harness.engines.state import RequestArrays, new_arrays, request_table
from harness.interface.decisions import PriorityOrder, wrong_by_phase
from harness.interface.entities import ServiceId
from harness.interface.load_order import LoadOrder, TurnOrder
from harness.interface.tables import Floats, Ints, RequestTable


@dataclass(frozen=True, slots=True)
class Window:
    """Requests and the lengths of their answers: known, predicted or sampled.

    Of `table` what is known at arrival counts, predictions included, and not what has been
    generated since. Raises ValueError where rows are not in order of arrival, or an answer is
    empty.
    """

    table: RequestTable
    output_tokens: Ints

    def __post_init__(self) -> None:
        count, arrival_s = len(self.table.id), self.table.arrival_s
        if len(self.output_tokens) != count:
            raise ValueError(f"{len(self.output_tokens)} answers of {count} requests")
        if (late := arrival_s[1:] < arrival_s[:-1]).any():
            row = int(np.argmax(late)) + 1
            raise ValueError(f"r{self.table.id[row]} arrives before the request ahead of it")
        if (empty := self.output_tokens < 1).any():
            row = int(np.argmax(empty))
            raise ValueError(f"r{self.table.id[row]} has {self.output_tokens[row]} output tokens")

    def __len__(self) -> int:
        return len(self.table.id)


def observed_window(table: RequestTable, output_tokens: Ints) -> Window:
    """Requests of a run, in order of arrival, as if none had begun; the first comes at 0."""
    count = len(table.id)
    nothing, unknown = np.zeros(count, np.int64), np.full(count, np.nan)
    found = replace(
        table,
        id=np.arange(count),
        arrival_s=table.arrival_s - table.arrival_s[:1],
        generated_tokens=nothing,
        kv_tokens=nothing,
        gpu_s=np.zeros(count),
        deadline_s=unknown,
        predicted_mean_tokens=unknown,
    )
    return Window(found, output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastGroup:
    """A group of a placement: its services, its GPUs, and when it has loaded."""

    services: frozenset[ServiceId]
    tensor_parallel: int = 1
    ready_s: float = 0.0


class _Costs(NamedTuple):
    """What compiled code needs of groups of the same services and GPUs."""

    rule: Rule
    tables: dict[ServiceId, IterationTable]
    block_bytes: dict[ServiceId, int]


@dataclass(slots=True, kw_only=True)
class GroupForecaster:
    """Forecasts of groups that follow one priority order.

    All predictions are known at arrival. A static batch has at most `max_num_batched_tokens`, as in
    the engine. Raises ValueError for an order that a group cannot follow.
    """

    costs: TableCosts
    order: PriorityOrder
    max_num_batched_tokens: int
    _known_costs: dict[tuple[frozenset[ServiceId], int], _Costs] = field(default_factory=dict)
    _groups: CompiledGroups | None = None

    def forecast_placement(
        self,
        groups: Sequence[ForecastGroup],
        window: Window,
        dispatch: LoadOrder | TurnOrder,
        *,
        until_s: float = np.inf,
    ) -> Floats:
        """When a placement answers each request of a window; NaN where not by `until_s`.

        Requests are dispatched at arrival among all groups of their service, loaded or not; those
        of a service without a group stay unfinished. Raises ValueError where the services of a
        group do not fit its GPUs, or a request, named by its row, never fits.
        """
        table, every = window.table, np.arange(len(window))
        placed = frozenset[ServiceId]().union(*(group.services for group in groups))
        services = *table.services, *sorted(placed.difference(table.services))
        nothing = np.zeros_like(every)
        arrays = new_arrays(
            table.prompt_tokens, window.output_tokens, nothing, table.arrival_s, table.service
        )
        compiled = self._reset(arrays, len(services))
        numbers = [self._open(compiled, at, group, services) for at, group in enumerate(groups)]
        known = _known(window, arrays, every)
        if isinstance(dispatch, LoadOrder):
            arrays.weight[:] = dispatch.weights(known)
        if len(every) and numbers:
            tell_keys(compiled, numbers, self.order, every, known)
        compiled.tell_keys = lambda number, rows: tell_keys(
            compiled, [number], self.order, rows, _known(window, arrays, rows)
        )
        facts = compiled.world.services
        facts[:, HOW], facts[:, TURN], facts[:, HOMES] = _how(dispatch), 0, 0
        for index, service in enumerate(services):
            homes = [n for n, g in zip(numbers, groups, strict=True) if service in g.services]
            facts[index, HOMES] = len(homes)
            compiled.set_homes(index, homes)
        compiled.add_coming(every[facts[table.service, HOMES] > 0])
        compiled.run(until_s)
        return arrays.finished_s

    def _reset(self, arrays: RequestArrays, services: int) -> CompiledGroups:
        """Groups of another run, in the same memory if that has room for as many services."""
        if self._groups is None or services > self._groups.services:
            self._groups = CompiledGroups(arrays, services)
        self._groups.reset(arrays)
        return self._groups

    def _open(
        self,
        compiled: CompiledGroups,
        at: int,
        group: ForecastGroup,
        services: tuple[ServiceId, ...],
    ) -> int:
        """Open a group, the one at this place of the placement; returns its number."""
        key = group.services, group.tensor_parallel
        if key not in self._known_costs:
            self._known_costs[key] = self._costs_of(f"group {at}", *key)
        of, number = self._known_costs[key], compiled.reserve()
        open_group(
            compiled,
            number,
            self.order,
            of.rule,
            of.tables,
            of.block_bytes,
            services={service: services.index(service) for service in group.services},
            ready_s=group.ready_s,
        )
        return number

    def _costs_of(self, group: str, services: frozenset[ServiceId], tensor_parallel: int) -> _Costs:
        if not services:
            raise ValueError(f"{group} has no services")
        refuse_unfit(self.costs, services, tensor_parallel)
        for sentence in wrong_by_phase(self.order, services, group):
            raise ValueError(sentence)
        if self.order.swaps:
            field = "gives_way" if self.order.displaces is None else "displaces"
            raise ValueError(f"{field}=swap in {group}: a forecast has no host memory")
        rule = order_rule(
            self.order,
            self.costs,
            services,
            tensor_parallel,
            log_columns=0,
            max_tokens=self.max_num_batched_tokens,
            decide_s=0.0,
        )
        kv = group_kv(self.costs, services, tensor_parallel)
        return _Costs(
            rule,
            {service: self.costs.table(service, tensor_parallel) for service in sorted(services)},
            {service: kv.block_bytes(service) for service in services},
        )


def _how(dispatch: LoadOrder | TurnOrder) -> int:
    """A dispatch order in the number that compiled code follows."""
    if isinstance(dispatch, TurnOrder):
        return IN_TURN
    return BY_TOKENS if dispatch.adds_generated else BY_LOAD


def _known(window: Window, arrays: RequestArrays, rows: Ints) -> RequestTable:
    """What a policy may see of these requests where the group is now."""
    return request_table(arrays, rows, window.table.of(rows))
