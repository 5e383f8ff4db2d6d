"""Intervals of one trace: blocks of it, and how often they hold the truth."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from harness.runs.limits import limits_sentence, loose_limits, unlike_limits
from harness.runs.trace_intervals import (
    BLOCK,
    Contrast,
    Served,
    block_requests,
    contrast,
    draws_of,
    trace_intervals,
)

Floats = NDArray[np.float64]


def served(met: Floats | None = None, span_s: float = 100.0, **latencies: Floats) -> Served:
    """A run of as many requests as there are values, which end one after the other."""
    count = len(next(iter([*latencies.values(), *([] if met is None else [met])])))
    ended_s = span_s * (np.arange(count) + 0.5) / count
    return Served(latencies, met, ended_s, np.full(count, 10.0), span_s)


def test_draws_are_blocks_of_consecutive_requests() -> None:
    """Of 40 requests, 20 blocks of two; the one behind the last request is the first."""
    assert [block_requests(count) for count in (39, 40, 1000)] == [0, 2, 50]
    places = draws_of(40)
    assert places.shape == (1000, 40)
    assert ((places[:, 1::2] - places[:, ::2]) % 40 == 1).all()


def test_an_interval_surrounds_the_figure() -> None:
    run = served(jct_s=np.linspace(1.0, 100.0, 100), tpot_s=np.full(100, np.nan))
    figures = {"jct_s_mean": 50.5, "jct_s_p99": np.nan, "tpot_s_mean": np.nan}
    found = trace_intervals(run, figures)
    assert found.keys() == {BLOCK, "jct_s_mean"}
    span = found["jct_s_mean"]
    assert isinstance(span, dict)
    assert span["low"] < 50.5 < span["high"]


def test_a_short_trace_has_no_interval() -> None:
    run = served(jct_s=np.ones(39))
    assert trace_intervals(run, {"jct_s_mean": 1.0}) == {BLOCK: 0.0}
    assert contrast(run, run, "jct_s_mean") == Contrast(None, None)
    assert contrast(run, run, "jct_s_mean").sign is None


def test_both_runs_have_the_same_blocks() -> None:
    """Twice as long for every request is twice as long in every draw."""
    jct_s = np.random.default_rng(1).exponential(size=200)
    found = contrast(served(jct_s=2 * jct_s), served(jct_s=jct_s), "jct_s_mean")
    assert found.ratio is not None
    assert (found.ratio.value, *found.ratio.ends) == pytest.approx((2.0, 2.0, 2.0))
    assert found.sign == 1
    assert contrast(served(jct_s=jct_s), served(jct_s=jct_s), "gpu_idle_s") == Contrast(None, None)


def test_attainment_and_rates_are_contrasted() -> None:
    """Objectives met by every second request against every fifth, and by none."""
    half, fifth = (np.arange(400) % size == 0 for size in (2, 5))
    more, less, none = (served(it.astype(float)) for it in (half, fifth, half & ~half))
    for figure in ("slo_attainment", "goodput_per_s"):
        assert contrast(more, less, figure).sign == 1
        assert contrast(less, more, figure).sign == -1
        assert contrast(more, more, figure).sign == 0
        found = contrast(more, none, figure)
        assert (found.ratio, found.sign) == (None, 1)
    slow = served(half.astype(float), span_s=200.0)
    for figure in ("requests_per_s", "output_tokens_per_s", "goodput_per_s"):
        found = contrast(more, slow, figure)
        assert found.ratio is not None
        assert found.ratio.value == pytest.approx(2.0)


def test_percentiles_over_draws_are_those_of_numpy() -> None:
    """Also where some requests have no such latency."""
    values = np.random.default_rng(4).exponential(size=200)
    values[::7] = np.nan
    found = served(tpot_s=values).drawn("tpot_s_p90")
    assert found is not None
    expected = np.nanquantile(values[draws_of(200)], 0.9, axis=-1)
    np.testing.assert_allclose(found[1], expected)


def test_a_share_of_one_has_a_binomial_interval() -> None:
    """Wilson: of n successes in n the lower end is n / (n + 1.96^2)."""
    span = trace_intervals(served(np.ones(400)), {"slo_attainment": 1.0})["slo_attainment"]
    assert isinstance(span, dict)
    assert span["low"] == pytest.approx(400 / (400 + 1.96**2), rel=1e-4)
    assert span["high"] == 1.0


def _dependent(rng: np.random.Generator) -> Floats:
    """Waits that depend on those before them over some ten requests (an AR(1) of 0.8)."""
    noise, waits = rng.normal(size=2000), np.zeros(2000)
    for row in range(1, 2000):
        waits[row] = 0.8 * waits[row - 1] + noise[row]
    return waits


def _waits(rng: np.random.Generator) -> Served:
    return served(jct_s=_dependent(rng))


def _shares(rng: np.random.Generator) -> Served:
    return served((_dependent(rng) < 0).astype(float))


def _rates(rng: np.random.Generator) -> Served:
    """About 20 requests a second for 100 s."""
    ended_s = np.sort(rng.uniform(0, 100, rng.poisson(2000)))
    return Served({}, None, ended_s, np.ones(len(ended_s)), 100.0)


@pytest.mark.parametrize(
    ("run", "figure", "truth"),
    [(_waits, "jct_s_mean", 0.0), (_shares, "slo_attainment", 0.5), (_rates, "requests_per_s", 20)],
)
def test_intervals_hold_the_truth_nearly_as_often_as_they_say(
    run: Callable[[np.random.Generator], Served], figure: str, truth: float
) -> None:
    rng, hits, runs = np.random.default_rng(2), 0, 200
    for _ in range(runs):
        span = trace_intervals(run(rng), {figure: truth})[figure]
        assert isinstance(span, dict)
        hits += span["low"] <= truth <= span["high"]
    assert hits / runs > 0.85


ROWS = pd.DataFrame(
    {
        "config.chosen.policy": ["vllm", "few", "vllm"],
        "config.hardware.gpu": "H100-80G",
        "config.hardware.profile": "roofline",
        "config.engine.max_num_seqs": [1024] * 3,
        "config.engine.max_num_batched_tokens": [8192] * 3,
        "config.policy.rule.max_num_seqs": [1024, 4, np.nan],
    }
)


def test_unlike_limits_are_said() -> None:
    assert unlike_limits(ROWS) == "unlike limits: max_num_seqs 4 (few) against 1,024"
    assert limits_sentence(ROWS) == unlike_limits(ROWS)
    assert limits_sentence(ROWS.iloc[[0, 2]]) == (
        "limits: max_num_seqs 1,024 and max_num_batched_tokens 8,192, the defaults of a vLLM "
        "server on this GPU"
    )


def test_a_limit_of_the_engine_that_no_batch_reaches_is_said() -> None:
    assert loose_limits(ROWS, {"engine.max_num_seqs"}) == [
        "engine.max_num_seqs is the most that a policy may have; policies here state 4"
    ]
    assert loose_limits(ROWS, ()) == []
    assert loose_limits(ROWS.iloc[[0]], {"engine.max_num_seqs"}) == []
