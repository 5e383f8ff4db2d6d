"""When requests arrive: made-up processes, and real ones at a wanted rate.

Every class is named in a workload's `arrivals`. The real ones replay no trace; they follow tables
derived from one (`harness.tools.fitting.arrivals`, profiles/arrivals), whose docstrings say what is
kept.
"""

import math
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from harness.config import inputs
from harness.config.names import unknown_name
from harness.config.paths import PROFILES
from harness.config.ranges_of_units import MOST_SECONDS
from harness.config.schema import NotNegative, Schema, read_json
from harness.workloads.settings import BURSTINESS, require_between, require_positive

Floats = NDArray[np.float64]
Generator = np.random.Generator

RATE_PER_S = (1e-9, 1e9)
"""Rates that times in floating point can tell apart."""

SELDOM_PER_S = 1e-3
"""Below this nearly every second is empty, and counting them one by one would not end."""

LEAST_PER_WINDOW = 0.01
"""Requests of a minute that is counted one by one."""

MOST_FUNCTIONS = 1_000_000


TABLES = PROFILES / "arrivals"

_Rates = tuple[NotNegative, ...]


class _Client(Schema):
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
    shares_of_first: tuple[tuple[int, Annotated[float, Field(gt=0.0, le=1.0)]], ...] = ()
    clients: tuple[_Client, ...] = ()

    @model_validator(mode="after")
    def _is_one_table(self) -> "_Stored":
        if len(self.function_rate) != len(self.function_variation):
            raise ValueError("function_rate and function_variation are not as long as each other")
        for name in ("relative_rate", "function_rate", "shared_rate"):
            if name in self.model_fields_set and not any(getattr(self, name)):
                raise ValueError(f"{name} has no rate above 0")
        ranks, shares = ([one[at] for one in self.shares_of_first] for at in (0, 1))
        grows = all(a < b for of in (ranks, shares) for a, b in pairwise(of))
        if ranks[:1] != [1] * bool(ranks) or not grows:
            raise ValueError("shares_of_first must begin with 1 function, and both numbers grow")
        if "clients" in self.model_fields_set and not self.clients:
            raise ValueError("clients is empty")
        return self


@cache
def arrival_table(name: str, needed: str) -> Mapping[str, Any]:
    """A stored table of arrivals. ValueError for an unknown one and one without `needed`."""
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


class Arrivals(Protocol):
    """A process of arrivals."""

    @property
    def files(self) -> Mapping[str, str]:
        """The tables behind it, with their sha256."""

    def draw(self, count: int, rng: Generator) -> Floats:
        """`count` arrival times in seconds from 0, ascending. Same state, same times.

        Infinite for a request that is sent when another has been answered.
        """


class AtOnce:
    """Every request is there at time 0."""

    files: Mapping[str, str] = {}

    def draw(self, count: int, rng: Generator) -> Floats:
        """As `Arrivals`."""
        return np.zeros(count)


class ClosedLoop:
    """`clients` that send their next request `think_s` after their last has been answered.

    They take the requests of one list in order, as `vllm bench serve --max-concurrency` at an
    infinite rate and AIPerf's `--concurrency` do, and begin evenly spread over `ramp_up_s`: client
    n with request n.
    """

    files: Mapping[str, str] = {}

    def __init__(self, *, clients: int, ramp_up_s: float, think_s: float) -> None:
        if clients < 1:
            raise ValueError(f"workload.arrivals.clients is {clients}, it must be at least 1")
        require_between("workload.arrivals", 0, MOST_SECONDS, ramp_up_s=ramp_up_s, think_s=think_s)
        self.think_s = think_s
        self._clients, self._gap_s = clients, ramp_up_s / clients

    def draw(self, count: int, rng: Generator) -> Floats:
        """As `Arrivals`."""
        begins_s = np.arange(min(self._clients, count)) * self._gap_s
        return np.concatenate([begins_s, np.full(count - len(begins_s), np.inf)])


def think_s_of(arrivals: Arrivals | None) -> float | None:
    """Seconds from an answer to the next request of a client; None where it is no closed loop."""
    return arrivals.think_s if isinstance(arrivals, ClosedLoop) else None


class Gamma:
    """Independent gaps, gamma distributed; with `burstiness` 1 a Poisson process."""

    def __init__(self, *, rate_per_s: float, burstiness: float, sorted_gaps: bool) -> None:
        """`burstiness` is the coefficient of variation of the gaps.

        With `sorted_gaps` they come in ascending order, the densest part first.
        """
        require_between("workload.arrivals", *RATE_PER_S, rate_per_s=rate_per_s)
        require_between("workload.arrivals", *BURSTINESS, burstiness=burstiness)
        self._rate_per_s, self._burstiness, self._sorted_gaps = rate_per_s, burstiness, sorted_gaps
        self.files: Mapping[str, str] = {}

    def draw(self, count: int, rng: Generator) -> Floats:
        """As `Arrivals`."""
        shape = 1.0 / self._burstiness**2
        gaps_s = rng.gamma(shape, 1.0 / shape / self._rate_per_s, count)
        return (np.sort(gaps_s) if self._sorted_gaps else gaps_s).cumsum()


class WholeSeconds:
    """A Poisson number of requests at every whole second; those of a second share its time."""

    def __init__(self, *, rate_per_s: float) -> None:
        require_between("workload.arrivals", *RATE_PER_S, rate_per_s=rate_per_s)
        self._rate_per_s = rate_per_s
        self.files: Mapping[str, str] = {}

    def draw(self, count: int, rng: Generator) -> Floats:
        """As `Arrivals`."""
        if self._rate_per_s < SELDOM_PER_S:
            return _seldom_whole_s(count, self._rate_per_s, rng)
        per_second = np.zeros(0, np.int64)
        while per_second.sum() < count:
            block = int(np.ceil(count / self._rate_per_s))
            per_second = np.concatenate([per_second, rng.poisson(self._rate_per_s, block)])
        return np.repeat(np.arange(len(per_second), dtype=np.float64), per_second)[:count]


def _seldom_whole_s(count: int, rate_per_s: float, rng: Generator) -> Floats:
    """The same where nearly every second is empty: from one with requests to the next.

    Seconds between are geometric, their requests Poisson but never 0: one, and as many as follow
    the first in what is left of the second.
    """
    seconds = rng.geometric(-np.expm1(-rate_per_s), count).cumsum() - 1
    first = -np.log1p(rng.random(count) * np.expm1(-rate_per_s))
    return np.repeat(seconds.astype(np.float64), 1 + rng.poisson(rate_per_s - first))[:count]


class Windows:
    """Poisson arrivals whose rate changes from window to window as that of a measured service.

    Kept of the measurement: how the rate goes up and down along the whole recording, in its own
    time whatever the wanted rate. Not kept: anything inside a window, where arrivals are uniform.
    A draw begins with any window of the recording, and goes on at its start when it ends; a short
    one sees the rate of its part of it, which is not the mean.
    """

    def __init__(self, *, table: str, rate_per_s: float) -> None:
        """`rate_per_s` is the mean over the recording."""
        require_between("workload.arrivals", *RATE_PER_S, rate_per_s=rate_per_s)
        content = arrival_table(table, "relative_rate")
        relative_rate, window_s = content["relative_rate"], content["window_s"]
        self._edge_s = np.arange(len(relative_rate) + 1) * window_s
        self._passed = np.concatenate([[0.0], np.cumsum(relative_rate) * window_s])
        self._rate_per_s = rate_per_s
        self.files = table_file(table)

    def draw(self, count: int, rng: Generator) -> Floats:
        """As `Arrivals`."""
        start = int(rng.integers(len(self._edge_s) - 1))
        passed = rng.exponential(1.0, count).cumsum() / self._rate_per_s
        cycles, rest = np.divmod(self._passed[start] + passed, self._passed[-1])
        at_s = np.interp(rest, self._passed, self._edge_s)
        return np.asarray(cycles * self._edge_s[-1] + at_s - self._edge_s[start], np.float64)


class Stretched:
    """Arrivals within `duration_s` whose rate goes up and down as in a part of a recording.

    Kept of the measurement: the relative rates of its first `windows`, stretched or squeezed to the
    duration. Not kept: its own time, and anything inside a window of it, where arrivals are
    uniform.
    """

    def __init__(self, *, table: str, windows: int, duration_s: float) -> None:
        require_positive("workload.arrivals", duration_s=duration_s)
        relative_rate = arrival_table(table, "relative_rate")["relative_rate"]
        require_between("workload.arrivals", 1, len(relative_rate), windows=windows)
        self._passed = np.cumsum([0.0, *relative_rate[:windows]])
        if not self._passed[-1] > 0:
            raise ValueError(f"workload.arrivals.windows={windows} of {table} have no arrivals")
        self._edges_s = np.linspace(0.0, duration_s, windows + 1)
        self.files = table_file(table)

    def draw(self, count: int, rng: Generator) -> Floats:
        """As `Arrivals`."""
        passed = np.sort(rng.random(count)) * self._passed[-1]
        return np.asarray(np.interp(passed, self._passed, self._edges_s), np.float64)


class Functions:
    """Requests of `functions` cloud functions together, as many as are wanted.

    Kept of the measurement: the rate of every function, by how much its count of a minute varies
    beyond a Poisson count, and the rate that all functions share from minute to minute. Not kept:
    whether a function's busy minutes follow each other, and less variation than Poisson (functions
    called at fixed times). Arrivals inside a minute are uniform. The fewer functions and the higher
    the rate of each, the burstier; a draw begins with any minute of the shared hour.
    """

    def __init__(self, *, table: str, rate_per_s: float, functions: int) -> None:
        """`rate_per_s` is the mean of all of them together; which ones they are, a draw decides."""
        least = LEAST_PER_WINDOW / 60.0
        require_between("workload.arrivals", least, RATE_PER_S[1], rate_per_s=rate_per_s)
        require_between("workload.arrivals", 1, MOST_FUNCTIONS, functions=functions)
        content = arrival_table(table, "function_rate")
        self._rate = np.asarray(content["function_rate"], np.float64)
        self._variation = np.asarray(content["function_variation"], np.float64)
        self._shared = np.asarray(content["shared_rate"], np.float64)
        self._window_s = float(content["window_s"])
        self._rate_per_s, self._functions = rate_per_s, functions
        self.files = table_file(table)

    def draw(self, count: int, rng: Generator) -> Floats:
        """As `Arrivals`."""
        # No function twice before every other was taken as often.
        there, wanted = len(self._rate), self._functions
        rounds = [rng.permutation(there) for _ in range(-(-wanted // there))]
        chosen = np.concatenate(rounds)[:wanted]
        share = self._rate[chosen] / self._rate[chosen].sum()
        start = int(rng.integers(len(self._shared)))
        found: list[Floats] = []
        drawn = 0
        while drawn < count:
            minute = len(found)
            shared = self._shared[(start + minute) % len(self._shared)]
            mean = share * shared * self._rate_per_s * self._window_s
            number = int(rng.poisson(mean * _swings(self._variation[chosen], rng)).sum())
            inside_s = np.sort(rng.random(number)) * self._window_s
            found.append(minute * self._window_s + inside_s)
            drawn += number
        return np.concatenate(found)[:count]


def _swings(variation: Floats, rng: Generator) -> Floats:
    """Gamma factors of mean 1 and these squared coefficients of variation."""
    swings = np.ones(len(variation))
    varies = variation > 0.0
    swings[varies] = rng.gamma(1.0 / variation[varies], variation[varies])
    return swings


class Clients:
    """The clients of a service, each with independent gaps of its own rate and burstiness.

    Kept of the measurement: share of the load, burstiness and family (gamma or Weibull) of every
    client that counts. Not kept: how a client's rate changes over hours and days, and the small
    clients that carry the last percents of the load.
    """

    def __init__(self, *, table: str, rate_per_s: float) -> None:
        """`rate_per_s` is that of all clients together."""
        require_between("workload.arrivals", *RATE_PER_S, rate_per_s=rate_per_s)
        content = arrival_table(table, "clients")
        self._clients: list[Mapping[str, Any]] = content["clients"]
        self._rate_per_s = rate_per_s
        self.files = table_file(table)

    def draw(self, count: int, rng: Generator) -> Floats:
        """As `Arrivals`."""
        streams = [
            _Stream(client, client["share"] * self._rate_per_s, own)
            for client, own in zip(self._clients, rng.spawn(len(self._clients)), strict=True)
        ]
        until_s = count / self._rate_per_s
        while sum(stream.count_until(until_s) for stream in streams) < count:
            until_s *= 2.0
        return np.sort(np.concatenate([stream.arrival_s for stream in streams]))[:count]


class _Stream:
    """Arrivals of one client as far as asked for; time 0 falls anywhere in a gap."""

    def __init__(self, client: Mapping[str, Any], rate_per_s: float, rng: Generator) -> None:
        self._rng, self._rate_per_s = rng, rate_per_s
        self._family, self._shape = client["family"], client["shape"]
        around = relative_gaps(self._family, self._shape, 1, rng, met=True)
        self.arrival_s: Floats = around * rng.random() / rate_per_s

    def count_until(self, until_s: float) -> int:
        """Draws on until then; returns the number of arrivals before."""
        while self.arrival_s[-1] <= until_s:
            more = max(16, len(self.arrival_s))
            gaps = relative_gaps(self._family, self._shape, more, self._rng, met=False)
            late_s = self.arrival_s[-1] + gaps.cumsum() / self._rate_per_s
            self.arrival_s = np.concatenate([self.arrival_s, late_s])
        return int(np.searchsorted(self.arrival_s, until_s))


def relative_gaps(family: str, shape: float, count: int, rng: Generator, *, met: bool) -> Floats:
    """Gaps of mean 1; with `met` the gaps that a random moment falls into."""
    if family == "gamma":
        return rng.gamma(shape + met, 1.0 / shape, count)
    mean = math.gamma(1.0 + 1.0 / shape)
    powers = rng.gamma(1.0 + met / shape, 1.0, count)
    return np.asarray(powers ** (1.0 / shape) / mean, np.float64)
