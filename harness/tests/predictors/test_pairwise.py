"""A predictor that compares: its order, its seconds, its memory, by hand."""

from math import ceil, log2
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from harness.predictors.pairwise import Pairwise
from harness.tests.support.serving import workload
from harness.workloads.ecdf import load_lengths
from harness.workloads.workload import Workload

LENGTHS = "lmsys_vicuna13b"


def made(**changes: Any) -> Pairwise:
    """One that never errs and remembers everything, with changes."""
    usual: dict[str, Any] = {"accuracy": 1.0, "errors": "alike", "latency_s": 0.5}
    usual |= {"window": 10_000}
    return Pairwise(**(usual | {"lengths": LENGTHS} | changes))


def shuffled(count: int = 800) -> Workload:
    """Answers of 1 to `count` tokens in any order, none twice."""
    outputs = np.random.default_rng(3).permutation(count) + 1
    return workload([10] * count, outputs.tolist())


def asked(predictor: Pairwise, load: Workload, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and seconds of every request, in the order of arrival."""
    comparing = predictor.of(load, seed)
    found = [comparing.predict(load.facts(i)) for i in range(len(load))]
    return (
        np.array([prediction.mean_tokens for prediction, _ in found]),
        np.array([latency_s for _, latency_s in found]),
    )


def at_shares(places: list[int], among: list[int]) -> list[float]:
    """Lengths in the middle of the n-th of so many equal shares of the distribution."""
    shares = (np.array(places) + 0.5) / np.array(among)
    tokens: list[float] = load_lengths(LENGTHS).at_share(shares).astype(float).tolist()
    return tokens


def test_places_by_hand() -> None:
    """30 is alone; 10 is before it, 40 behind both, 20 in second place of four."""
    found, _ = asked(made(), workload([5] * 4, [30, 10, 40, 20]))
    assert found.tolist() == at_shares([0, 0, 2, 1], [1, 2, 3, 4])


@pytest.mark.parametrize(("accuracy", "sign"), [(1.0, 1), (0.0, -1)])
def test_who_always_or_never_errs_gives_every_exact_place(accuracy: float, sign: int) -> None:
    """The place among all that came before is exact; early ones have few to be placed among."""
    load = shuffled()
    found, _ = asked(made(accuracy=accuracy), load)
    true = sign * load.output_tokens
    count = len(load)
    places = [int((true[:i] < true[i]).sum()) for i in range(count)]
    assert found.tolist() == at_shares(places, list(range(1, count + 1)))
    assert sign * spearmanr(found, load.output_tokens).statistic > 0.98


def test_more_accurate_is_better() -> None:
    load = shuffled()
    found = [asked(made(accuracy=accuracy), load)[0] for accuracy in (0.5, 0.6, 0.75, 0.9, 1.0)]
    ranks = [spearmanr(one, load.output_tokens).statistic for one in found]
    assert ranks == sorted(ranks)


def test_seconds_are_those_of_a_binary_search() -> None:
    _, seconds = asked(made(), shuffled(70))
    assert seconds.tolist() == [0.5 * ceil(log2(n + 1)) for n in range(70)]
    assert seconds[:5].tolist() == [0.0, 0.5, 1.0, 1.0, 1.5]


def test_only_the_latest_are_compared_with() -> None:
    """Of a window of three, the new one included: 5 is the shortest of 30, 40, 5, not of 10 too.

    10 is forgotten when 5 comes, 30 when 35 comes, which is then between 5 and 40.
    """
    found, seconds = asked(made(window=3), workload([5] * 5, [10, 30, 40, 5, 35]))
    assert found.tolist() == at_shares([0, 1, 2, 0, 1], [1, 2, 3, 3, 3])
    assert seconds.tolist() == [0.0, 0.5, 1.0, 1.0, 1.0]


def test_the_same_seed_errs_alike_twice() -> None:
    load, predictor = shuffled(300), made(accuracy=0.7)
    first, again, other = (asked(predictor, load, seed)[0] for seed in (4, 4, 5))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accuracy": 1.2}, r"predictor\.accuracy is 1\.2, it must lie between 0 and 1"),
        ({"accuracy": float("nan")}, r"predictor\.accuracy is nan, it must lie between 0 and 1"),
        ({"latency_s": -1}, r"predictor\.latency_s is -1, it cannot be negative"),
        ({"window": 0}, r"predictor\.window is 0, it must be at least 1"),
        ({"lengths": "bort"}, r"No length profile is called 'bort'"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        made(**changes)


def test_errors_by_the_gap_are_as_many_and_cost_less_order() -> None:
    """As often right on the mean over pairs, wide gaps nearly always: the order is kept better."""
    load = shuffled()
    truth = load.output_tokens
    kept = {
        errors: spearmanr(truth, asked(made(accuracy=0.75, errors=errors), load)[0]).statistic
        for errors in ("alike", "by_gap")
    }
    assert kept["by_gap"] > kept["alike"] + 0.05
    assert spearmanr(truth, asked(made(errors="by_gap"), load)[0]).statistic > 0.99
    coin = asked(made(accuracy=0.5, errors="by_gap"), load)[0]
    assert abs(spearmanr(truth, coin).statistic) < 0.15


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"errors": "wide"}, "predictor.errors=wide is not one of alike, by_gap"),
        ({"errors": "by_gap", "accuracy": 0.4}, "predictor.accuracy is 0.4, by the gap it is"),
    ],
)
def test_errors_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        made(**changes)
