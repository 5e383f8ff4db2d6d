"""Settings tried in several processes: what claims give in each, as rows of a table."""

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from traceback import extract_tb
from typing import Any, Protocol

import numpy as np
import pandas as pd

from harness.claims.effects import Cells, ratio, reduction
from harness.claims.paper import Claim, load_paper
from harness.conditions.cells import STATE, Ground, TriedRuns, ground_of
from harness.conditions.outcomes import IMPOSSIBLE, Found, found_of
from harness.conditions.space import Point, Restated, Space, space_of
from harness.config.paths import ROOT
from harness.runs.failures import Failure
from harness.runs.pool_worker import begin, cores_here
from harness.runs.run_key import Changed

OUTCOME, VALUE, LOW, HIGH, SHARE = "outcome", "value", "low", "high", "share"
CAPACITY, SEEDS, WHY = "capacity_per_s", "seeds", "impossible_since"


class Inquiry(Protocol):
    """Which claims are asked of which space; another process asks the same."""

    @property
    def space(self) -> Space:
        """Where they are looked for."""

    @property
    def claims(self) -> Mapping[str, Claim]:
        """By their ids."""


@dataclass(frozen=True, slots=True)
class OfPaper:
    """The claims of a paper's space."""

    paper: str
    name: str
    content: Mapping[str, Any]

    @property
    def space(self) -> Space:
        """As `Inquiry`."""
        return space_of(self.name, self.content)

    @property
    def claims(self) -> Mapping[str, Claim]:
        """As `Inquiry`. Raises ValueError for a claim that is not there, or not tested."""
        every = load_paper(self.paper).claims
        for name in self.space.claims:
            if name not in every or every[name].effect is None:
                raise ValueError(f"{self.name}: {name} is no claim of {self.paper} that is tested")
        return {name: asked(every[name], how) for name, how in self.space.claims.items()}


def asked(claim: Claim, how: Restated | None) -> Claim:
    """The claim as a space asks it: by its own function, or in one setting as it is restated."""
    if how is None:
        return claim
    effect = reduction if claim.unit == "%" else ratio
    return replace(claim, effect=lambda cells: effect(cells, how.figure, of=how.of, over=how.over))


@dataclass(frozen=True, slots=True)
class Tried:
    """A setting, what each claim gives in it, and what its baseline went through."""

    setting: Point
    found: Mapping[str, Found]
    seeds: int
    capacity_per_s: float = np.nan
    state: Mapping[str, float] | None = None
    why: str = ""
    """The setting is impossible: the sentence."""

    @property
    def row(self) -> dict[str, object]:
        """One flat row; columns of claims are `<claim> <what>`."""
        row: dict[str, object] = {**self.setting, CAPACITY: self.capacity_per_s, SEEDS: self.seeds}
        row |= {name: (self.state or {}).get(name, np.nan) for name in STATE}
        for name, one in self.found.items():
            row |= {
                f"{name} {OUTCOME}": one.outcome.value,
                f"{name} {VALUE}": one.value,
                f"{name} {LOW}": one.low,
                f"{name} {HIGH}": one.high,
                f"{name} {SHARE}": one.share,
            }
        return row | {WHY: self.why}


def tried(ground: Ground, claims: Mapping[str, Claim], setting: Point, seeds: int) -> Tried:
    """A setting with so many seeds, and up to the space's most where these leave a claim open.

    What the harness refuses is impossible. Raises ValueError for an error of a policy.
    """
    most = ground.space.most_seeds
    try:
        served = ground.serve(setting, range(seeds))
        found = _found(claims, served.cells)
        if seeds < most and any(one.is_open for one in found.values()):
            more = ground.serve(setting, range(seeds, most))
            cells = pd.concat([served.cells, more.cells], ignore_index=True)
            served, seeds = TriedRuns(cells, served.state), most
            found = _found(claims, served.cells)
    except Changed:  # of the program, not of the setting
        raise
    except Exception as error:
        if not _is_refused(error):
            raise ValueError(f"{_place_of(setting)}: {Failure.of(error).sentence}") from error
        why = " ".join(str(error).split())
        return Tried(setting, dict.fromkeys(claims, IMPOSSIBLE), seeds, why=why)
    return Tried(setting, found, seeds, ground.capacity_per_s(setting), served.state)


def _is_refused(error: Exception) -> bool:
    """Whether the harness says that a setting cannot be, and neither a policy nor a library.

    An illegal decision, which is a kind of ValueError, is the policy's.
    """
    if type(error) is not ValueError:
        return False
    raised_in = Path(extract_tb(error.__traceback__)[-1].filename)
    return raised_in.is_relative_to(ROOT / "harness")


def _place_of(setting: Point) -> str:
    """Where an error came up."""
    return "with " + ", ".join(f"{name} {value:.4g}" for name, value in setting.items())


def _found(claims: Mapping[str, Claim], cells: Cells) -> dict[str, Found]:
    return {name: found_of(claim, cells) for name, claim in claims.items()}


@cache
def _asked() -> tuple[Ground, Mapping[str, Claim]]:
    assert _question is not None
    return ground_of(_question.space), _question.claims


_question: Inquiry | None = None


def _begin(question: Inquiry, parent: int) -> None:
    global _question
    _question = question
    begin(parent)


def _try_here(setting: Point, seeds: int) -> Tried:
    ground, claims = _asked()
    return tried(ground, claims, setting, seeds)


class Trials:
    """Processes that try settings of one question, each once; a context, which ends them."""

    def __init__(self, question: Inquiry, workers: int | None = None) -> None:
        self._pool = ProcessPoolExecutor(
            workers or cores_here(),
            multiprocessing.get_context("spawn"),
            initializer=_begin,
            initargs=(question, os.getpid()),
        )
        self._asked: dict[tuple[str, int], Future[Tried]] = {}

    def __enter__(self) -> "Trials":
        """Nothing runs yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)

    def run(self, settings: Sequence[Point], seeds: int) -> Iterator[Tried]:
        """Each setting, in this order, as it is done."""
        for one in [self._tried(setting, seeds) for setting in settings]:
            yield one.result()

    def _tried(self, setting: Point, seeds: int) -> Future[Tried]:
        key = (repr(sorted(setting.items())), seeds)
        if key not in self._asked:  # claims of a space ask for the same settings
            self._asked[key] = self._pool.submit(_try_here, setting, seeds)
        return self._asked[key]
