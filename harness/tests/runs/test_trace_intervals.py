"""Intervals of one trace: blocks of it, and how often they hold the truth."""

import numpy as np
import pandas as pd
import pytest

from harness.runs.limits import loose_limits, unlike_limits
from harness.runs.trace_intervals import (
    BLOCK,
    block_requests,
    draws_of,
    paired_interval,
    trace_intervals,
)


def test_draws_are_blocks_of_consecutive_requests() -> None:
    """Of 40 requests, 20 blocks of two; the one behind the last request is the first."""
    assert [block_requests(count) for count in (39, 40, 1000)] == [0, 2, 50]
    places = draws_of(40)
    assert places.shape == (1000, 40)
    assert ((places[:, 1::2] - places[:, ::2]) % 40 == 1).all()


def test_an_interval_surrounds_the_figure() -> None:
    values = {"jct_s": np.arange(1.0, 101.0), "tpot_s": np.full(100, np.nan)}
    found = trace_intervals(
        values, {"jct_s_mean": 50.5, "jct_s_p99": np.nan, "tpot_s_mean": np.nan}
    )
    assert found.keys() == {BLOCK, "jct_s_mean"}
    span = found["jct_s_mean"]
    assert isinstance(span, dict)
    assert span["low"] < 50.5 < span["high"]


def test_a_short_trace_has_no_interval() -> None:
    assert trace_intervals({"jct_s": np.ones(39)}, {"jct_s_mean": 1.0}) == {BLOCK: 0.0}


def test_both_runs_have_the_same_blocks() -> None:
    """Twice as long for every request is twice as long in every draw."""
    rng = np.random.default_rng(1)
    one = {"jct_s": rng.exponential(size=200)}
    found = paired_interval({"jct_s": 2 * one["jct_s"]}, one, "jct_s_mean")
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))
    assert paired_interval(one, one, "gpu_idle_s") is None


def test_intervals_hold_the_mean_of_dependent_waits_nearly_as_often_as_they_say() -> None:
    """Waits that depend on those before them over some ten requests (an AR(1) of 0.8)."""
    rng, hits, runs = np.random.default_rng(2), 0, 200
    for _ in range(runs):
        waits = np.zeros(2000)
        noise = rng.normal(size=2000)
        for row in range(1, 2000):
            waits[row] = 0.8 * waits[row - 1] + noise[row]
        span = trace_intervals({"jct_s": waits}, {"jct_s_mean": 0.0})["jct_s_mean"]
        assert isinstance(span, dict)
        hits += span["low"] <= 0.0 <= span["high"]
    assert hits / runs > 0.85


def test_unlike_limits_are_said() -> None:
    rows = pd.DataFrame({"config.policy.rule.max_num_seqs": [256, 4, 256]})
    assert unlike_limits(rows) == "compared under unlike limits: max_num_seqs of 4 and 256"
    assert unlike_limits(rows.iloc[[0, 2]]) is None


def test_a_limit_of_the_engine_that_no_batch_reaches_is_said() -> None:
    rows = pd.DataFrame(
        {
            "config.engine.max_num_batched_tokens": [2048, 65536],
            "config.policy.rule.max_num_batched_tokens": [2048, 2048],
        }
    )
    assert loose_limits(rows, {"engine.max_num_batched_tokens"}) == [
        "engine.max_num_batched_tokens is the most that a policy may ask for; batches here have at "
        "most 2,048 (policy.rule.max_num_batched_tokens)"
    ]
    assert loose_limits(rows, ()) == []
    assert loose_limits(rows.iloc[[0]], {"engine.max_num_batched_tokens"}) == []
