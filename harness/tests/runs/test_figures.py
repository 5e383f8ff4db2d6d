from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.runs.fairness import tenant_service
from harness.runs.figures import (
    FIGURES,
    View,
    by_class,
    check_shown,
    figure,
    figures_of,
    over_draws,
    span_of,
)
from harness.runs.gpu_time import gpu_figures
from harness.runs.latencies import latencies, met_objectives, objective_figures, request_figures
from harness.tests.support.run_folders import run_with

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


def test_a_run_takes_until_the_last_finish_and_the_planning() -> None:
    """Of a run that was cut off, until then; loads and forecasts as its facts have them."""
    facts: dict[str, Any] = {"decisions": {"place": {"s_sum": 0.75}, "schedule": {"s_sum": 9.0}}}
    facts |= {"planned_s": 4.0, "loads_s": [3.0, 2.0]}
    names = ["inference_s", "extra_s", "end_to_end_s", "planned_error", "load_s_min"]
    found = figures_of(run_with(requests=REQUESTS, facts=facts), names)
    assert list(found.values()) == pytest.approx([5.0, 0.75, 5.75, 0.2, 2.0])
    cut = figures_of(run_with(requests=REQUESTS, facts={"cut_off_s": 10.0}), names)
    assert list(cut.values()) == pytest.approx([10.0, 0.0, 10.0, np.nan, np.nan], nan_ok=True)


def test_draws_of_costs_become_intervals_without_the_tails() -> None:
    """Of 101 draws of one policy's costs the middle 95, of three draws of another's all."""
    rows = pd.DataFrame(
        [
            {"config.hardware.cost_draw": draw, "config.p": name, "jct_s_mean": 10.0 * draw}
            for name, draws in (("a", 101), ("b", 3))
            for draw in range(draws + 1)
        ]
    )
    found = over_draws(rows.assign(act_s_mean=np.nan))
    assert found["config.p"].tolist() == ["a", "b"]
    assert found[[*span_of("jct_s_mean")]].to_numpy().tolist() == [[30.0, 990.0], [10.0, 30.0]]
    assert span_of("act_s_mean")[0] not in found
    assert over_draws(found).equals(found)


def test_a_figure_is_one_function() -> None:
    """It is computed of runs that were stored before; a table that a run lacks makes it NaN."""

    @figure(unit="s", better="less")
    def longest_jct_s(view: View) -> float:
        return float((view.rows["finished_s"] - view.rows["arrival_s"]).max())

    @figure(unit="calls", needs=["units"])
    def calls(view: View) -> float:
        return float(len(view.run.tables["units"]))

    try:
        found = figures_of(run_with(requests=REQUESTS), ["longest_jct_s", "calls"])
        assert found == pytest.approx({"longest_jct_s": 5.0, "calls": np.nan}, nan_ok=True)
        with pytest.raises(ValueError, match="there are two figures calls"):
            figure(unit="s")(calls)
    finally:
        del FIGURES["longest_jct_s"], FIGURES["calls"]


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
    rows = REQUESTS.assign(tenant=["a", "b", "a"], service="m", prompt_tokens=10)
    run = run_with(
        requests=rows,
        apps=APPS,
        facts={"cut_off_s": 20.0},
        config={"slo": {"jct_s": 5.0}},
    )
    found = by_class(View(run))
    assert found.keys() == {"tenant", "kind"}
    assert found["tenant"]["a"]["jct_s_mean"] == pytest.approx((5 + 18) / 2)
    assert found["tenant"]["a"]["slo_attainment"] == 0.5
    assert found["tenant"]["b"]["service_tokens"] == 12.0
    of_all = request_figures(rows, horizon_s=20.0)
    for name in ("requests", "unfinished", "output_tokens", "preemptions"):
        assert sum(it[name] for it in found["tenant"].values()) == of_all[name]
    assert {kind: of["deadlines_met"] for kind, of in found["kind"].items()} == {"a": 0.5, "b": 0.0}
    alike = run_with(requests=rows.assign(tenant="a"), apps=APPS[APPS["kind"] == "a"])
    assert by_class(View(alike)) == {}


def test_goodput_is_what_met_its_objectives_a_second() -> None:
    figures = objective_figures(pd.Series([True, True, False, True]), span_s=6.0)
    assert figures == {"slo_attainment": 0.75, "goodput_per_s": 0.5}


def test_scheduling_by_hand() -> None:
    """Two groups of 10 s, 8 iterations, 4 s of deciding; unknown where it was not timed."""
    facts = {"cut_off_s": 10.0, "decisions": {"schedule": {"s_sum": 4.0}}, "groups": 2}
    names = ["scheduling_s_per_iteration", "scheduling_share"]
    timed = run_with(requests=REQUESTS, facts={**facts, "timed_iterations": 8})
    assert figures_of(timed, names) == {names[0]: 0.5, names[1]: 0.2}
    untimed = figures_of(run_with(requests=REQUESTS, facts=facts), names)
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
    room = {"a": 100.0, "b": 200.0}
    for known, wanted in ((room, (40 + 4 * 62) / (100 + 4 * 200)), (room | {"b": None}, np.nan)):
        run = run_with(requests=REQUESTS, iterations=iterations, facts={"kv_tokens": known})
        used = figures_of(run, ["kv_utilization"])["kv_utilization"]
        assert used == pytest.approx(wanted, nan_ok=True)
    none = figures_of(run_with(requests=REQUESTS), ["kv_utilization"])
    assert np.isnan(none["kv_utilization"])


APPS = pd.DataFrame(
    {
        "app": [0, 1, 2, 3],
        "kind": ["a", "b", "a", "b"],
        "arrived_s": [0.0, 1.0, 2.0, 30.0],
        "finished_s": [4.0, 7.0, np.nan, np.nan],
        "deadline_s": [4.0, 6.0, 9.0, np.nan],
    }
)


def test_an_application_that_is_not_done_enters_at_its_age_and_misses_its_deadline() -> None:
    """4 and 6 s, and at least 18 by second 20; one would have come later."""
    names = ["applications", "applications_unfinished", "act_s_mean", "act_s_p95", "deadlines_met"]
    run = run_with(requests=REQUESTS, apps=APPS, facts={"cut_off_s": 20.0})
    assert [*figures_of(run, names).values()] == pytest.approx([4, 2, 28 / 3, 16.8, 1 / 3])
    without = figures_of(run_with(requests=REQUESTS), names)
    assert np.isnan([*without.values()]).all()


def test_service_of_tenants_counts_answers_twice_and_only_what_has_begun() -> None:
    rows = pd.DataFrame(
        {
            "tenant": ["x", "y", "x"],
            "started_s": [0.0, 0.5, np.nan],
            "prompt_tokens": [10, 20, 40],
            "output_tokens": [5, 1, 0],
        }
    )
    assert tenant_service(rows) == {"x": {"service_tokens": 20.0}, "y": {"service_tokens": 22.0}}


@pytest.mark.parametrize(
    ("slo", "expected"),
    [
        ({"ttft_s": 2.0}, [True, False, False]),
        ({"ttft_s": 9.0}, [True, True, False]),
        ({"tpot_s": 0.5}, [False, True, False]),
        ({"jct_s": 3.0}, [False, True, False]),
        ({"ttft_s": 3.0, "jct_s": 5.0}, [True, True, False]),
        ({"scale": 2.0}, [False, True, False]),
        ({"scale": None, "ttft_s": None}, None),
        ({}, None),
    ],
)
def test_objectives_by_hand(slo: dict[str, float | None], expected: list[bool] | None) -> None:
    """TTFT 1, 3, 8+ s; TPOT 1 s, none, none; JCT 5, 3, 8+ s at 10 s."""
    found = met_objectives(REQUESTS, slo, horizon_s=10.0, solo_s=np.array([2.0, 2.0, 2.0]))
    assert (None if found is None else found.tolist()) == expected


def test_a_deadline_counts_where_a_request_has_one() -> None:
    found = met_objectives(REQUESTS.assign(deadline_s=[4.9, np.nan, 3.0]), {}, horizon_s=10.0)
    assert found is not None
    assert found.tolist() == [False, True, False]
