"""Figures of SamuLLM from made-up runs: every bar and panel is there, what is missing is named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from harness.claims.paper import load_paper
from harness.runs.record import write_run
from harness.tests.support.run_folders import chain_run, run_with
from plots import samullm_bars, samullm_insights, samullm_schedules
from plots.inputs import Inputs, span_of
from systems.samullm.measures import SUMMARISER

PRINTED = load_paper("samullm").claims


def rows_of(what: samullm_bars.Bars) -> pd.DataFrame:
    """Two seeds of every run that a figure shows; the n-th bar takes n times as long."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for group in what.groups.values():
        for place, bar in enumerate(what.bars, start=1):
            for matcher in bar.runs:
                for seed in (0, 1):
                    row = {**group, **matcher, "config.seed": seed}
                    times = {"inference_s": 9.0 * place, "end_to_end_s": 10.0 * place}
                    found.setdefault(tuple(map(str, row.values())), row | times)
    basis = {"costs.profile": "p", "costs.fit_error": 0.1}
    return pd.DataFrame([row | basis for row in found.values()])


@pytest.mark.parametrize("name", samullm_bars.FIGURES)
def test_a_group_has_every_bar_relative_to_the_first(name: str) -> None:
    what = samullm_bars.FIGURES[name]
    figure = samullm_bars.draw(what, rows_of(what), PRINTED)
    (panel,) = figure.axes
    ours, paper = 2 * len(what.groups) * len(what.bars), sum(bool(bar.claim) for bar in what.bars)
    bars = [patch for patch in panel.patches if isinstance(patch, Rectangle)]
    assert len(bars) == ours + 1 + paper  # the background of the paper's column
    assert bars[0].get_height() == pytest.approx(0.9)
    assert bars[2].get_height() == pytest.approx(1.8)
    for bar, drawn in zip((b for b in what.bars if b.claim), bars[ours + 1 :], strict=True):
        low, high = span_of(PRINTED[bar.claim])
        assert (drawn.get_y(), drawn.get_height()) == pytest.approx((low, high - low))


def test_bars_of_figure_14_are_relative_to_their_own_system() -> None:
    what = samullm_bars.FIGURES["fig14"]
    panel = samullm_bars.draw(what, rows_of(what), PRINTED).axes[0]
    whole = [text.get_text() for text in panel.texts][1 : 2 * len(what.bars) : 2]
    assert whole == ["1.00", "2.00", "3.00", "1.00", "1.25", "1.50"]


def test_a_bar_of_several_runs_adds_them_up() -> None:
    what = samullm_bars.FIGURES["fig12"]
    group = next(iter(what.groups.values()))
    added = samullm_bars.times_of(rows_of(what), group, what.bars[-1])
    assert added["end_to_end_s"].tolist() == [80.0, 80.0]


def test_missing_runs_are_named() -> None:
    what = samullm_bars.FIGURES["fig8"]
    with pytest.raises(ValueError, match="scenario=routing"):
        samullm_bars.draw(what, pd.DataFrame(), PRINTED)
    some = rows_of(what)
    with pytest.raises(ValueError, match="Max-heuristic at"):
        samullm_bars.draw(what, some[some["config.system.name"] != "max_heuristic"], PRINTED)


@pytest.mark.parametrize("name", samullm_schedules.FIGURES)
def test_a_schedule_has_a_panel_for_every_method(name: str, tmp_path: Path) -> None:
    what = samullm_schedules.FIGURES[name]
    write_run(tmp_path / "run", replace(chain_run(), figures={"n": 1.0}))
    run = str(tmp_path / "run")
    rows = pd.DataFrame(
        [
            {**what.where, **matcher, "folder": run, "costs.profile": "p", "costs.fit_error": 0.1}
            for matcher in what.panels.values()
        ]
    )
    figure = samullm_schedules.draw(what, rows)
    assert len(figure.axes) == len(what.panels)
    assert all(len(panel.patches) == 8 for panel in figure.axes)
    with pytest.raises(ValueError, match="0 runs match"):
        samullm_schedules.draw(what, rows[1:])


def test_kept_tables_are_drawn() -> None:
    lengths = samullm_insights.figure2(Inputs(name="fig2"))
    assert [len(panel.lines) for panel in lengths.axes] == [4, 5]
    assert len(samullm_insights.figure4(Inputs(name="fig4")).axes) == 3


def test_running_requests_are_drawn_for_both_engines(tmp_path: Path) -> None:
    steps = {"iterations": [1, 2], "duration_s": [2.0, 3.0], "prefill_requests": [1, 0]}
    log = pd.DataFrame(steps | {"decode_requests": [2, 2]})
    write_run(tmp_path / "run", run_with({"n": 1.0}, iterations=log))
    rows = [{"engine": engine, "folder": str(tmp_path / "run")} for engine in ("real", "sim")]
    runs = {"running_requests": pd.DataFrame(rows)}
    figure = samullm_insights.figure3(Inputs(name="fig3", runs=runs))
    assert [panel.get_title(loc="left") for panel in figure.axes] == ["real: 5.0 s", "sim: 5.0 s"]
    for panel in figure.axes:
        assert np.array(panel.lines[0].get_ydata()).tolist() == [3, 2, 2]


def test_documents_are_drawn_longest_first(tmp_path: Path) -> None:
    requests = {"service": SUMMARISER, "app": [0] * 1 + [1] * 9 + [2] * 2}
    write_run(tmp_path / "run", run_with({"n": 1.0}, requests=pd.DataFrame(requests)))
    row = {"config.workload.documents": 100, "config.seed": 0, "folder": str(tmp_path / "run")}
    runs = {"chain_summary": pd.DataFrame([row])}
    figure = samullm_insights.figure10(Inputs(name="fig10", runs=runs))
    bars = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert [bar.get_height() for bar in bars] == [9, 2, 1]
    assert "median 2, longest 9" in figure.get_supxlabel()


@pytest.mark.parametrize(
    ("plotter", "scenario"),
    [
        (samullm_insights.figure3, "running_requests"),
        (samullm_insights.figure10, "chain_summary"),
    ],
)
def test_figures_without_runs_say_so(plotter: Callable[[Inputs], Figure], scenario: str) -> None:
    with pytest.raises(ValueError, match=scenario):
        plotter(Inputs(name="fig", runs={scenario: pd.DataFrame()}))
