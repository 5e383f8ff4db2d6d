"""Forecasts of groups that serve one request at a time: simpler than what engines do, and faster.

A placement takes one pass over the requests, so that nothing needs to be kept between placements.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.costs.model import TableCosts
from harness.engines.simulator.kernel.serial import serve_one_at_a_time, set_alone_s
from harness.interface.entities import ServiceId
from harness.interface.tables import Floats
from harness.planning.forecast import ForecastGroup, Window


@dataclass(slots=True, kw_only=True)
class SerialForecaster:
    """Forecasts of placements of a window, first come first served, without the late requests.

    A request takes what it takes alone on the GPUs of the group. It is dropped where its answer
    would come more than `limit_s` after it, a number for each request.
    """

    costs: TableCosts
    window: Window
    limit_s: Floats
    until_s: float
    _alone_s: dict[int, Floats] = field(default_factory=dict)
    _known: set[tuple[ServiceId, int]] = field(default_factory=set)

    def finished_s(self, placement: Sequence[ForecastGroup]) -> Floats:
        """When each request of the window is answered; NaN where it is dropped or has no group."""
        table, finished_s = self.window.table, np.full(len(self.window), np.nan)
        groups = [group for group in placement if group.services]
        if not groups:
            return finished_s
        for group in groups:
            for service in sorted(group.services):
                self._add(service, group.tensor_parallel)
        degrees = sorted({group.tensor_parallel for group in groups})
        serve_one_at_a_time(
            table.arrival_s,
            table.service,
            self.limit_s,
            np.stack([self._alone_s[degree] for degree in degrees]),
            np.array([degrees.index(group.tensor_parallel) for group in groups]),
            np.array([[name in group.services for group in groups] for name in table.services]),
            np.array([group.ready_s for group in groups]),
            finished_s,
        )
        return finished_s

    def _add(self, service: ServiceId, degree: int) -> None:
        """Add the seconds of a service's requests on so many GPUs to `_alone_s`."""
        table = self.window.table
        if degree not in self._alone_s:
            self._alone_s[degree] = np.full(len(self.window), np.nan)
        if (service, degree) in self._known or service not in table.services:
            return
        self._known.add((service, degree))
        set_alone_s(
            self.costs.table(service, degree),
            np.flatnonzero(table.service == table.services.index(service)),
            table.prompt_tokens,
            self.window.output_tokens,
            self._alone_s[degree],
        )
