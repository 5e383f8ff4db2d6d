"""Stored tables of arrivals: what may stand in them, and reading one."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from harness.config import inputs
from harness.config.paths import PROFILES
from harness.config.schema import NotNegative, Schema, read_json
from harness.costs.model_facts import unknown_name

TABLES = PROFILES / "arrivals"

_Rates = tuple[NotNegative, ...]


class _Client(Schema):
    """One client of a service."""

    share: Annotated[float, Field(gt=0.0, le=1.0)]
    cv: NotNegative
    shape: Annotated[float, Field(ge=1e-3, le=1e6)]
    family: Literal["gamma", "weibull"]


class _Stored(Schema):
    """A file of arrivals; it has some of the parts that the classes here read."""

    kind: str
    source: str
    measured: Any = None
    window_s: Annotated[float, Field(gt=0.0, le=1e6)] = 60.0
    relative_rate: _Rates = ()
    function_rate: _Rates = ()
    function_variation: tuple[NotNegative, ...] = ()
    shared_rate: _Rates = ()
    stream_counts: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...] = ()
    clients: tuple[_Client, ...] = ()

    @model_validator(mode="after")
    def _is_one_table(self) -> "_Stored":
        """Functions have a rate and a variation each; what is there has a rate above 0."""
        if len(self.function_rate) != len(self.function_variation):
            raise ValueError("function_rate and function_variation are not as long as each other")
        for name in ("relative_rate", "function_rate", "shared_rate"):
            if name in self.model_fields_set and not any(getattr(self, name)):
                raise ValueError(f"{name} has no rate above 0")
        counts = self.stream_counts
        if len({len(stream) for stream in counts}) > 1 or (counts and not all(map(any, counts))):
            raise ValueError("stream_counts must be as long as each other, none without a request")
        if "clients" in self.model_fields_set and not self.clients:
            raise ValueError("clients is empty")
        return self


@cache
def arrival_table(name: str, needed: str) -> Mapping[str, Any]:
    """A stored table of arrivals that has `needed`.

    Raises ValueError for an unknown one, with the closest names, and for one without `needed`.
    """
    known = {path.stem: path for path in TABLES.glob("*.json")}
    if name not in known:
        raise ValueError(unknown_name("arrival table", name, known))
    content = read_json(known[name], _Stored).model_dump(exclude_unset=True)
    if needed not in content:
        raise ValueError(f"workload.arrivals.table={name} has no {needed}")
    return content


def table_file(table: str) -> dict[str, str]:
    """A stored table by its file's name, with the sha256."""
    return inputs.digests([TABLES / f"{table}.json"])
