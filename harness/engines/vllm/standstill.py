"""Whether a run on the wall clock still gets anywhere."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.engines.ask import refuse_standstill
from harness.engines.vllm.client import Client
from harness.engines.vllm.groups import Groups
from harness.engines.vllm.outside import Outside
from harness.engines.vllm.predictions import Predictions
from harness.interface.entities import ServiceId


@dataclass(slots=True, kw_only=True)
class StandstillCheck:
    """Counts the timers of a placement that have ended since something was under way.

    A run that has a horizon may wait for it.
    """

    client: Client
    groups: Groups
    predictions: Predictions
    units: Outside | None
    remaining: Mapping[ServiceId, int]
    clock: Callable[[], float]
    horizon_s: float | None
    wakes: int = 0

    def check(self, *, has_timer: bool) -> None:
        """A timer has ended, or there is none. ValueError where no group serves what is left."""
        waits = not self.client.is_through or self.predictions.are_awaited
        waits |= self.units is not None and self.units.is_working
        if waits or self.groups.have_work or self.horizon_s is not None:
            self.wakes = 0
        elif has_timer:
            self.wakes += 1
            refuse_standstill(self.remaining, wakes=self.wakes, now_s=self.clock())
        elif not self.groups.come_and_go:
            refuse_standstill(self.remaining, wakes=None, now_s=self.clock())
