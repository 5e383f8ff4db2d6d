"""PDGraph: how much service an application still needs, from recorded runs of its kind.

Paper      Liu et al., Efficient Serving of LLM Applications with Probabilistic Demand Modeling,
           arXiv 2506.14851; sections below are its sections.
Idea       Each functional unit keeps raw samples of its demand; walks along the graph of units sum
           them up to the demand that is left. What is known of the unit that starts and of the one
           before narrows the samples to those in the same buckets.
Map        3.2 backend consumption, next unit  -> `UnitSamples.samples`, `UnitSamples.after`
           3.2 Monte Carlo walks               -> `PdGraph._walked`
           3.2 five masks, correlation         -> `UnitSamples.masks`
           3.2 online refinement               -> `PdGraph.left_s`, `UnitSamples.drawn`
Constants  1,000 samples (section 3.2); 10 buckets, correlation 0.5 (section 5.1) from a scenario;
           50 units of a walk, of its program; 5 samples that a condition must leave, chosen by us
Differs    prompts of the unit that starts are known and taken as they are, where the paper draws
           them; units after it are walked from recorded samples like it, not from its own prompts.
           Walks draw every later unit, too, by what they have drawn before it. A loop ends with the
           frequency of its end, whatever the number of turns so far
Checked    systems/tests/test_hermes_pdgraph.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from harness.interface.tables import Bools, Floats, Ints
from harness.planning.application_history import UnitRun

_MOST_SAMPLES = 1000
"""Samples that a unit keeps, the latest, and walks that start from it (section 3.2)."""
_MOST_UNITS = 50
"""Units after which a walk ends, of the authors' program."""
_FEWEST = 5
"""A condition that fewer samples meet is ignored. Our choice; the paper is silent."""
_END = ""

_PROMPT, _OUTPUT, _CALLS, _EXTERNAL, _UP_PROMPT, _UP_OUTPUT, _UP_CALLS = range(7)
"""Columns of a sample: mean prompt and answer of its calls, their number, seconds outside the LLM;
the first three of the LLM unit before it, NaN where there is none."""
_PAIRS = {
    "prompt by upstream prompt": (_PROMPT, _UP_PROMPT),
    "prompt by upstream output": (_PROMPT, _UP_OUTPUT),
    "output by upstream output": (_OUTPUT, _UP_OUTPUT),
    "output by prompt": (_OUTPUT, _PROMPT),
    "calls by upstream calls": (_CALLS, _UP_CALLS),
}
"""The five masks of a unit: which column may depend on which."""

Upstream = tuple[float, float, float]
"""Mean prompt and answer of the calls of an LLM unit, and their number."""
NO_UPSTREAM: Upstream = (np.nan, np.nan, np.nan)


def upstream_of(prompt_tokens: Sequence[int], output_tokens: Sequence[int]) -> Upstream:
    """What the units after an LLM unit may depend on."""
    return float(np.mean(prompt_tokens)), float(np.mean(output_tokens)), float(len(prompt_tokens))


@dataclass(slots=True)
class UnitSamples:
    """Samples of one functional unit, oldest first, and the unit that came after each."""

    samples: Floats
    after: NDArray[np.object_]
    buckets: int
    min_correlation: float
    masks: Mapping[str, bool] = field(init=False)
    start: Ints = field(init=False)
    """The sample that each walk from here starts with."""
    rest_s: Floats = field(init=False)
    """Service after this unit in each walk."""
    _least: Floats = field(init=False)
    _width: Floats = field(init=False)
    _bucket: Ints = field(init=False)
    _alike: dict[tuple[tuple[int, ...], tuple[int, ...]], Ints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find what correlates, and the bucket of every sample."""
        self.masks = {
            name: _correlation(self.samples[:, y], self.samples[:, x]) > self.min_correlation
            for name, (y, x) in _PAIRS.items()
        }
        known = ~np.isnan(self.samples)
        least = self.samples.min(axis=0, where=known, initial=np.inf)
        most = self.samples.max(axis=0, where=known, initial=-np.inf)
        self._least = np.where(known.any(axis=0), least, 0.0)
        self._width = (np.where(known.any(axis=0), most, 0.0) - self._least) / self.buckets
        self._bucket = np.stack([self._buckets_of(c, self.samples[:, c]) for c in range(7)], axis=1)
        self.start = np.arange(_MOST_SAMPLES) % len(self.samples)

    @property
    def is_llm(self) -> bool:
        """Whether calls of an LLM are part of it."""
        return bool(self.samples[:, _CALLS].any())

    def like(self, conditions: Mapping[int, float]) -> Ints:
        """Samples in the buckets of these values, by column."""
        columns = sorted(conditions)
        buckets = [int(self._buckets_of(c, np.array([conditions[c]]))[0]) for c in columns]
        return self._like(tuple(columns), tuple(buckets))

    def drawn(self, upstream: Floats, rng: np.random.Generator) -> Ints:
        """A sample for each row of `upstream`, from those in its buckets where masks say so."""
        columns = self._upstream_columns()
        if not columns:
            return rng.integers(len(self.samples), size=len(upstream))
        buckets = [self._buckets_of(c, upstream[:, c - _UP_PROMPT]) for c in columns]
        kinds, kind = np.unique(np.stack(buckets, axis=1), axis=0, return_inverse=True)
        rows = np.empty(len(upstream), np.int64)
        for number, these in enumerate(kinds.tolist()):
            own = np.flatnonzero(kind.ravel() == number)
            rows[own] = rng.choice(self._like(columns, tuple(these)), len(own))
        return rows

    def _upstream_columns(self) -> tuple[int, ...]:
        """Columns of the unit before that this one depends on."""
        return tuple(
            sorted({x for name, (_, x) in _PAIRS.items() if x >= _UP_PROMPT and self.masks[name]})
        )

    def _buckets_of(self, column: int, values: Floats) -> Ints:
        """Buckets of equal width between the extremes; -1 where a value is not known."""
        width = self._width[column]
        places = (values - self._least[column]) / width if width > 0 else np.zeros(len(values))
        bucket = np.clip(np.nan_to_num(places), 0, self.buckets - 1).astype(np.int64)
        return np.where(np.isnan(values), -1, bucket)

    def _like(self, columns: tuple[int, ...], buckets: tuple[int, ...]) -> Ints:
        if (columns, buckets) not in self._alike:
            keep: Bools = np.ones(len(self.samples), np.bool_)
            for column, bucket in zip(columns, buckets, strict=True):
                narrower = keep & (self._bucket[:, column] == bucket)
                keep = narrower if narrower.sum() >= _FEWEST else keep
            self._alike[columns, buckets] = np.flatnonzero(keep)
        return self._alike[columns, buckets]


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """How graphs count and what they narrow; ValueError for what cannot be.

    A token of a prompt and of an answer count as so many seconds. Walks draw each unit by what is
    known of the one before it only if `refines`.
    """

    prompt_token_s: float
    output_token_s: float
    refines: bool
    buckets: int
    min_correlation: float

    def __post_init__(self) -> None:
        """Refuse distributions without buckets and tokens that take less than no time."""
        if self.buckets < 1:
            raise ValueError(f"graphs.buckets is {self.buckets}, it must be at least 1")
        for name in ("prompt_token_s", "output_token_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"graphs.{name} is {getattr(self, name)}, it must be at least 0")
        if not self.prompt_token_s + self.output_token_s:
            raise ValueError("graphs.prompt_token_s and graphs.output_token_s are both 0")


class PdGraph:
    """The graph of one kind of application; service is in seconds. Equal runs give equal walks.

    `whole_s` are samples of a whole application's demand by walks, `recorded_s` those of the runs.
    """

    def __init__(self, runs: Sequence[Sequence[UnitRun]], settings: GraphSettings) -> None:
        """Build the graph from runs, oldest first, and walk from each of its units."""
        self._settings, self._rng = settings, np.random.default_rng(0)
        self.units = {
            name: UnitSamples(
                np.array(samples),
                np.array(after, object),
                settings.buckets,
                settings.min_correlation,
            )
            for name, (samples, after) in _samples(runs).items()
        }
        for unit in self.units.values():
            unit.rest_s = self._rest_s(unit)
        self._first = np.array([run[0].unit for run in runs], object)
        self.whole_s = self._walked(
            self._rng.choice(self._first, _MOST_SAMPLES),
            np.tile(NO_UPSTREAM, (_MOST_SAMPLES, 1)),
        )
        self.recorded_s = np.array([self._recorded_s(run) for run in runs[-_MOST_SAMPLES:]])

    def left_s(
        self, name: str, prompt_tokens: Sequence[int], upstream: Upstream
    ) -> tuple[Floats, Floats]:
        """Samples of the demand of a unit that starts, and after it, in each of the same walks.

        The prompts of its calls are known. Of a unit that no run had: that of a whole application.
        """
        if name not in self.units:
            return self.whole_s, np.zeros(len(self.whole_s))
        unit = self.units[name]
        if not prompt_tokens or not unit.is_llm:
            return self._demand_s(unit.samples[unit.start]), unit.rest_s
        conditions = {}
        if unit.masks["output by prompt"]:
            conditions[_PROMPT] = float(np.mean(prompt_tokens))
        if unit.masks["output by upstream output"]:
            conditions[_UP_OUTPUT] = upstream[1]
        is_like = np.zeros(len(unit.samples), np.bool_)
        is_like[unit.like(conditions)] = True
        walks = np.flatnonzero(is_like[unit.start])
        own_s = sum(prompt_tokens) * self._settings.prompt_token_s + unit.samples[
            unit.start[walks], _OUTPUT
        ] * (len(prompt_tokens) * self._settings.output_token_s)
        return own_s, unit.rest_s[walks]

    def _demand_s(self, samples: Floats) -> Floats:
        tokens_s = (
            samples[:, _PROMPT] * self._settings.prompt_token_s
            + samples[:, _OUTPUT] * self._settings.output_token_s
        )
        return np.asarray(samples[:, _CALLS] * tokens_s + samples[:, _EXTERNAL])

    def _recorded_s(self, run: Sequence[UnitRun]) -> float:
        return sum(
            sum(unit.prompt_tokens) * self._settings.prompt_token_s
            + sum(unit.output_tokens) * self._settings.output_token_s
            + unit.external_s
            for unit in run
        )

    def _rest_s(self, unit: UnitSamples) -> Floats:
        """Service after a unit, in a walk from each of its samples in turn."""
        begun = unit.samples[unit.start]
        upstream = begun[:, :3] if unit.is_llm else begun[:, _UP_PROMPT:]
        return self._walked(self._rng.choice(unit.after, _MOST_SAMPLES), upstream)

    def _walked(self, at: NDArray[np.object_], upstream: Floats) -> Floats:
        """Service in a walk from each of these units to the end."""
        demand_s, upstream = np.zeros(len(at)), upstream.copy()
        for _ in range(_MOST_UNITS):
            then = np.full(len(at), _END, object)
            for name in sorted(set(at.tolist()) - {_END}):
                unit, walks = self.units[name], np.flatnonzero(at == name)
                if self._settings.refines:
                    drawn = unit.drawn(upstream[walks], self._rng)
                else:
                    drawn = self._rng.integers(len(unit.samples), size=len(walks))
                demand_s[walks] += self._demand_s(unit.samples[drawn])
                if unit.is_llm:
                    upstream[walks] = unit.samples[drawn, :3]
                then[walks] = self._rng.choice(unit.after, len(walks))
            at = then
        return demand_s


@lru_cache(maxsize=64)
def graph_of(runs: tuple[tuple[UnitRun, ...], ...], settings: GraphSettings) -> PdGraph:
    """A graph that all runs of a process share: building one takes 0.04 s."""
    return PdGraph(runs, settings)


def _samples(
    runs: Sequence[Sequence[UnitRun]],
) -> dict[str, tuple[list[tuple[float, ...]], list[str]]]:
    """Samples of every unit and what came after each, the latest of all runs."""
    found: dict[str, tuple[list[tuple[float, ...]], list[str]]] = {}
    for run in runs:
        upstream = NO_UPSTREAM
        for unit, then in zip(run, [*(u.unit for u in run[1:]), _END], strict=True):
            own: Upstream = (0.0, 0.0, 0.0)
            if unit.prompt_tokens:
                own = upstream_of(unit.prompt_tokens, unit.output_tokens)
            samples, after = found.setdefault(unit.unit, ([], []))
            samples.append((*own, unit.external_s, *upstream))
            after.append(then)
            upstream = own if unit.prompt_tokens else upstream
    return {name: (s[-_MOST_SAMPLES:], a[-_MOST_SAMPLES:]) for name, (s, a) in found.items()}


def _correlation(one: Floats, other: Floats) -> float:
    """Pearson's coefficient where both are known; 0 where one of them does not vary."""
    both = ~np.isnan(one) & ~np.isnan(other)
    one, other = one[both], other[both]
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    return float(np.corrcoef(one, other)[0, 1])
