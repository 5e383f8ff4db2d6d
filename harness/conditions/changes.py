"""The nearest change of a paper's own point that brings a claim, or loses it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import isclose

import numpy as np
import pandas as pd

from harness.conditions.outcomes import Found, Outcome
from harness.conditions.space import Dimension, Point, Space

PLACES = 9
"""Of each dimension that are tried alone."""
BISECTIONS = 6
GRIDS = {2: 17, 3: 9}
"""Places of a dimension at which changes of two and of three are expected."""
EACH, MOST, ASKED = 2, 20, 4
"""Expected changes that are tried: of one pair of dimensions, in all, and at once."""

Ask = Callable[[Sequence[Point]], Iterator[Found]]
"""What a claim gives in settings."""
Expect = Callable[[pd.DataFrame], "np.ndarray[tuple[int], np.dtype[np.float64]]"]
"""The share of the claimed effect that is expected in settings."""


@dataclass(frozen=True, slots=True)
class LoneMove:
    """One dimension moved alone from a paper's point: where to, and what comes out there."""

    dimension: str
    value: float
    found: Found


@dataclass(frozen=True, slots=True)
class Change:
    """Values that bring a claim, or lose it, where all else is as at the paper's point.

    `move` is the sum of the moves, each as a share of its range.
    """

    values: Mapping[str, float]
    move: float
    found: Found


def alone(space: Space, start: Point, ask: Ask) -> list[LoneMove]:
    """What comes out where one dimension at a time has each of `PLACES` values of its range."""
    shares = np.linspace(0.0, 1.0, PLACES)
    moves = [(it, it.at(share)) for it in space.dimensions for share in shares]
    found = ask([{**start, one.name: value} for one, value in moves])
    return [
        LoneMove(one.name, value, what) for (one, value), what in zip(moves, found, strict=True)
    ]


def nearest_alone(
    space: Space, start: Point, steps: Sequence[LoneMove], ask: Ask, *, comes: bool
) -> list[Change]:
    """Of every dimension that turns a claim alone the nearest value that does, nearest first.

    With `comes` one where it comes out; else one where it does no longer.
    """
    turns = []
    for one in space.dimensions:
        own = one.share(start[one.name])
        turned = [it for it in steps if it.dimension == one.name and _is(it.found, comes)]
        if turned:
            near = min(turned, key=lambda it: abs(one.share(it.value) - own))
            turns.append(({one.name: one.share(near.value)}, near.found))
    return sorted(_bisected(space, start, turns, ask, comes=comes), key=lambda it: it.move)


def nearest_together(
    space: Space, start: Point, expect: Expect, ask: Ask, *, several: int, enough: float
) -> Change | None:
    """The nearest change of two or three dimensions that brings a claim.

    Of those that are expected to give `enough` of it the nearest are tried until one does; None
    where none does.
    """
    candidates = list(_candidates(space, start, several))
    table = pd.DataFrame([_changed(space, start, shares) for shares in candidates])
    expected = expect(table)
    order = sorted(
        (_move(space, start, shares), at)
        for at, shares in enumerate(candidates)
        if expected[at] >= enough
    )
    tries: dict[tuple[str, ...], int] = {}
    likely = []
    for _, at in order:
        names = tuple(candidates[at])
        tries[names] = tries.get(names, 0) + 1
        if tries[names] <= EACH:
            likely.append(candidates[at])
    for at in range(0, min(len(likely), MOST), ASKED):
        tried = likely[at : at + ASKED]
        found = ask([_changed(space, start, shares) for shares in tried])
        came = [(shares, it) for shares, it in zip(tried, found, strict=True) if _is(it, True)]
        if came:
            return _bisected(space, start, came[:1], ask, comes=True)[0]
    return None


def _candidates(space: Space, start: Point, several: int) -> Iterator[dict[str, float]]:
    """Changes of so many dimensions at once, each at places of its range."""
    places = np.linspace(0.0, 1.0, GRIDS[several]).tolist()
    for group in combinations(space.dimensions, several):
        moved = [
            [it for it in places if not isclose(it, one.share(start[one.name]), abs_tol=0.02)]
            for one in group
        ]
        for shares in product(*moved):
            yield dict(zip((one.name for one in group), shares, strict=True))


def _bisected(
    space: Space,
    start: Point,
    turns: Sequence[tuple[Mapping[str, float], Found]],
    ask: Ask,
    *,
    comes: bool,
) -> list[Change]:
    """Of each change that turns a claim the nearest point on the way to it that does, too.

    All are halved together, so that their settings are tried at once.
    """
    ways = []
    for shares, found in turns:
        own = {name: space.dimension(name).share(start[name]) for name in shares}
        ways.append(_Way(own, shares, found))
    for _ in range(BISECTIONS):
        asked = [_changed(space, start, way.at((way.near + way.far) / 2)) for way in ways]
        for way, what in zip(ways, ask(asked), strict=True):
            way.halve(what, _is(what, comes))
    changes = []
    for way in ways:
        ends = way.at(way.far)
        values = {name: space.dimension(name).at(share) for name, share in ends.items()}
        changes.append(Change(values, _move(space, start, ends), way.found))
    return changes


@dataclass
class _Way:
    """From a paper's point to a change that turns a claim; it turns between `near` and `far`."""

    own: Mapping[str, float]
    end: Mapping[str, float]
    found: Found
    near: float = 0.0
    far: float = 1.0

    def at(self, part: float) -> dict[str, float]:
        """The shares of the ranges at a part of the way."""
        return {name: own + part * (self.end[name] - own) for name, own in self.own.items()}

    def halve(self, found: Found, turned: bool) -> None:
        """By what comes out in the middle."""
        middle = (self.near + self.far) / 2
        if turned:
            self.far, self.found = middle, found
        else:
            self.near = middle


def _changed(space: Space, start: Point, shares: Mapping[str, float]) -> Point:
    return {**start, **{name: space.dimension(name).at(it) for name, it in shares.items()}}


def _move(space: Space, start: Point, shares: Mapping[str, float]) -> float:
    own: dict[str, Dimension] = {name: space.dimension(name) for name in shares}
    return sum(abs(at - own[name].share(start[name])) for name, at in shares.items())


def _is(found: Found, comes: bool) -> bool:
    if found.outcome is Outcome.IMPOSSIBLE:
        return False
    return (found.outcome is Outcome.COMES_OUT) == comes
