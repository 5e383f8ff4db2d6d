"""What any plan would make of the unfinished services, moved from one execution stage to the next.

Duration and throughput of a stage are those of arXiv 2503.16893 sec. 3; services that feed each
other are forecast in the order of their edges (sec. 4.1, model-level pipeline parallelism).
"""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from harness.costs.model_facts import model_facts
from harness.interface.entities import ServiceId
from harness.interface.tables import Floats, Ints
from harness.planning.estimate import Forecast, Forecaster
from harness.planning.plans import Load, Plan, Stage

# The services that feed one with answers, under their plans.
Feeds = tuple[tuple[ServiceId, Plan], ...]


@dataclass(slots=True)
class _Outstanding:
    """One service: its plan, and forecasts by plan and what feeds it.

    Beside a forecast stands when its time 0 is, from the start of the stage.
    """

    load: Load
    running: Plan | None = None
    forecasts: dict[tuple[Plan, Feeds], tuple[Forecast, float]] = field(default_factory=dict)


class StagePreview:
    """Unfinished services and what any plan would make of them, from the start of the stage.

    `passed_s` adds up the stages passed.

    A service that keeps its plan goes on as forecast; any other plan loads first and recomputes.
    One that waits for answers of others is forecast beside their plans in the same stage, from the
    times at which these answers would be there; with the same plan it is forecast again in each
    stage, from what it has left, or with `fed_goes_on` goes on as forecast while the services that
    feed it keep theirs. The paper says neither.

    Without `preemption` a service that has begun keeps its plan until it ends: `held` (sec. 5.5).
    """

    def __init__(
        self,
        forecaster: Forecaster,
        loads: Mapping[ServiceId, Load],
        gpus: int,
        tensor_parallel: tuple[int, ...],
        edges: Ints | None = None,
        *,
        preemption: bool = True,
        fed_goes_on: bool = False,
    ) -> None:
        """Nothing runs. `tensor_parallel` lists the degrees that plans may use.

        `edges` has a row (id, id of one that waits for it) for each pair of requests of different
        services; None where no request waits. Raises ValueError for a degree below 1.
        """
        if not tensor_parallel or min(tensor_parallel) < 1:
            raise ValueError(f"tensor_parallel={list(tensor_parallel)} must list degrees from 1 up")
        self._forecaster = forecaster
        self._gpus = gpus
        self._degrees = tensor_parallel
        self._edges = np.zeros((0, 2), np.int64) if edges is None else edges
        self._left = {service: _Outstanding(load) for service, load in loads.items() if len(load)}
        self._plans: dict[ServiceId, list[Plan]] = {}
        self._feeds = self._find_feeds()
        self._preemption = preemption
        self._fed_goes_on = fed_goes_on
        self.passed_s = 0.0

    def _find_feeds(self) -> dict[ServiceId, dict[ServiceId, tuple[Ints, Ints]]]:
        """For each service those it waits for, with (its row, their row) of each such pair."""
        feeds: dict[ServiceId, dict[ServiceId, tuple[Ints, Ints]]] = {}
        for service, left in self._left.items():
            feeds[service] = {}
            waits, row = _rows(left.load.id, self._edges[:, 1])
            for other, theirs in self._left.items():
                feeding, their_row = _rows(theirs.load.id, self._edges[:, 0])
                both = waits & feeding
                if both.any() and other != service:
                    feeds[service][other] = (row[both], their_row[both])
        return feeds

    def copy(self) -> "StagePreview":
        """An equal one that may go another way; forecasts already made are shared."""
        twin = copy(self)
        twin._left = {service: replace(left) for service, left in self._left.items()}
        return twin

    @property
    def unfinished(self) -> tuple[ServiceId, ...]:
        """Services with requests left."""
        return tuple(self._left)

    def startable(self, beside: Iterable[ServiceId]) -> tuple[ServiceId, ...]:
        """Unfinished services all of whose inputs are there or come from `beside` (sec. 3)."""
        sources = set(beside)
        return tuple(s for s in self._left if self._feeds[s].keys() <= sources)

    def running(self, service: ServiceId) -> Plan | None:
        """The plan it ran under in the stage before."""
        return self._left[service].running

    @property
    def held(self) -> dict[ServiceId, Plan]:
        """Services whose plan may not change, part of every further stage until they end."""
        if self._preemption:
            return {}
        return {s: left.running for s, left in self._left.items() if left.running is not None}

    def plans(self, service: ServiceId) -> list[Plan]:
        """Valid plans (sec. 3): weights and KV of one longest sequence fit, there are the GPUs.

        ValueError if there is none.
        """
        if service not in self._plans:
            self._plans[service] = self._valid_plans(service)
        return self._plans[service]

    def _valid_plans(self, service: ServiceId) -> list[Plan]:
        longest = model_facts(service).max_context_tokens
        costs = self._forecaster.costs
        found = [
            Plan(dp, tp)
            for tp in self._degrees
            if tp <= self._gpus
            and costs.kv_blocks(service, tp) * costs.block_tokens(service) >= longest
            for dp in range(1, self._gpus // tp + 1)
        ]
        if not found:
            degrees = list(self._degrees)
            raise ValueError(
                f"{service} fits no plan: {self._gpus} GPUs, tensor parallel {degrees}"
            )
        return found

    def finish_s(self, service: ServiceId, plan: Plan, beside: Stage) -> float:
        """When it would have answered everything, loading included, beside the rest of a stage."""
        forecast, begins_s = self._forecast(service, plan, beside)
        return begins_s + forecast.finish_s

    def flops_by(self, service: ServiceId, plan: Plan, beside: Stage, time_s: float) -> float:
        """Operations it would have done by then, from the start of the stage."""
        forecast, begins_s = self._forecast(service, plan, beside)
        before = forecast.flops_by(-begins_s) if begins_s < 0 else 0.0
        return forecast.flops_by(time_s - begins_s) - before

    def duration_s(self, stage: Stage) -> float:
        """Until the first service of the stage has ended (t_E of sec. 3)."""
        return min(self.finish_s(service, plan, stage) for service, plan in stage.items())

    def throughput(self, stage: Stage) -> float:
        """Operations per second over the stage (T_E of sec. 3); 0 for an empty one."""
        if not stage:
            return 0.0
        duration_s = self.duration_s(stage)
        return sum(self.flops_by(s, p, stage, duration_s) for s, p in stage.items()) / duration_s

    def pass_stage(self, stage: Stage) -> float:
        """Move to the end of a stage; returns its duration in seconds."""
        duration_s = self.duration_s(stage)
        self.passed_s += duration_s
        after: dict[ServiceId, _Outstanding] = {}
        going_on: dict[ServiceId, tuple[Plan, Forecast, float]] = {}
        for service, left in self._left.items():
            plan = stage.get(service)
            if plan is None:
                # What was forecast still holds where it neither ran nor waits for one that did.
                holds = left.running is None and not self._feeds[service]
                after[service] = left if holds else _Outstanding(left.load)
                continue
            forecast, begins_s = self._forecast(service, plan, stage)
            if begins_s + forecast.finish_s <= duration_s:
                continue
            after[service] = _Outstanding(forecast.load_after(duration_s - begins_s), plan)
            if self._fed_goes_on or not self._feeds[service]:
                going_on[service] = plan, forecast, begins_s - duration_s
        self._left = after
        self._feeds = self._find_feeds()
        for service, (plan, forecast, begun_s) in going_on.items():
            key = plan, self._feeding(service, stage)
            after[service].forecasts[key] = forecast, begun_s
        return duration_s

    def _forecast(self, service: ServiceId, plan: Plan, beside: Stage) -> tuple[Forecast, float]:
        """A forecast and when, from the start of the stage, its time 0 is.

        ValueError where an input would never come.
        """
        left, feeds = self._left[service], self._feeds[service]
        if feeds and (missing := feeds.keys() - beside.keys()):
            raise ValueError(f"{service} waits for {min(missing)}, which the stage does not run")
        key = (plan, self._feeding(service, beside) if feeds else ())
        if key not in left.forecasts:
            begins_s = 0.0
            if plan != left.running:  # all its replicas start at the same time
                size, replicas = plan.tensor_parallel, plan.data_parallel
                begins_s = self._forecaster.costs.load_s(service, size, replicas=replicas)
            load = left.load
            if feeds:
                ready_s = self._inputs_s(service, beside) - begins_s
                load = replace(load, ready_s=ready_s.clip(0.0))
            facts = model_facts(service)
            forecast = self._forecaster.forecast(service, facts, plan, load)
            left.forecasts[key] = forecast, begins_s
        return left.forecasts[key]

    def _feeding(self, service: ServiceId, beside: Stage) -> Feeds:
        """Everything a service depends on, directly or not, under its plan."""
        found: dict[ServiceId, Plan] = {}
        for other in self._feeds[service]:
            found[other] = beside[other]
            found.update(self._feeding(other, beside))
        return tuple(sorted(found.items(), key=lambda pair: pair[0]))

    def _inputs_s(self, service: ServiceId, beside: Stage) -> Floats:
        """When, from the start of the stage, each request has all its inputs."""
        inputs_s = np.zeros(len(self._left[service].load))
        for other, (row, their_row) in self._feeds[service].items():
            forecast, begins_s = self._forecast(other, beside[other], beside)
            answered = _rows(forecast.load.id, self._left[other].load.id[their_row])[1]
            np.maximum.at(inputs_s, row, begins_s + forecast.finished_s[answered])
        return inputs_s


def _rows(ids: Ints, wanted: Ints) -> tuple[NDArray[np.bool_], Ints]:
    """Whether each wanted id is among the ids (ascending), and at which row."""
    row = np.searchsorted(ids, wanted).clip(0, max(0, len(ids) - 1))
    found = ids[row] == wanted if len(ids) else np.zeros(len(wanted), np.bool_)
    return found, row
