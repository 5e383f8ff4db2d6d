"""Kinds of LLM applications: graphs of units that are declared, or runs that were recorded.

A kind of application is declared in Python, or as a node of a scenario with the same names:

    DeclaredKind(
        name="code generation",
        first="write",
        units=[
            Unit(
                name="write",
                service="llm",
                prompt_tokens=[900, 1100],
                output_tokens=[150, 250, 400],
                then={"run": 1.0},
            ),
            Unit(name="run", seconds=[2.1, 12.3], then={"write": 0.25, END: 0.75}),
        ],
    )

A run draws the tokens of every call, the number of calls of a unit and the next unit
independently. Runs that were recorded keep how these depend on each other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Protocol

import numpy as np
from pydantic import Field

from harness.config import inputs
from harness.config.names import unknown_name
from harness.config.paths import PROFILES
from harness.config.schema import Schema, Seconds, Share, Tokens, read_json
from harness.workloads.settings import require_between

END = "end"
"""Comes after the last unit of an application; no unit has this name."""
LLM = "llm"
"""The service that units of stored applications call."""
TABLES = PROFILES / "applications"
MOST_UNITS = 1000.0
"""Units that a declared application may have on average: more would not end in a run's time."""
PROFILED_RUNS = 100
"""Runs of a declared application that are known before it is served."""
_NO_BRANCH: Mapping[str, float] = {END: 1.0}


@dataclass(frozen=True, slots=True)
class UnitCalls:
    """Calls of one run of a unit, which start together: of a service, or outside any LLM."""

    unit: str
    service: str = ""
    prompt_tokens: tuple[int, ...] = ()
    output_tokens: tuple[int, ...] = ()
    external_s: tuple[float, ...] = ()
    backend: str = ""


AppRun = Sequence[Sequence[UnitCalls]]
"""Steps, one after the other; all units of a step start when the step before it is done."""


class Distribution(Protocol):
    """What numbers are drawn from where no list of them is given, such as an `Ecdf`."""

    def sample(self, count: int, rng: np.random.Generator) -> Any:
        """So many numbers."""


Samples = Sequence[float] | Distribution


class ApplicationKind(Protocol):
    """Runs of one kind of application."""

    name: str
    files: Mapping[str, str]

    @property
    def services(self) -> frozenset[str]:
        """Names of the services that its units call."""

    @property
    def has_outside(self) -> bool:
        """Whether some unit runs outside any LLM."""

    def past(self) -> Sequence[AppRun]:
        """Runs that are known before any is served."""

    def draw(self, rng: np.random.Generator) -> AppRun:
        """A run to serve; it is not one of those of `past`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One functional unit. Its `calls` start together; afterwards one of `then` does.

    Either it calls a `service`, with so many tokens of prompt and answer a call, or it takes
    `seconds` outside any LLM, on a `backend` where it names one. `then` maps names of units, or
    END, to probabilities.
    """

    name: str
    service: str = ""
    prompt_tokens: Samples = ()
    output_tokens: Samples = ()
    calls: Samples = (1,)
    seconds: Samples = ()
    backend: str = ""
    then: Mapping[str, float] = field(default_factory=lambda: _NO_BRANCH)

    def __post_init__(self) -> None:
        """Refuse a unit that cannot run. Raises ValueError, in one sentence."""
        has_seconds = not isinstance(self.seconds, Sequence) or len(self.seconds) > 0
        if bool(self.service) == has_seconds:
            has = "both a service and" if has_seconds else "neither a service nor"
            raise ValueError(f"unit {self.name!r} names {has} seconds")
        if self.backend and not has_seconds:
            raise ValueError(f"unit {self.name!r} has backend {self.backend!r} and no seconds")
        for name in ("prompt_tokens", "output_tokens") if self.service else ("seconds",):
            _require_samples(self.name, name, getattr(self, name), 1 if self.service else 0)
        _require_samples(self.name, "calls", self.calls, 1)
        if not np.isclose(sum(self.then.values()), 1.0) or min(self.then.values()) < 0:
            raise ValueError(f"unit {self.name!r} goes on by {dict(self.then)}, not shares of 1")

    def run(self, rng: np.random.Generator) -> UnitCalls:
        """Draw one run of it."""
        count = int(_drawn(self.calls, 1, rng)[0])
        if not self.service:
            seconds = tuple(_drawn(self.seconds, count, rng).tolist())
            return UnitCalls(self.name, external_s=seconds, backend=self.backend)
        prompts, outputs = (
            tuple(np.rint(_drawn(samples, count, rng)).astype(int).tolist())
            for samples in (self.prompt_tokens, self.output_tokens)
        )
        return UnitCalls(self.name, self.service, prompts, outputs)


def _require_samples(unit: str, name: str, samples: Samples, least: int) -> None:
    if not isinstance(samples, Sequence):
        return
    if not samples:
        raise ValueError(f"unit {unit!r} has no samples of {name}")
    require_between(f"unit {unit!r}", least, 1e9, **{name: min(samples)})


def _drawn(samples: Samples, count: int, rng: np.random.Generator) -> Any:
    if isinstance(samples, Sequence):
        return rng.choice(np.asarray(samples, np.float64), count)
    return np.asarray(samples.sample(count, rng), np.float64)


class DeclaredKind:
    """A kind of application that is declared as a graph of units, which begins at `first`."""

    def __init__(self, *, name: str, first: str, units: Sequence[Unit]) -> None:
        self.name, self._first = name, first
        self._units = {unit.name: unit for unit in units}
        self.files: Mapping[str, str] = {}
        self.services = frozenset(unit.service for unit in units if unit.service)
        self.has_outside = any(not unit.service for unit in units)
        if len(self._units) < len(units) or END in self._units:
            raise ValueError(f"application {name!r} has two units of one name, or one named {END}")
        for next_unit in (first, *(then for unit in units for then in unit.then if then != END)):
            if next_unit not in self._units:
                raise ValueError(f"application {name!r} has no unit {next_unit!r}")
        self._require_end()

    def _require_end(self) -> None:
        """Follow branches back from the end; then count the units that a run has on average."""
        names, ends = list(self._units), {END}
        while more := {n for n in names if n not in ends and ends & _possible(self._units[n])}:
            ends |= more
        reached = [self._first]
        for name in reached:
            reached += _possible(self._units[name]) - {END, *reached}
        if stuck := next((name for name in reached if name not in ends), None):
            raise ValueError(f"application {self.name!r} cannot end after unit {stuck!r}")
        moves = np.array([[self._units[a].then.get(b, 0.0) for b in reached] for a in reached])
        units = float(np.linalg.solve(np.eye(len(reached)) - moves, np.ones(len(reached)))[0])
        if units > MOST_UNITS:
            raise ValueError(
                f"application {self.name!r} ends after {units:g} units on average, at most "
                f"{MOST_UNITS:g} are allowed"
            )

    def past(self) -> Sequence[AppRun]:
        """As `ApplicationKind`."""
        rng = np.random.default_rng(30)
        return [self.draw(rng) for _ in range(PROFILED_RUNS)]

    def draw(self, rng: np.random.Generator) -> AppRun:
        """As `ApplicationKind`."""
        run, name = [], self._first
        while name != END:
            unit = self._units[name]
            run.append([unit.run(rng)])
            name = str(rng.choice(list(unit.then), p=list(unit.then.values())))
        return run


def _possible(unit: Unit) -> set[str]:
    return {name for name, share in unit.then.items() if share > 0}


class RecordedKind:
    """A kind of application of which runs were recorded: every second one is known before."""

    def __init__(self, name: str, runs: Sequence[AppRun], files: Mapping[str, str]) -> None:
        if len(runs) < 2:
            raise ValueError(f"application {name!r} has {len(runs)} recorded runs, of at least 2")
        self.name, self.files = name, files
        self._past, self._served = runs[::2], runs[1::2]
        units = [unit for run in runs for step in run for unit in step]
        self.services = frozenset(unit.service for unit in units if unit.service)
        self.has_outside = any(not unit.service for unit in units)

    def past(self) -> Sequence[AppRun]:
        """As `ApplicationKind`."""
        return self._past

    def draw(self, rng: np.random.Generator) -> AppRun:
        """As `ApplicationKind`."""
        return self._served[int(rng.integers(len(self._served)))]


class _RecordedUnit(Schema):
    name: str
    backend: str


class _DeclaredUnit(Schema):
    name: str
    service: str = ""
    prompt_tokens: tuple[Tokens, ...] = ()
    output_tokens: tuple[Tokens, ...] = ()
    calls: tuple[Tokens, ...] = (1,)
    seconds: tuple[Seconds, ...] = ()
    backend: str = ""
    then: Mapping[str, Share]


_Calls = tuple[Tokens, tuple[Seconds, ...]] | tuple[Tokens, tuple[Tokens, ...], tuple[Tokens, ...]]
_Steps = tuple[tuple[_Calls, ...], ...]


class _Runs(Schema):
    """A file of recorded runs; `harness.tools.fitting.applications` says what is in it."""

    kind: str
    source: str
    units: tuple[_RecordedUnit, ...]
    runs: Annotated[tuple[_Steps, ...], Field(min_length=2)]


class _Graph(Schema):
    """A file of a declared application."""

    kind: str
    source: str
    first: str
    units: tuple[_DeclaredUnit, ...]


@cache
def stored_application(name: str) -> ApplicationKind:
    """A kind of application from its file. ValueError, with the closest names, if unknown."""
    known = {path.stem: path for path in TABLES.glob("*.json")}
    if name not in known:
        raise ValueError(unknown_name("application", name, known))
    path = known[name]
    if "first" in inputs.read_json(path):
        graph = read_json(path, _Graph)
        units = [Unit(**unit.model_dump()) for unit in graph.units]
        made = DeclaredKind(name=name, first=graph.first, units=units)
        made.files = inputs.digests([path])
        return made
    table = read_json(path, _Runs)
    runs = [[list(_unit_runs(step, table.units)) for step in run] for run in table.runs]
    return RecordedKind(name, runs, inputs.digests([path]))


def _unit_runs(step: Sequence[Any], units: Sequence[_RecordedUnit]) -> Iterator[UnitCalls]:
    for place, *calls in step:
        unit = units[place]
        if len(calls) == 1:
            yield UnitCalls(unit.name, external_s=calls[0], backend=unit.backend)
        else:
            yield UnitCalls(unit.name, LLM, *calls)
