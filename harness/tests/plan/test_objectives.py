"""Objectives as texts, and their values over requests."""

import numpy as np
import pytest

from harness.capacity.objectives import Objective, parse_objectives


def test_objectives_are_read_with_their_defaults() -> None:
    found = parse_objectives("ttft 1.0 p95, TPOT 50e-3 p99.9, itl 0.5s,jct 60 mean")
    assert [(it.metric, it.limit_s) for it in found] == [
        ("ttft", 1.0),
        ("tpot", 0.05),
        ("itl", 0.5),
        ("jct", 60.0),
    ]
    assert [it.text for it in found] == [
        "ttft 1 p95",
        "tpot 0.05 p99.9",
        "itl 0.5 p95",
        "jct 60 mean",
    ]
    assert [it.least_requests for it in found] == [20, 1000, 20, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no objective"),
        ("ttft", "objective 'ttft' is not METRIC SECONDS pNN"),
        ("ttft 1 p95 more", "is not METRIC SECONDS pNN"),
        ("tfft 1", "No metric is called 'tfft'; closest: ttft"),
        ("ttft one", "one is no number of seconds"),
        ("ttft -1", "-1 seconds are not above 0"),
        ("ttft nan", "nan seconds are not above 0"),
        ("ttft 1 p0", "p0 is neither a percentile, as p95, nor mean"),
        ("ttft 1 p100", "p100 is neither"),
        ("ttft 1 p95, ttft 2", "two limits for ttft p95"),
    ],
)
def test_a_bad_objective_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"objective|limits") as refused:
        parse_objectives(text)
    assert said in str(refused.value)


def test_values_are_those_of_numpy_but_for_requests_without_one_and_unfinished_ones() -> None:
    rng = np.random.default_rng(0)
    seconds = rng.exponential(size=(3, 101))
    objective = Objective("ttft", 1.0, 0.95)
    assert objective.value_s(seconds) == pytest.approx(np.quantile(seconds, 0.95, axis=-1))
    assert Objective("jct", 1.0, None).value_s(seconds) == pytest.approx(seconds.mean(axis=-1))
    without = np.append(seconds[0], [np.nan] * 7)
    assert objective.value_s(without) == pytest.approx(np.quantile(seconds[0], 0.95))
    assert np.isnan(objective.value_s(np.array([np.nan])))
    late = np.append(np.ones(95), [np.inf] * 5)
    assert not objective.is_kept(float(objective.value_s(late)))
    assert objective.is_kept(float(objective.value_s(np.append(np.ones(97), [np.inf] * 3))))
    assert Objective("ttft", 9.0, None).value_s(late) == np.inf
