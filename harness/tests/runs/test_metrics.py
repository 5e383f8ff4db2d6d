import numpy as np
import pandas as pd
import pytest

from harness.runs.metrics import check_shown, gpu_figures, offline_figures, request_figures

REQUESTS = pd.DataFrame(
    {
        "arrival_s": [0.0, 1.0, 2.0],
        "started_s": [0.5, 3.0, np.nan],
        "first_token_s": [1.0, 4.0, np.nan],
        "finished_s": [5.0, 4.0, np.nan],
        "output_tokens": [5, 1, 0],
        "preemptions": [0, 2, 1],
    }
)
"""Five tokens over four gaps of 1 s; one token at once; one still waiting."""


def test_request_figures_by_hand() -> None:
    """At 10 s: waits of 0.5, 2 and 8+ s, completion 5, 3 and 8+ s, first token 1, 3 and 8+ s.

    A token takes the first request 1 s.
    """
    figures = request_figures(REQUESTS, horizon_s=10.0)
    assert figures["jct_s_mean"] == pytest.approx(16 / 3)
    assert figures["jct_s_p99"] == pytest.approx(5 + 0.98 * 3)
    assert figures["ttft_s_mean"] == pytest.approx(12 / 3)
    assert figures["tpot_s_mean"] == pytest.approx(1.0)
    assert figures["waiting_s_max"] == pytest.approx(8.0)
    assert (figures["requests"], figures["unfinished"]) == (3, 1)
    assert (figures["output_tokens"], figures["preemptions"]) == (6, 3)


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
