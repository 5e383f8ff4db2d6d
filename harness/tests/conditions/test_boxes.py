"""Boxes and nearest changes on made-up claims whose conditions are known."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pytest

from harness.conditions.boxes import told_boxes
from harness.conditions.changes import alone, nearest_alone, nearest_together
from harness.conditions.maps import Map
from harness.conditions.outcomes import Found, Outcome
from harness.conditions.space import Point, space_of
from harness.conditions.texts import box_text, condition
from harness.conditions.trials import Tried

SPACE = space_of(
    "made up",
    {
        "claims": {"made": None},
        "scenario": "none",
        "baseline": {},
        "log2_cells": 9,
        "dimensions": {
            "load": {"range": [0.2, 5.0]},
            "error": {"range": [0.0, 1.0], "reference": 0.2},
            "batch": {"range": [2, 256], "reference": 4},
            "spread": {"range": [0.3, 2.0]},
        },
    },
)
START = {"load": 0.5, "error": 0.2, "batch": 4.0, "spread": 1.0}


def found_at(share: float) -> Found:
    comes = share >= 2 / 3
    return Found(Outcome.COMES_OUT if comes else Outcome.NO_EFFECT, share, share, share, share)


def share_of(point: Point) -> float:
    """Comes out at loads of 1.2 and more where predictions are wrong by 0.6 at most."""
    return 1.0 if point["load"] >= 1.2 and point["error"] <= 0.6 else 0.1


def table_of(shares: Sequence[float], points: Sequence[Point]) -> pd.DataFrame:
    pairs = zip(points, shares, strict=True)
    return pd.DataFrame([Tried(at, {"made": found_at(share)}, 3).row for at, share in pairs])


def ask(points: Sequence[Point]) -> Iterator[Found]:
    return (found_at(share_of(one)) for one in points)


def test_a_planted_box_is_found() -> None:
    points = SPACE.sample()
    found = Map(SPACE, "made", table_of([*map(share_of, points)], points))
    (box,) = found.box
    assert set(box.box.limits) == {"load", "error"}
    assert box.box.limits["load"][0] == pytest.approx(1.2, rel=0.1)
    assert box.box.limits["error"][1] == pytest.approx(0.6, rel=0.1)
    assert min(box.density, box.coverage, *found.agrees) > 0.9
    assert [it.dimension for it in found.influences if it.is_seen] == ["load", "error"]
    assert condition(found).startswith(f"Comes out when {box_text(box.box, SPACE)}; right in ")


def test_shuffled_outcomes_have_no_box() -> None:
    points, rng = SPACE.sample(), np.random.default_rng(3)
    told = 0
    for _ in range(6):
        shares = rng.permutation([*map(share_of, points)])
        told += bool(Map(SPACE, "made", table_of(shares.tolist(), points)).box)
    assert told == 0


def test_few_cells_tell_nothing() -> None:
    columns = {"load": np.linspace(0.0, 1.0, 40)}
    assert told_boxes(columns, columns["load"] > 0.7, columns, columns["load"] > 0.7) == []


def test_the_nearest_change_is_found_alone() -> None:
    (change,) = nearest_alone(SPACE, START, alone(SPACE, START, ask), ask, comes=True)
    assert change.values == {"load": pytest.approx(1.2, rel=0.03)}
    assert change.move == pytest.approx(np.log(1.2 / 0.5) / np.log(25), rel=0.05)


def test_the_nearest_change_of_two_is_found() -> None:
    start = {**START, "error": 0.9}
    assert nearest_alone(SPACE, start, alone(SPACE, start, ask), ask, comes=True) == []

    def expect(points: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array([share_of({**START, **row}) for _, row in points.iterrows()])

    change = nearest_together(SPACE, start, expect, ask, several=2, enough=2 / 3)
    assert change is not None
    assert set(change.values) == {"load", "error"}
    assert change.values["load"] >= 1.2
    assert change.values["error"] <= 0.6
