"""Arrivals at a fraction of what a machine can serve: loads that mean the same in every setting."""

from collections.abc import Callable, Mapping
from typing import Any

from harness.config import inputs
from harness.config.names import unknown_name
from harness.config.paths import PROFILES
from harness.workloads.arrivals import Arrivals, Floats, Generator
from harness.workloads.settings import require_positive

CAPACITIES = PROFILES / "capacity"
"""A table for each scenario of backlogs, written by `python -m harness.tools.benchmarks.capacity`,
whose docstring says what capacity is."""


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
        table: str,
        setting: Mapping[str, str | int | bool | None],
    ) -> None:
        """`process`: a class of arrivals that lacks `rate_per_s`.

        `table` is the scenario of backlogs, `setting` that of its settings whose capacity is meant.
        """
        require_positive("workload.arrivals", load=load)
        self.rate_per_s = load * capacity_per_s(table, setting)
        self._arrivals = process(rate_per_s=self.rate_per_s)
        self.files = {**self._arrivals.files, **inputs.digests([CAPACITIES / f"{table}.json"])}

    def draw(self, count: int, rng: Generator) -> Floats:
        """As `Arrivals`."""
        return self._arrivals.draw(count, rng)


def capacity_per_s(table: str, setting: Mapping[str, object]) -> float:
    """Measured requests per second in a setting of a scenario of backlogs.

    Raises ValueError for a scenario that was not measured, and for a setting that it has not.
    """
    known = {path.stem: path for path in CAPACITIES.glob("*.json")}
    if table not in known:
        raise ValueError(unknown_name("table of capacities", table, known))
    content: Mapping[str, Any] = inputs.read_json(known[table])
    for row in content["rows"]:
        if row["setting"] == setting:
            return float(row["requests_per_s"])
    place = ", ".join(f"{key} {value}" for key, value in setting.items() if value is not None)
    raise ValueError(
        f"the capacity of {place} was not measured: add it to the scenario {table} and run "
        f"python -m harness.tools.benchmarks.capacity {table}"
    )
