"""Two specifications' figures: told apart by more than noise."""

import numpy as np
import pytest

from harness.claims.apart import are_apart, extreme_of
from harness.claims.quantities import Measured
from harness.runs.stats import Floats


def measured(values: Floats, quantity: str = "value") -> Measured:
    """Of [seeds, settings]."""
    settings = [{"place": number} for number in range(values.shape[1])]
    return Measured(label="", quantity=quantity, settings=settings, system=values, baseline=values)


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
    assert are_apart([measured(one)], [measured(other)])
    assert not are_apart([measured(one)], [measured(other)], extreme=extreme_of("largest"))
    assert are_apart([measured(one)], [measured(other)], extreme=extreme_of("smallest"))
    assert extreme_of("mean") is None


def test_what_cannot_be_paired_counts_as_apart() -> None:
    one = np.ones((5, 2))
    assert are_apart([measured(one)], [measured(one[:4])])
    assert are_apart([measured(one)], [measured(one[:, :1])])
