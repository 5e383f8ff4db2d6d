"""Two specifications' figures: told apart by more than noise."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from harness.claims.apart import are_apart, extremes, turned
from harness.claims.quantities import Measured
from harness.claims.verdicts import TOLERANCE, Band
from harness.runs.stats import Floats


def measured(values: Floats, quantity: str = "value") -> Measured:
    """Of [seeds, settings]."""
    settings = [{"place": number} for number in range(values.shape[1])]
    return Measured(label="", quantity=quantity, settings=settings, system=values, baseline=values)


BAND = Band(1.1, 2.4, 0.1)


def gain(speedups: Floats) -> Measured:
    """Of a baseline over a system of one second each."""
    settings = [{"place": number} for number in range(speedups.shape[1])]
    about: dict[str, Any] = {"label": "", "quantity": "speedup", "settings": settings}
    return Measured(**about, system=np.ones_like(speedups), baseline=speedups)


def test_noise_is_not_apart_as_often_as_is_said() -> None:
    """Of 1,000 pairs of one distribution at ten settings at most some 5% are."""
    draw = np.random.default_rng(0)
    draws = [(draw.normal(size=(5, 10)), draw.normal(size=(5, 10))) for _ in range(1000)]
    share = np.mean([are_apart([measured(a)], [measured(b)]) for a, b in draws])
    assert 0.02 < share < 0.07


def test_what_both_share_by_seed_hides_nothing() -> None:
    draw = np.random.default_rng(1)
    shared, own = 10 * draw.normal(size=(5, 1)) + np.zeros(3), 0.01 * draw.normal(size=(5, 3))
    assert are_apart([measured(shared + own + 0.2)], [measured(shared)])
    assert not are_apart([measured(shared + own)], [measured(shared)])


@pytest.mark.parametrize(("change", "apart"), [(0.0, False), (1e-6, True)])
def test_without_scatter_any_change_is_one(change: float, apart: bool) -> None:
    one = np.ones((5, 2))
    assert are_apart([measured(one + change)], [measured(one)]) is apart
    assert are_apart([measured(one[:1] + change)], [measured(one[:1])]) is apart


def test_only_the_figure_that_counts_is_looked_at() -> None:
    """The largest is what it was; a smaller one has changed, and so has the smallest."""
    one, other = np.tile([1.0, 2.0, 3.0], (5, 1)), np.tile([1.5, 2.5, 3.0], (5, 1))
    sides = [measured(one)], [measured(other)]
    assert are_apart(*sides)
    assert not are_apart(*sides, partial(extremes, take="largest"))
    assert are_apart(*sides, partial(extremes, take="smallest"))
    assert extremes(*sides, take="mean") is None


def test_of_a_range_what_agrees_in_another_way_is_looked_at() -> None:
    """The third of three settings leaves 1.1 to 2.4, and with it the largest; the average stays."""
    stated = np.tile([1.1, 1.5, 2.4], (5, 1)) + np.linspace(-1, 1, 5)[:, None] * 0.001
    noisy = stated + np.array([0.03, 0.0, 0.5]) + np.outer([1, -1, 1, -1, 0], [0.0, 0.0, 0.9])
    turning = partial(turned, band=BAND, tolerance=TOLERANCE)
    picks = turning([gain(noisy)], [gain(stated)])
    assert picks is not None
    np.testing.assert_array_equal(picks, [[0.0], [0.0], [1.0]])
    # The first has changed for certain, by a trifle that turns nothing: that tells nothing.
    assert are_apart([gain(noisy)], [gain(stated)])
    assert not are_apart([gain(noisy)], [gain(stated)], turning)
    assert turning([gain(stated)], [gain(stated)]) is None


def test_what_cannot_be_paired_counts_as_apart() -> None:
    one = np.ones((5, 2))
    assert are_apart([measured(one)], [measured(one[:4])])
    assert are_apart([measured(one)], [measured(one[:, :1])])
