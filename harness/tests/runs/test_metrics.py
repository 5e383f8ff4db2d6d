import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.runs.metrics import (
    check_shown,
    class_figures,
    decision_figures,
    gpu_figures,
    kv_utilization,
    latencies,
    objective_figures,
    offline_figures,
    request_figures,
    scheduling_figures,
)

REQUESTS = pd.DataFrame(
    {
        "arrival_s": [0.0, 1.0, 2.0],
        "started_s": [0.5, 3.0, np.nan],
        "first_token_s": [1.0, 4.0, np.nan],
        "finished_s": [5.0, 4.0, np.nan],
        "output_tokens": [5, 1, 0],
        "preemptions": [0, 2, 1],
        "swaps": [0, 1, 0],
        "swapped_bytes": [0, 600, 0],
        "swap_s": [0.0, 0.5, 0.0],
    }
)
"""Five tokens over four gaps of 1 s; one token at once; one still waiting."""


def test_request_figures_by_hand() -> None:
    """At 10 s: waits of 0.5, 2 and 8+ s, completion 5, 3 and 8+ s, first token 1, 3 and 8+ s.

    A token takes the first request 1 s.
    """
    figures = request_figures(REQUESTS, horizon_s=10.0)
    assert figures["jct_s_mean"] == pytest.approx(16 / 3)
    assert figures["jct_s_p50"] == 5.0
    assert np.isnan(figures["jct_s_p90"])
    assert (figures["jct_s_count"], figures["tpot_s_count"]) == (3, 1)
    assert figures["ttft_s_mean"] == pytest.approx(12 / 3)
    assert figures["tpot_s_mean"] == pytest.approx(1.0)
    assert figures["waiting_s_max"] == pytest.approx(8.0)
    assert (figures["requests"], figures["unfinished"]) == (3, 1)
    assert (figures["output_tokens"], figures["preemptions"]) == (6, 3)
    assert (figures["swaps"], figures["swapped_bytes"], figures["swap_s"]) == (1, 600, 0.5)


def test_a_started_but_unfinished_request_keeps_its_first_token() -> None:
    rows = REQUESTS.iloc[:1].assign(finished_s=np.nan)
    figures = request_figures(rows, horizon_s=20.0)
    assert (figures["ttft_s_mean"], figures["jct_s_mean"]) == (1.0, 20.0)
    assert np.isnan(figures["tpot_s_mean"])


def test_no_requests_have_no_latency() -> None:
    figures = request_figures(REQUESTS.iloc[:0], horizon_s=1.0)
    assert figures["requests"] == 0
    assert np.isnan(figures["jct_s_mean"])


def test_gpu_seconds_add_up_to_the_machine() -> None:
    """Two GPUs for 10 s: 3 + 4 busy from second 1 on, 2 loading, so 11 of 20 idle."""
    intervals = pd.DataFrame(
        {
            "gpu": [0, 0, 1],
            "use": ["loading", "busy", "busy"],
            "start_s": [0.0, 2.0, 1.0],
            "end_s": [2.0, 5.0, 5.0],
        }
    )
    assert gpu_figures(intervals, gpus=2, horizon_s=10.0) == {
        "load_s": 1.0,
        "gpu_busy_s": 7.0,
        "gpu_loading_s": 2.0,
        "gpu_idle_s": 11.0,
        "gpus_used": 2.0,
    }


def test_a_machine_that_never_ran_never_loaded() -> None:
    none = pd.DataFrame({"use": [], "start_s": [], "end_s": []})
    figures = gpu_figures(none, gpus=3, horizon_s=2.0)
    assert np.isnan(figures["load_s"])
    assert figures["gpu_idle_s"] == 6.0


def test_offline_time_is_the_last_finish_and_the_planning() -> None:
    decisions = {"place": [0.25, 0.5], "schedule": [9.0]}
    assert offline_figures(REQUESTS, decisions) == {
        "inference_s": 5.0,
        "extra_s": 0.75,
        "end_to_end_s": 5.75,
    }


def test_without_a_placement_decision_nothing_is_extra() -> None:
    assert offline_figures(REQUESTS, {})["extra_s"] == 0.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jct_mean", "No figure of a run is called 'jct_mean'; closest: jct_s_mean"),
        ("folder", "No figure of a run is called 'folder'"),
        ("uncertainty.extra_s.low", "No figure of a run is called 'uncertainty.extra_s.low'"),
    ],
)
def test_a_figure_that_no_run_has_is_refused(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"^No figure of a run is called") as raised:
        check_shown(["inference_s", name], drawn=False)
    assert str(raised.value).startswith(said)


def test_intervals_are_figures_where_costs_are_drawn() -> None:
    check_shown(["inference_s", "uncertainty.extra_s.low"], drawn=True)


def test_tokens_that_come_at_once_have_no_time_of_their_own() -> None:
    """A request-level batch hands over 5 tokens at 5 s; beside it 3 come at 1, 2 and 3 s."""
    rows = REQUESTS.iloc[[0, 0]].assign(
        first_token_s=[5.0, 1.0], finished_s=[5.0, 3.0], output_tokens=[5, 3]
    )
    figures = request_figures(rows, horizon_s=5.0)
    assert figures["tpot_s_mean"] == figures["itl_s_mean"] == 1.0
    alone = request_figures(rows.iloc[:1], horizon_s=5.0)
    assert np.isnan(alone["tpot_s_mean"])
    assert np.isnan(alone["itl_s_mean"])


def test_gaps_count_tokens_and_time_per_token_requests() -> None:
    """One gap of 3 s, three of 1 s: 2 s a token over requests, 1.5 s over gaps."""
    rows = REQUESTS.iloc[[0, 0]].assign(
        first_token_s=[1.0, 1.0], finished_s=[4.0, 4.0], output_tokens=[2, 4]
    )
    figures = request_figures(rows, horizon_s=4.0)
    assert (figures["tpot_s_mean"], figures["itl_s_mean"]) == (2.0, 1.5)


def test_normalized_latency_is_of_what_is_finished() -> None:
    """5 s over 5 tokens, 3 s over one; the third is not finished."""
    each = latencies(REQUESTS, horizon_s=10.0)["normalized_s"]
    assert each.tolist() == pytest.approx([1.0, 3.0, np.nan], nan_ok=True)
    assert request_figures(REQUESTS, horizon_s=10.0)["normalized_s_mean"] == 2.0


def test_classes_are_told_apart_where_there_are_several() -> None:
    rows = REQUESTS.assign(tenant=["a", "b", "a"], service="m")
    found = class_figures(rows, pd.Series([True, False, False]), horizon_s=10.0)
    assert found.keys() == {"tenant"}
    assert found["tenant"]["a"]["jct_s_mean"] == pytest.approx((5 + 8) / 2)
    assert found["tenant"]["a"]["slo_attainment"] == 0.5
    assert found["tenant"]["b"]["slo_attainment"] == 0.0
    of_all = request_figures(rows, horizon_s=10.0)
    for figure in ("requests", "unfinished", "output_tokens", "preemptions"):
        assert sum(it[figure] for it in found["tenant"].values()) == of_all[figure]


def test_goodput_is_what_met_its_objectives_a_second() -> None:
    figures = objective_figures(pd.Series([True, True, False, True]), span_s=6.0)
    assert figures == {"slo_attainment": 0.75, "goodput_per_s": 0.5}


def test_decisions_by_hand() -> None:
    found = decision_figures({"schedule": [1.0, 3.0], "place": []})
    assert found == {"schedule": {"count": 2, "s_mean": 2.0, "s_p99": 2.98, "s_sum": 4.0}}


def test_scheduling_by_hand() -> None:
    """Two groups of 10 s, 8 iterations, 4 s of deciding; unknown where it was not timed."""
    timed = scheduling_figures([1.0, 3.0], iterations=8, groups=2, horizon_s=10.0)
    assert timed == {"scheduling_s_per_iteration": 0.5, "scheduling_share": 0.2}
    untimed = scheduling_figures([1.0, 3.0], iterations=0, groups=2, horizon_s=10.0)
    assert np.isnan(list(untimed.values())).all()


SPANS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["busy", "loading"]),
        st.integers(0, 20),
        st.integers(0, 9),
    )
)


@pytest.mark.slow
@settings(deadline=None)
@given(SPANS)
def test_gpu_seconds_are_those_of_a_clock_that_ticks(
    spans: list[tuple[int, str, int, int]],
) -> None:
    """Whole seconds of three GPUs, looked at one by one up to 15 s; overlaps count once."""
    rows = [(gpu, use, begin, begin + length) for gpu, use, begin, length in spans]
    intervals = pd.DataFrame(rows, columns=["gpu", "use", "start_s", "end_s"])
    seen = {
        use: {(g, s) for g, u, b, e in rows if u == use for s in range(b, min(e, 15))}
        for use in ("busy", "loading")
    }
    figures = gpu_figures(intervals, gpus=3, horizon_s=15.0)
    assert figures["gpu_busy_s"] == len(seen["busy"])
    assert figures["gpu_loading_s"] == len(seen["loading"])
    assert figures["gpu_idle_s"] == 45 - len(seen["busy"] | seen["loading"])


def test_kv_is_used_as_far_as_requests_hold_it() -> None:
    """A second at 40 of 100 tokens; four at 60, then 62 and 64, of a group with twice the room."""
    iterations = pd.DataFrame(
        {
            "group": ["a", "b"],
            "duration_s": [1.0, 4.0],
            "iterations": [1, 3],
            "decode_requests": [0, 2],
            "held_tokens": [40, 60],
        }
    )
    used = kv_utilization(iterations, {"a": 100.0, "b": 200.0})
    assert used == pytest.approx((40 + 4 * 62) / (100 + 4 * 200))
    assert np.isnan(kv_utilization(None, {}))
    assert np.isnan(kv_utilization(iterations, {"a": 100.0, "b": np.nan}))
