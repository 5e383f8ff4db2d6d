"""Gaps between single tokens: by hand, and the same from compiled and from stepped groups."""

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from harness.engines.recorder import Recorder
from harness.engines.token_gaps import BINS, add_gaps, gap_quantile
from harness.runs.latencies import gap_figures
from harness.tests.support.serving import FlatCosts, LinearCosts, rule, serve, workload


@pytest.mark.parametrize("fast", [True, False])
def test_a_prefill_stalls_the_requests_that_decode(fast: bool) -> None:
    """A prompt takes 0.5 s and a step 0.25 s; the second prompt comes after two tokens.

    The first request has tokens at 0.5, 0.75 and, behind the second prompt, at 1.5 s; the second
    at 1.25 and 1.5 s.
    """
    recorder = serve(
        workload([9, 9], [3, 2], [0.0, 0.6]),
        Fcfs(rule=rule(chunked_prefill=False)),
        costs=FlatCosts(load=0.0),
        fast_forward=fast,
    )
    assert recorder.requests["longest_gap_s"].tolist() == pytest.approx([0.75, 0.25])
    assert recorder.gaps.sum() == 3
    assert gap_quantile(recorder.gaps, 0.5) == pytest.approx(0.25, rel=0.011)
    assert gap_quantile(recorder.gaps, 1.0) == pytest.approx(0.75, rel=0.011)


@pytest.mark.parametrize("fast", [True, False])
def test_a_preemption_is_a_gap(fast: bool) -> None:
    """Room for one request of 40 tokens beside one of 16: the later one waits for the first."""
    recorder = serve(
        workload([15, 15], [30, 30]),
        Fcfs(rule=rule()),
        costs=FlatCosts(load=0.0, blocks=3),
        fast_forward=fast,
    )
    requests = recorder.requests
    assert requests["preemptions"].tolist() == [0, 1]
    waited_s = requests["finished_s"][0] - requests["first_token_s"][1]
    assert requests["longest_gap_s"][1] > waited_s / 2
    assert recorder.gaps.sum() == 58


def gaps_of(fast: bool, blocks: int) -> Recorder:
    rng = np.random.default_rng(3)
    prompts, outputs = rng.integers(1, 200, 60), rng.integers(1, 90, 60)
    load = workload(
        prompts.tolist(), outputs.tolist(), np.cumsum(rng.exponential(0.05, 60)).tolist()
    )
    return serve(load, costs=LinearCosts(blocks=blocks, load=0.0), fast_forward=fast)


@pytest.mark.parametrize("blocks", [24, 400])
def test_compiled_groups_count_what_stepped_ones_do(blocks: int) -> None:
    one, other = gaps_of(True, blocks), gaps_of(False, blocks)
    assert (one.requests["preemptions"].sum() > 0) == (blocks == 24)
    np.testing.assert_allclose(
        one.requests["longest_gap_s"], other.requests["longest_gap_s"], rtol=1e-9
    )
    assert one.gaps.sum() == other.gaps.sum() == (one.requests["output_tokens"] - 1).sum()
    for share in (0.01, 0.5, 0.9, 0.99, 1.0):
        ours, theirs = (gap_quantile(it.gaps, share) for it in (one, other))
        assert ours == pytest.approx(theirs, rel=0.03)


def test_percentiles_are_exact_to_one_percent() -> None:
    gaps = np.zeros(BINS, np.int64)
    for seconds in (0.0123, 0.35, 7.0):
        add_gaps(gaps, seconds, 1)
    found = [gap_quantile(gaps, share) for share in (0.0, 0.5, 1.0)]
    assert found == pytest.approx([0.0123, 0.35, 7.0], rel=0.011)
    assert np.isnan(gap_quantile(0 * gaps, 0.5))


@pytest.mark.parametrize("seconds", [0.0478, 0.0123, 0.35, 7.0])
def test_no_percentile_is_above_the_longest_gap(seconds: float) -> None:
    gaps = np.zeros(BINS, np.int64)
    add_gaps(gaps, seconds, 200)
    figures = gap_figures(gaps, longest_s=seconds)
    assert figures["itl_s_p99"] == pytest.approx(seconds, rel=0.011)
    assert figures["itl_s_p99"] <= seconds
    unknown = gap_figures(gaps, longest_s=np.nan)
    assert unknown["itl_s_p99"] == gap_quantile(gaps, 0.99)
    assert np.isnan(gap_figures(gaps // 100, longest_s=seconds)["itl_s_p99"])
