"""The cheapest candidate that keeps the objectives, with the fewest replicas that do.

Pure functions over `serve`, which says what a trial gives. Assumed of it: what is kept with so many
replicas is kept with more, what fails at a load fails at a higher one. A candidate is first served
with the most replicas that cost no more than the best found, and left out where it fails with
these; else the fewest are found by bisection. Until one is found that keeps the objectives, the
number of GPUs is doubled. The answer is that of all candidates at all numbers of replicas where the
assumption holds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any

from harness.capacity.grid import Candidate, Trial, TrialValues
from harness.capacity.objectives import Objective

Serve = Callable[[Sequence[Trial]], Sequence[TrialValues]]

WAVE = 8
"""Trials that are served at a time; the same however many processes there are."""
LOADS = ((1.1, 1.25, 1.5), (2.0, 3.0), (5.0, 8.0))
"""Multiples of the load at which a margin is looked for, while each before is kept."""
PARTS = 4
"""Of the range between two loads, whose inner ends are served at a time."""
NEAR = 1.02
"""Ratio of two loads, of which one is kept and the other is not, at which a margin is known."""
ALONE = 0.01
"""Multiple of the load at which requests hardly meet."""
FIRST_GPUS = 8
"""GPUs that the first candidates have."""
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Rated:
    """A candidate and the fewest replicas of it that were found to keep all objectives.

    With `is_kept` false it fails in the trial that is here; `why` says so of one that cannot be
    served at all. `is_least` says whether one replica fewer is known to fail. `cost` is GPUs, or
    dollars an hour, `worst` the largest of the objectives' values over its limit.
    """

    trial: Trial
    values_s: tuple[float, ...]
    cost: float
    worst: float
    is_kept: bool
    is_least: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Margin:
    """The largest load found at which a trial keeps the objectives, and the next that it does not.

    Loads are multiples of the trace's rate; `fails_at` is None where none that was tried fails, and
    `failing_s` are the values of the objectives there.
    """

    kept_at: float
    fails_at: float | None
    failing_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """What is looked for: objectives, the most GPUs in all, and what a GPU costs, by its file.

    `prices` are dollars an hour with `is_priced`, else 1 for each. `replicas`, if given, is the
    only number of them.
    """

    objectives: tuple[Objective, ...]
    most_gpus: int
    prices: Mapping[str, float]
    replicas: int | None = None
    is_priced: bool = False

    def cost(self, trial: Trial) -> float:
        """GPUs, or dollars an hour."""
        return trial.gpus * self.prices[trial.candidate.gpu]

    def worst(self, served: TrialValues) -> float:
        """The largest of the objectives' values, each over its limit; inf of an impossible one."""
        if served.why:
            return inf
        pairs = zip(self.objectives, served.values_s, strict=True)
        ratios = [value_s / one.limit_s for one, value_s in pairs]
        return max(it if it >= 0 else inf for it in ratios)  # NaN is no value

    def is_kept(self, served: TrialValues) -> bool:
        """Whether all objectives are kept."""
        return self.worst(served) <= 1.0

    def most_replicas(self, candidate: Candidate, cost: float = inf) -> int:
        """As many as cost no more than that."""
        degree = candidate.tensor_parallel
        most = self.most_gpus // degree
        if cost < inf:
            most = min(most, int(cost / (degree * self.prices[candidate.gpu]) + _ROUNDING))
        return most if self.replicas is None else min(most, self.replicas)

    def rank(self, one: Rated) -> tuple[bool, float, float]:
        """Smaller is better: kept, then cheap, then far below the limits, to a hundredth."""
        return not one.is_kept, one.cost * one.is_kept, round(one.worst, 2)


@dataclass(slots=True)
class _Bounds:
    """A candidate: with `low` replicas it fails, or `low` is 0; with `high` it is kept.

    `first` has the fewest replicas. `shown` is the trial that is rated, the one with `high` of them
    or a failing one. A candidate that fails `alone`, where requests hardly meet, fails with any
    number of replicas.
    """

    first: Trial
    low: int = 0
    high: int | None = None
    shown: tuple[Trial, TrialValues] | None = None
    alone: bool | None = None

    def next(self, problem: Problem, best: float, reach: float) -> Trial | None:
        """What to serve next; None where it cannot matter any more.

        Until something is kept no trial has more GPUs than `reach`, if one replica has not.
        """
        most = problem.most_replicas(self.first.candidate, best)
        if self._is_lost or most <= self.low:
            return None
        if self.high is not None and self.high <= most:
            if self.high - self.low <= 1:
                return None
            middle = round(sqrt(max(self.low, 1) * self.high))
            return self._with(min(max(middle, self.low + 1), self.high - 1))
        if best == inf and reach < problem.most_gpus:
            degree = self.first.candidate.tensor_parallel
            return self._with(min(most, max(self.low + 1, int(reach) // degree)))
        if best == inf and self.alone is None:
            return replace(self.first, load=self.first.load * ALONE)
        return self._with(most)

    def take(self, problem: Problem, trial: Trial, served: TrialValues) -> None:
        """Learn from a trial."""
        is_kept = problem.is_kept(served)
        if trial.load != self.first.load:
            self.alone = is_kept
        elif is_kept:
            self.high = trial.replicas
        else:
            self.low = trial.replicas
        if is_kept == (self.high is not None) or self._is_lost:
            self.shown = trial, served

    @property
    def _is_lost(self) -> bool:
        """Whether it fails with any number of replicas."""
        return self.alone is False or (self.shown is not None and bool(self.shown[1].why))

    def _with(self, replicas: int) -> Trial:
        return replace(self.first, replicas=replicas)

    def rated(self, problem: Problem) -> Rated | None:
        """What is known in the end; None of what was never served."""
        if self.shown is None:
            return None
        trial, served = self.shown
        return Rated(
            trial,
            served.values_s,
            problem.cost(trial),
            problem.worst(served),
            is_kept=self.high is not None,
            is_least=self.high is not None and self.high - self.low == 1,
            why=served.why,
        )


def cheapest(
    problem: Problem,
    candidates: Sequence[Candidate],
    serve: Serve,
    *,
    at: Mapping[str, Any] | None = None,
    first_gpus: float = FIRST_GPUS,
    decided: Callable[[int], None] = lambda _: None,
) -> list[Rated]:
    """The candidates that were served, the cheapest that keeps the objectives first.

    Of equal cost the one whose worst objective is furthest below its limit comes first, then the
    order of `candidates`. Candidates that fail come last, the nearest first. `at` are fields of all
    trials: load, slower, hour. The first trials have `first_gpus`. `decided` hears how many
    candidates are done with, after each wave.
    """
    least = problem.replicas or 1
    firsts = [replace(Trial(it, least), **(at or {})) for it in candidates]
    every = [_Bounds(it, low=least - 1) for it in firsts]
    left, best, reach = list(every), inf, first_gpus
    while left:
        asked: list[tuple[_Bounds, Trial]] = []
        waiting = []
        for one in left:
            trial = one.next(problem, best, reach) if len(asked) < WAVE else None
            if trial is not None:
                asked.append((one, trial))
            if trial is not None or len(asked) >= WAVE:
                waiting.append(one)
        for (one, trial), served in zip(asked, serve([it for _, it in asked]), strict=True):
            one.take(problem, trial, served)
            if one.high is not None:
                best = min(best, problem.cost(trial) if one.high == trial.replicas else inf)
        left, reach = waiting, reach if best < inf else 2 * reach
        decided(len(every) - len(left))
    found = [it for one in every if (it := one.rated(problem)) is not None]
    return sorted(found, key=problem.rank)


def largest_load(problem: Problem, trial: Trial, serve: Serve) -> Margin:
    """Up to which multiple of its load a trial that keeps the objectives does so."""
    low, high = 1.0, inf
    failing_s: tuple[float, ...] = ()
    waves = [*LOADS]
    while waves:
        points = waves.pop(0)
        asked = [replace(trial, load=trial.load * it) for it in points]
        for times, served in zip(points, serve(asked), strict=True):
            if not problem.is_kept(served):
                high, failing_s = times, served.values_s
                break
            low = times
        if high < inf:
            step = (high - low) / PARTS
            inner = tuple(low + step * it for it in range(1, PARTS))
            waves = [inner] if high / low > NEAR else []
    return Margin(low, high if high < inf else None, failing_s)


def fewest_replicas(problem: Problem, trial: Trial, serve: Serve) -> int | None:
    """Replicas that the candidate of a trial needs; None where the most GPUs do not suffice."""
    at = {"load": trial.load, "slower": trial.slower, "hour": trial.hour}
    (found,) = cheapest(problem, [trial.candidate], serve, at=at, first_gpus=trial.gpus)
    return found.trial.replicas if found.is_kept else None


def least_values(found: Sequence[Rated]) -> list[Rated]:
    """For each objective the candidate that gives the least value of it, of those served."""
    there = [one for one in found if one.values_s]
    count = len(there[0].values_s) if there else 0
    return [min(there, key=lambda it: it.values_s[place]) for place in range(count)]
