"""How long a service would take on given GPUs: the simulator core, asked by planners.

Nothing here is a second simulator: groups are the same compiled replicas that the engine runs.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness.costs.model import TableCosts
from harness.costs.models import ModelFacts
from harness.engines.simulator.fast.arrays import CLOCK, LOGGED
from harness.engines.simulator.fast.replica import ReplicaState, replica_rule
from harness.engines.state import LOG_COLUMNS, RequestArrays, new_arrays
from harness.interface.decisions import ContinuousBatching
from harness.interface.entities import ServiceId
from harness.interface.graph import NOBODY

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CURVE_POINTS = 65
_COLUMN = {name: i for i, name in enumerate(LOG_COLUMNS)}


@dataclass(frozen=True, slots=True)
class Plan:
    """How a service is spread: `data_parallel` groups of `tensor_parallel` GPUs."""

    data_parallel: int
    tensor_parallel: int

    @property
    def gpus(self) -> int:
        """GPUs it needs."""
        return self.data_parallel * self.tensor_parallel


@dataclass(frozen=True, slots=True)
class Load:
    """Unfinished requests of one service as a planner believes them; one entry each.

    `id` ascends; `output_tokens` is what a request will have produced in the end. `ready_s` is when
    it can begin. `next` is the row of the request that follows it in its group once it is
    answered, or NOBODY; the `ready_s` of followers does not count.
    """

    id: Ints
    prompt_tokens: Ints
    generated_tokens: Ints
    output_tokens: Ints
    ready_s: Floats
    next: Ints

    def __len__(self) -> int:
        """Number of requests."""
        return len(self.prompt_tokens)

    def rest(self, unfinished: NDArray[np.bool_], generated_tokens: Ints) -> "Load":
        """Those still unfinished, having generated so much (one entry per row of this load)."""
        rows = np.flatnonzero(unfinished)
        place = np.full(len(self) + 1, NOBODY)
        place[rows] = np.arange(len(rows))
        return Load(
            self.id[rows],
            self.prompt_tokens[rows],
            generated_tokens[rows],
            self.output_tokens[rows],
            np.zeros(len(rows)),
            place[self.next[rows]],
        )


def ready_load(prompt_tokens: Ints, generated_tokens: Ints, output_tokens: Ints) -> Load:
    """Requests that all can begin at once and wait for nobody; ids count from 0."""
    count = len(prompt_tokens)
    return Load(
        np.arange(count),
        prompt_tokens,
        generated_tokens,
        output_tokens,
        np.zeros(count),
        np.full(count, NOBODY),
    )


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
        arrays, _ = self._forecaster.run(self._service, self._plan, self.load, time_s, log=False)
        return self.load.rest(np.isnan(arrays.finished_s), arrays.generated)


@dataclass(frozen=True, kw_only=True)
class Forecaster:
    """Forecasts by costs and batch rule."""

    costs: TableCosts
    rule: ContinuousBatching

    def forecast(self, service: ServiceId, facts: ModelFacts, plan: Plan, load: Load) -> Forecast:
        """Serve the load to its end, requests dealt to the groups in turn."""
        arrays, replicas = self.run(service, plan, load, np.inf, log=True)
        finish_s = max((replica.arrays.time_s[CLOCK] for replica in replicas), default=0.0)
        grid_s = np.linspace(0.0, finish_s, CURVE_POINTS)
        done = sum(
            (_flops_at(facts, replica, grid_s) for replica in replicas), np.zeros(CURVE_POINTS)
        )
        return Forecast(
            load,
            float(finish_s),
            arrays.finished_s,
            float(done[-1]),
            tuple(done.tolist()),
            self,
            service,
            plan,
        )

    def run(
        self, service: ServiceId, plan: Plan, load: Load, until_s: float, *, log: bool
    ) -> tuple[RequestArrays, list[ReplicaState]]:
        """Advance one replica per group to `until_s` from an empty, loaded state."""
        arrays = new_arrays(
            load.prompt_tokens, load.output_tokens, load.generated_tokens, load.ready_s
        )
        arrays.next[:] = load.next
        arrays.key[:] = load.ready_s
        follows = np.zeros(len(load), np.bool_)
        follows[load.next[load.next != NOBODY]] = True
        first_come = np.argsort(load.ready_s, kind="stable")
        heads = first_come[~follows[first_come]]
        table = self.costs.table(service, plan.tensor_parallel)
        rule = replica_rule(
            self.rule,
            capacity_blocks=self.costs.kv_blocks(service, plan.tensor_parallel),
            block_tokens=self.costs.block_tokens(service),
            log=log,
        )
        replicas = []
        for first in range(min(plan.data_parallel, len(heads))):
            ids = heads[first :: plan.data_parallel]
            replica = ReplicaState.empty(
                table, rule, arrays, 0.0, log_rows=4 * len(ids) + 64 if log else 0
            )
            replica.add(ids, 0.0)
            replica.run_to(until_s)
            replicas.append(replica)
        return arrays, replicas


def _flops_at(facts: ModelFacts, replica: ReplicaState, grid_s: Floats) -> Floats:
    """Operations a replica has done by each time of the grid, linear within a run of iterations."""
    rows = replica.arrays.log[: replica.arrays.counts[LOGGED]].T
    start_s, duration_s, n = rows[0], rows[1], rows[2]
    batch, context = rows[_COLUMN["decode_requests"]], rows[_COLUMN["context_tokens"]]
    matmul = rows[_COLUMN["prefill_padded_tokens"]] + batch * n
    attention = rows[_COLUMN["prefill_attended"]] + n * context + batch * n * (n - 1) / 2
    work = facts.layers * (
        facts.layer_matmul_parameters * matmul + 2 * facts.hidden_size * attention
    )
    ends_s, done = np.append(0.0, start_s + duration_s), np.append(0.0, np.cumsum(work))
    return np.asarray(np.interp(grid_s, ends_s, done))
