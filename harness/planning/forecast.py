"""What a group would make of requests that have come: asked many thousand times in a search.

Nothing here is a second simulator: the group is the same compiled replica that the engine runs,
without the engine's loop around it.
"""

from dataclasses import dataclass, field

import numpy as np

from harness.costs.model import TableCosts
from harness.engines.simulator.fast.arrays import ReplicaRule
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.simulator.fast.rules import order_rule
from harness.engines.simulator.fast.told_keys import tell_keys
from harness.engines.state import RequestArrays, new_arrays, request_table
from harness.interface.decisions import PriorityOrder
from harness.interface.entities import ServiceId
from harness.interface.tables import Floats, Ints, RequestTable


@dataclass(frozen=True, slots=True)
class Window:
    """Requests of one service and the lengths of their answers: known, predicted or sampled.

    Of `table` what is known at arrival counts, predictions included, and not what has been
    generated since. Raises ValueError where rows are not in order of arrival, or an answer is
    empty.
    """

    table: RequestTable
    output_tokens: Ints

    def __post_init__(self) -> None:
        """Refuse rows that no group could serve."""
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
        """Number of requests."""
        return len(self.table.id)


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """When each request of a window would have its first token and its answer; NaN: not by then."""

    window: Window
    first_token_s: Floats
    finished_s: Floats

    @property
    def unfinished(self) -> int:
        """Requests not answered."""
        return int(np.isnan(self.finished_s).sum())

    @property
    def normalized_s(self) -> Floats:
        """Seconds from arrival to answer per output token; NaN for who is not answered."""
        return (self.finished_s - self.window.table.arrival_s) / self.window.output_tokens


@dataclass(slots=True, kw_only=True)
class GroupForecaster:
    """Forecasts of groups of one service each under a priority order.

    A static batch has at most `max_num_batched_tokens`, as in the engine.
    """

    costs: TableCosts
    order: PriorityOrder
    max_num_batched_tokens: int
    _rules: dict[tuple[ServiceId, int], ReplicaRule] = field(default_factory=dict)

    def forecast(
        self,
        service: ServiceId,
        tensor_parallel: int,
        window: Window,
        *,
        ready_s: float = 0.0,
        until_s: float = np.inf,
    ) -> GroupForecast:
        """Serve a window in one group that has loaded at `ready_s`, up to `until_s`.

        All predictions are there at arrival. Raises ValueError where a request, named by its row,
        never fits.
        """
        generated = np.zeros(len(window), np.int64)
        # Compiled code wants arrays of its own: a policy's may be read-only, or every other row.
        own = window.table.prompt_tokens.copy(), window.output_tokens.copy()
        arrays = new_arrays(*own, generated, window.table.arrival_s)
        table = self.costs.table(service, tensor_parallel)
        rule = self._rule(service, tensor_parallel)
        replica = ReplicaState.empty(table, rule, arrays, ready_s)
        pieces: dict[int, Floats] = {}
        replica.tell_keys = lambda rows: tell_keys(
            replica, self.order, rows, _known(window, arrays, rows), pieces
        )
        every = np.arange(len(window))
        replica.tell_keys(every)
        replica.add(every, ready_s)
        replica.run_to(until_s)
        return GroupForecast(window, arrays.first_token_s, arrays.finished_s)

    def _rule(self, service: ServiceId, tensor_parallel: int) -> ReplicaRule:
        key = service, tensor_parallel
        if key not in self._rules:
            blocks = self.costs.kv_blocks(service, tensor_parallel)
            if blocks <= 0:
                raise ValueError(f"{service} does not fit {tensor_parallel} GPUs")
            self._rules[key] = order_rule(
                self.order,
                capacity_blocks=blocks,
                block_tokens=self.costs.block_tokens(service),
                log_columns=0,
                max_tokens=self.max_num_batched_tokens,
                decide_s=0.0,
            )
        return self._rules[key]


def _known(window: Window, arrays: RequestArrays, rows: Ints) -> RequestTable:
    """What a policy may see of these requests where the group is now."""
    of_all = window.table
    return request_table(
        arrays,
        rows,
        ids=of_all.id[rows],
        max_output_tokens=of_all.max_output_tokens[rows],
        deadline_s=of_all.deadline_s[rows],
        predicted_mean_tokens=of_all.predicted_mean_tokens[rows],
        service=of_all.service[rows],
        services=of_all.services,
    )
