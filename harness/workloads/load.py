"""Arrivals at a fraction of what a machine can serve: loads that mean the same in every setting."""

from collections.abc import Callable, Mapping
from typing import Any

from harness.config import inputs
from harness.config.paths import PROFILES
from harness.workloads.arrivals import Arrivals, Floats, Generator
from harness.workloads.settings import require_positive

CAPACITIES = PROFILES / "capacity.json"
"""Written by `python -m harness.benchmarks.capacity`, whose docstring says what capacity is."""


class AtLoad:
    """A process of arrivals whose rate is `load` times a measured capacity.

    Load 1 is as much as first come first served serves of a backlog; above, requests come faster
    than anybody answers them and the queue grows for as long as they come.
    """

    def __init__(
        self,
        *,
        load: float,
        process: Callable[..., Arrivals],
        setting: Mapping[str, str | int | bool | None],
    ) -> None:
        """`process`: a class of arrivals that lacks `rate_per_s`; `setting` names the capacity."""
        require_positive("workload.arrivals", load=load)
        self.rate_per_s = load * capacity_per_s(setting)
        self._arrivals = process(rate_per_s=self.rate_per_s)
        self.files = {**self._arrivals.files, **inputs.digests([CAPACITIES])}

    def draw(self, count: int, rng: Generator) -> Floats:
        """As `Arrivals`."""
        return self._arrivals.draw(count, rng)


def capacity_per_s(setting: Mapping[str, object]) -> float:
    """Measured requests per second of first come first served. ValueError where there are none."""
    table: Mapping[str, Any] = inputs.read_json(CAPACITIES)
    for row in table["rows"]:
        if row["setting"] == setting:
            return float(row["requests_per_s"])
    place = ", ".join(f"{key} {value}" for key, value in setting.items() if value is not None)
    raise ValueError(
        f"the capacity of {place} was not measured: add it to a scenario of backlogs and run "
        "python -m harness.benchmarks.capacity SCENARIO"
    )
