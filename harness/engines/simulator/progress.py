"""Whether a run on the virtual clock still gets anywhere."""

from dataclasses import dataclass

import numpy as np

from harness.engines.ask import refuse_standstill
from harness.engines.lifecycle import Lifecycle
from harness.engines.simulator.arriving import Arrivals
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.timeline import Kind, Timeline


@dataclass(slots=True)
class Progress:
    """Counts the instants since something was computed, predicted or arrived.

    Only timers end then, and groups come and go.
    """

    lifecycle: Lifecycle
    timeline: Timeline
    arrivals: Arrivals
    compiled: CompiledGroups
    wakes: int = 0

    def check(self, next_s: float) -> None:
        """Before the clock is set to the next instant, to which compiled groups have run.

        Raises ValueError where nothing will ever happen again.
        """
        timeline = self.timeline
        if (
            self.compiled.is_working
            or self.arrivals.next_s < np.inf
            or timeline.has(Kind.BATCH_ENDS, Kind.ARRIVAL, Kind.PREDICTION)
        ):
            self.wakes = 0
        elif next_s == np.inf:
            refuse_standstill(self.lifecycle.remaining, wakes=None, now_s=next_s)
        else:
            self.wakes += 1
            refuse_standstill(self.lifecycle.remaining, wakes=self.wakes, now_s=next_s)
