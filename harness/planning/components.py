"""Forecasts of one window in many placements, of which most parts are the same.

Groups that share a service, directly or through others, are a component of a placement. Requests of
one component never meet those of another, so that a component that has been forecast once is not
simulated again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.interface.entities import ServiceId
from harness.interface.load_order import LoadOrder, TurnOrder
from harness.interface.tables import Floats, Ints
from harness.planning.forecast import ForecastGroup, GroupForecaster, Window

Placement = tuple[ForecastGroup, ...]


@dataclass(slots=True, kw_only=True)
class ComponentForecaster:
    """Forecasts of placements of a window up to `until_s`, each component once.

    The component's groups are dispatched to in the order in which the placement has them.
    """

    forecaster: GroupForecaster
    window: Window
    dispatch: LoadOrder | TurnOrder
    until_s: float
    simulated: int = 0
    _windows: dict[frozenset[ServiceId], tuple[Ints, Window]] = field(default_factory=dict)
    _finished_s: dict[Placement, Floats] = field(default_factory=dict)

    def finished_s(self, placement: Sequence[ForecastGroup]) -> Floats:
        """When each request of the window is answered; NaN where it is not."""
        found = np.full(len(self.window), np.nan)
        for part in components(placement):
            rows, window = self._part_of_window(frozenset().union(*(g.services for g in part)))
            if part not in self._finished_s:
                self.simulated += len(rows)
                self._finished_s[part] = self.forecaster.forecast_placement(
                    part, window, self.dispatch, until_s=self.until_s
                )
            found[rows] = self._finished_s[part]
        return found

    def _part_of_window(self, services: frozenset[ServiceId]) -> tuple[Ints, Window]:
        """Requests of these services: their rows, and a window of them alone."""
        if services not in self._windows:
            table = self.window.table
            index = [i for i, service in enumerate(table.services) if service in services]
            mine = np.isin(table.service, index)
            part = Window(table.of(mine), self.window.output_tokens[mine])
            self._windows[services] = np.flatnonzero(mine), part
        return self._windows[services]


def components(placement: Sequence[ForecastGroup]) -> Iterator[Placement]:
    """The groups of a placement that share services, directly or through others.

    Groups without services are in none.
    """
    left = [at for at, group in enumerate(placement) if group.services]
    while left:
        part = [left.pop(0)]
        services = set(placement[part[0]].services)
        while more := [at for at in left if not services.isdisjoint(placement[at].services)]:
            part += more
            services.update(*(placement[at].services for at in more))
            left = [at for at in left if at not in more]
        yield tuple(placement[at] for at in sorted(part))
