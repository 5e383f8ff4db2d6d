"""Places services by execution stages: plan all stages once, then follow and adjust them.

The running phase of arXiv 2503.16893 sec. 4.3: services end in another order than planned.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np

from harness.costs.model import TableCosts
from harness.interface.decisions import ContinuousBatching, Deployment
from harness.interface.entities import GpuId, Group, GroupId, ServiceId
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import ClusterView
from harness.planning.estimate import Counted, Forecaster, edges_between, estimated_workloads
from harness.planning.gpu_assignment import assign
from harness.planning.plans import Plan, Stage
from harness.planning.preview import StagePreview
from harness.workloads.ecdf import Ecdf


@dataclass(slots=True)
class StageFollower:
    """Which services run under which plans now (sec. 4.3, dynamic scheduler).

    `stages` is the planned sequence, `position` the stage that is due. When a service ends, the
    next stage is due. A service whose last stage is over keeps its plan until it ends. Then come
    the pairs of the due stage, then what ran before if GPUs are left, then, where services
    of the due stage have ended early, pairs of later stages. Without `preemption` what runs comes
    first, under the plan it has.
    No stage is passed before each of its pairs runs or its service has ended.
    """

    stages: Sequence[Stage]
    gpus: int
    preemption: bool = True
    active: dict[ServiceId, Plan] = field(default_factory=dict)
    position: int = -1

    def next(self, unfinished: Set[ServiceId]) -> dict[ServiceId, Plan]:
        """Plans from now on, given the services that still have requests.

        Call at the start and whenever a service has ended.
        """
        self.active = {s: p for s, p in self.active.items() if s in unfinished}
        if self.position < 0 or self._is_settled(self.active, unfinished):
            self._pass_stage(unfinished)
        chosen = {s: p for s, p in self.active.items() if self._stays(s)}
        self._add(chosen, {s: p for s, p in self._due().items() if self.active.get(s) == p})
        self._add(chosen, {s: p for s, p in self._due().items() if s in unfinished})
        self._add(chosen, self.active)
        # Services that ended early leave GPUs which the due stage was to use: look further.
        while self._has_lost(unfinished) and self._is_settled(chosen, unfinished):
            if not self._pass_stage(unfinished):
                break
            self._add(chosen, {s: p for s, p in self._due().items() if s in unfinished})
        self.active = chosen
        return dict(chosen)

    def _due(self) -> Stage:
        return self.stages[self.position] if self.stages else {}

    def _pass_stage(self, unfinished: Set[ServiceId]) -> bool:
        """Make the next stage with an unfinished service the due one; False if there is none."""
        for i in range(self.position + 1, len(self.stages)):
            if any(service in unfinished for service in self.stages[i]):
                self.position = i
                return True
        return False

    def _is_settled(self, running: Mapping[ServiceId, Plan], unfinished: Set[ServiceId]) -> bool:
        """Every pair of the due stage runs, or its service has ended."""
        return all(running.get(s) == p for s, p in self._due().items() if s in unfinished)

    def _has_lost(self, unfinished: Set[ServiceId]) -> bool:
        """Some service of the due stage has ended already."""
        return any(service not in unfinished for service in self._due())

    def _stays(self, service: ServiceId) -> bool:
        return not self.preemption or self._last_stage(service) < self.position

    def _last_stage(self, service: ServiceId) -> int:
        return max((i for i, stage in enumerate(self.stages) if service in stage), default=-1)

    def _add(self, chosen: dict[ServiceId, Plan], pairs: Stage) -> None:
        """Add the pairs for which GPUs are left, in order."""
        for service, plan in pairs.items():
            used = sum(p.gpus for p in chosen.values())
            if service not in chosen and used + plan.gpus <= self.gpus:
                chosen[service] = plan


class StagePlanner(Protocol):
    """Chooses which services run together, under which plans, stage by stage (sec. 4.2)."""

    def plan(self, preview: StagePreview, gpus: int) -> list[Stage]:
        """Stages until every service of the preview has ended."""


class StagedPlacement:
    """Placement policy around a planner.

    The first call of `place` samples an output length for every request, plans, and starts the
    first stage; its wall-clock time is the planning time. Later calls follow the stages.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.REDEPLOY})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(
        self,
        *,
        planner: StagePlanner,
        planner_costs: TableCosts,
        lengths: Mapping[ServiceId, Ecdf],
        rule: ContinuousBatching,
        tensor_parallel: Sequence[int],
        keep_replicas: bool,
        preemption: bool,
        one_seed: bool,
        every_expert: bool,
        needed_only: bool,
        flops_scale: float,
        scaled_service: str,
        fed_goes_on: bool,
        seed: int,
    ) -> None:
        """`lengths` samples output lengths per service; `rule` is how the engine fills batches.

        A service whose plan changes is reloaded as a whole, or with `keep_replicas` only where
        it has no group of that size yet. Without `preemption` no service changes its plan. With
        `one_seed` every service draws the same random numbers, so that the lengths of the n-th
        request of all of them are long or short together. Which operations count is said in
        `Counted`, those of `scaled_service` `flops_scale` times; `fed_goes_on` in `StagePreview`.
        """
        self._planner = planner
        scale = {scaled_service: flops_scale}
        counted = Counted(every_expert=every_expert, needed_only=needed_only, scale=scale)
        self._forecaster = Forecaster(costs=planner_costs, rule=rule, counted=counted)
        self._fed_goes_on = fed_goes_on
        self._lengths = lengths
        self._degrees = tuple(tensor_parallel)
        self._seed, self._one_seed = seed, one_seed
        self._preemption = preemption
        self._keep_replicas = keep_replicas
        self._follower: StageFollower | None = None
        self._plans: dict[ServiceId, Plan] = {}
        self._placed = 0
        self.planned_s = 0.0

    def observe(self, event: Event) -> None:
        """Nothing to learn: `place` sees which services have ended."""

    def place(self, view: ClusterView) -> Deployment:
        """The next stage. ValueError if a service fits no plan."""
        gpus = len(view.cluster.gpus)
        if self._follower is None:
            preview = StagePreview(
                self._forecaster,
                estimated_workloads(view, self._lengths, self._generators()),
                gpus,
                self._degrees,
                edges_between(view),
                preemption=self._preemption,
                fed_goes_on=self._fed_goes_on,
            )
            stages = self._planner.plan(preview, gpus)
            self.planned_s = preview.passed_s
            self._follower = StageFollower(stages, gpus, self._preemption)
        unfinished = {s for s, left in view.backlog.items() if left or len(view.to_come(s))}
        return Deployment(self._groups(self._follower.next(unfinished), view))

    def _generators(self) -> dict[ServiceId, np.random.Generator]:
        """Random numbers for the lengths of every service."""
        shared = np.random.default_rng(self._seed)
        return {
            service: np.random.default_rng(self._seed) if self._one_seed else shared
            for service in self._lengths
        }

    def _groups(self, plans: dict[ServiceId, Plan], view: ClusterView) -> tuple[Group, ...]:
        """Groups for the plans: those kept as they are, new ones under a name of their own."""
        costs = self._forecaster.costs
        current = {
            (service, group.gpus): group
            for group in view.deployment.groups
            for service in group.services
            if self._keep_replicas or plans.get(service) == self._plans.get(service)
        }
        wanted = [(s, p.data_parallel, p.tensor_parallel) for s, p in plans.items()]
        known = [replace(group, id=GroupId(_name(*place))) for place, group in current.items()]
        self._plans = plans
        self._placed += 1
        found = []
        for group in assign(wanted, known, view.cluster, costs.load_s):
            (service,) = group.services
            new = replace(group, id=GroupId(f"{group.id}#{self._placed}"))
            found.append(current.get((service, group.gpus), new))
        return tuple(found)


def _name(service: ServiceId, gpus: tuple[GpuId, ...]) -> str:
    return f"{service}@{'-'.join(map(str, gpus))}"
