"""Arrivals at a fraction of what a machine can serve: loads that mean the same in every setting."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.config import inputs
from harness.config.paths import PROFILES
from harness.workloads.arrivals import Arrivals, Floats, Generator
from harness.workloads.settings import require_positive

CAPACITIES = PROFILES / "capacity"
"""A table for each scenario of backlogs, written by `python -m harness.benchmarks.capacity`, whose
docstring says what capacity is."""


class AtLoad:
    """A process of arrivals whose rate is `load` times a measured capacity.

    Load 1 is as much as the policy of its setting serves of a backlog; above, requests come faster
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
        table, capacity_per_s = capacity_of(setting)
        self.rate_per_s = load * capacity_per_s
        self._arrivals = process(rate_per_s=self.rate_per_s)
        self.files = {**self._arrivals.files, **inputs.digests([table])}

    def draw(self, count: int, rng: Generator) -> Floats:
        """As `Arrivals`."""
        return self._arrivals.draw(count, rng)


def capacity_of(setting: Mapping[str, object]) -> tuple[Path, float]:
    """The table with a setting, and the requests per second that were measured in it.

    Raises ValueError where no table has it.
    """
    for path in sorted(CAPACITIES.glob("*.json")):
        table: Mapping[str, Any] = inputs.read_json(path)
        for row in table["rows"]:
            if row["setting"] == setting:
                return path, float(row["requests_per_s"])
    place = ", ".join(f"{key} {value}" for key, value in setting.items() if value is not None)
    raise ValueError(
        f"the capacity of {place} was not measured: add it to a scenario of backlogs and run "
        "python -m harness.benchmarks.capacity SCENARIO"
    )
