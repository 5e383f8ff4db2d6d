"""A predictor that only compares."""

import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from harness.predictors.pairwise import Pairwise
from harness.tests.serving import workload
from harness.workloads.workload import Workload


def lengths(count: int = 300) -> Workload:
    """Answers of different lengths in no order."""
    drawn = np.random.default_rng(1).permutation(np.arange(2, 2 + count))
    return workload([10] * count, drawn.tolist())


def predicted(load: Workload, *, accuracy: float, seed: int = 0) -> np.ndarray:
    """What it says of every request, in order."""
    made = Pairwise(accuracy=accuracy, latency_s=0.01, window=10_000, lengths="lmsys_vicuna13b")
    predictor = made.of(load, seed)
    return np.array([predictor.predict(load.facts(i))[0].mean_tokens for i in range(len(load))])


@pytest.mark.parametrize(("accuracy", "least", "most"), [(1.0, 0.9, 1.0), (0.0, -1.0, -0.9)])
def test_comparisons_that_are_always_right_or_wrong_give_the_order(
    accuracy: float, least: float, most: float
) -> None:
    """Up to the first few, which are placed among hardly any others."""
    load = lengths()
    found = predicted(load, accuracy=accuracy)
    assert least <= spearmanr(found, load.output_tokens).statistic <= most


def test_a_coin_says_nothing() -> None:
    load = lengths(1000)
    found = predicted(load, accuracy=0.5)
    assert abs(spearmanr(found, load.output_tokens).statistic) < 0.1


def test_the_last_of_many_gets_the_length_at_its_place() -> None:
    """2 to 100 in ascending order and then 51, which is longer than half of them."""
    load = workload([10] * 100, [*range(2, 101), 51])
    found = predicted(load, accuracy=1.0)
    assert (np.diff(found[:99]) >= 0).all()
    median = predicted(workload([10], [5]), accuracy=1.0)[0]
    assert found[99] == pytest.approx(median, rel=0.05)


def test_a_place_takes_as_many_comparisons_as_a_binary_search() -> None:
    load = lengths(70)
    made = Pairwise(accuracy=1.0, latency_s=0.01, window=32, lengths="lmsys_vicuna13b")
    predictor = made.of(load, 0)
    seconds = [predictor.predict(load.facts(i))[1] for i in range(70)]
    for place, spent_s in enumerate(seconds):
        others = min(place, 31)  # the oldest of a full window has gone
        assert spent_s == pytest.approx(0.01 * math.ceil(math.log2(others + 1)))


def test_same_seed_same_predictions() -> None:
    load = lengths()
    first = predicted(load, accuracy=0.7)
    assert (predicted(load, accuracy=0.7) == first).all()
    assert (predicted(load, accuracy=0.7, seed=1) != first).any()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"accuracy": 1.2}, r"predictor.accuracy is 1.2, it must lie between 0 and 1"),
        ({"latency_s": -1.0}, r"predictor.latency_s is -1.0, it cannot be negative"),
        ({"window": 0}, r"predictor.window is 0, it must be at least 1"),
        ({"lengths": "lmsys"}, r"No length profile is called 'lmsys'"),
    ],
)
def test_what_means_nothing_is_refused(changed: dict[str, object], sentence: str) -> None:
    usual = {"accuracy": 0.7, "latency_s": 0.01, "window": 8, "lengths": "lmsys_vicuna13b"}
    with pytest.raises(ValueError, match=sentence):
        Pairwise(**(usual | changed))  # type: ignore[arg-type]
