"""Starts the engines of a run's groups, in this process or one each, and keeps those asked to."""

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.engines.told_keys import Heard
from harness.engines.vllm.group import EngineSettings, VllmGroup, new_engines
from harness.engines.vllm.groups import GroupHandle
from harness.engines.vllm.options import VllmOptions
from harness.engines.vllm.processor import has_gpus
from harness.engines.vllm.ray import RayGroup
from harness.interface.entities import Group, Service, ServiceId
from harness.interface.policies import SchedulingPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoader:
    """Starts groups that decide by one policy; times are of `clock`, in seconds.

    `heard` counts what the policy object here has observed, for the groups of this process.
    """

    options: VllmOptions
    policy: SchedulingPolicy
    services: dict[ServiceId, Service]
    clock: Callable[[], float]
    keeps_answers: bool
    heard: Heard = field(default_factory=Heard)

    def start(self, group: Group) -> GroupHandle:
        """Start a group's engines, or take some that are loaded."""
        services, settings = self._wanted(group)
        if self.options.ray:
            return RayGroup.start(
                settings,
                group=group,
                services=services,
                policy=self.policy,
                keep_answers=self.keeps_answers,
                on_gpus=has_gpus(),
            )
        served = self.options.loaded.pop(settings, None)
        if served is None:
            served = VllmGroup(new_engines(settings), self.keeps_answers, settings)
        served.keep_answers = self.keeps_answers
        served.use(self.policy, group=group, services=services, clock=self.clock, heard=self.heard)
        return served

    def change(self, served: RayGroup, group: Group) -> None:
        """Start to load what a process lacks of another group on the same GPUs."""
        services, settings = self._wanted(group)
        served.change(settings, group=group, services=services)

    def _wanted(self, group: Group) -> tuple[list[Service], tuple[EngineSettings, ...]]:
        services = [self.services[name] for name in sorted(group.services)]
        return services, self.options.settings(services, group)

    def keep(self, group: GroupHandle) -> bool:
        """Whether a group stays loaded: idle ones of this process if asked to, one of a kind."""
        if not self.options.keep_loaded or not isinstance(group, VllmGroup) or group.has_work:
            return False
        return self.options.loaded.setdefault(group.settings, group) is group
