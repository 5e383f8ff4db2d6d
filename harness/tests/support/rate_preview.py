"""What planners plan with, made up: work done at fixed rates."""

from collections.abc import Iterable, Mapping
from typing import cast

from harness.interface.entities import ServiceId
from harness.planning.plans import Plan, Stage
from harness.planning.preview import StagePreview


class RatePreview:
    """Stands in for a `StagePreview` in tests of planners: no loads, work is done at fixed rates.

    `rates` gives, per service, the plans it may use and what each does per second.
    """

    def __init__(
        self,
        work: Mapping[str, float],
        rates: Mapping[str, Mapping[Plan, float]],
        *,
        preemption: bool = True,
    ) -> None:
        self._left = {ServiceId(service): amount for service, amount in work.items()}
        self._rates = {ServiceId(service): dict(plans) for service, plans in rates.items()}
        self._preemption = preemption
        self._running: dict[ServiceId, Plan] = {}
        self.passed_s = 0.0

    @property
    def unfinished(self) -> tuple[ServiceId, ...]:
        """Services with work left."""
        return tuple(self._left)

    def startable(self, beside: Iterable[ServiceId]) -> tuple[ServiceId, ...]:
        """All: no request waits for another."""
        return tuple(self._left)

    @property
    def held(self) -> dict[ServiceId, Plan]:
        """Plans that may not change."""
        return {} if self._preemption else dict(self._running)

    def plans(self, service: ServiceId) -> list[Plan]:
        """All those with a rate."""
        return list(self._rates[service])

    def finish_s(self, service: ServiceId, plan: Plan, beside: Stage) -> float:
        """What is left over the rate."""
        return self._left[service] / self._rates[service][plan]

    def throughput(self, stage: Stage) -> float:
        """The sum of the rates."""
        return sum(self._rates[service][plan] for service, plan in stage.items())

    def pass_stage(self, stage: Stage) -> float:
        """Until the first service has ended."""
        duration_s = min(self.finish_s(service, plan, stage) for service, plan in stage.items())
        self.passed_s += duration_s
        ended = [s for s, p in stage.items() if self.finish_s(s, p, stage) <= duration_s]
        for service, plan in stage.items():
            self._left[service] -= duration_s * self._rates[service][plan]
        for service in ended:
            del self._left[service]
        self._running = {s: p for s, p in stage.items() if s in self._left}
        return duration_s


def rate_preview(
    work: Mapping[str, float],
    rates: Mapping[str, Mapping[Plan, float]],
    *,
    preemption: bool = True,
) -> StagePreview:
    """A `RatePreview` where a `StagePreview` is asked for."""
    return cast(StagePreview, RatePreview(work, rates, preemption=preemption))
