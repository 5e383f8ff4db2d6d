"""Follows a list of execution stages while the services end in another order than planned."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from harness.interface.entities import ServiceId
from harness.planning.forecast import Plan

Stage = Mapping[ServiceId, Plan]


@dataclass(slots=True)
class StageFollower:
    """Which services run under which plans now.

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
