"""Figures of SamuLLM from made-up runs: every bar and panel is there, what is missing is named."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from plots import samullm_bars, samullm_insights, samullm_schedules, samullm_shapes

PRINTED = dict.fromkeys(
    [claim for what in samullm_bars.FIGURES.values() for claim in what.claims.values()], "1 to 2"
)


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
    bars = len(what.groups) * len(what.bars)
    assert len(panel.patches) == 2 * bars
    tops = [
        patch.get_extents().transformed(panel.transData.inverted()).height
        for patch in panel.patches[::2]
    ]
    assert tops[0] == pytest.approx(0.9)
    assert tops[1] == pytest.approx(1.8)


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


def write_run(folder: Path) -> Path:
    """Summaries on one GPU, then on two, beside an ensemble that ends at 4 s."""
    folder.mkdir(parents=True)
    names = ["vicuna-13b-v1.5~summary@0#1", "vicuna-13b-v1.5~summary@0#2", "koala@1#1"]
    names.append("vicuna-13b-v1.5~summary@1#2")
    pd.DataFrame(
        {
            "gpu": [0, 0, 1, 1, 0, 0, 1, 1],
            "group": [
                names[0],
                names[0],
                names[2],
                names[2],
                names[1],
                names[1],
                names[3],
                names[3],
            ],
            "use": ["loading", "busy"] * 4,
            "start_s": [0.0, 1.0, 0.0, 2.0, 4.0, 5.0, 4.0, 5.0],
            "end_s": [1.0, 4.0, 2.0, 4.0, 5.0, 9.0, 5.0, 8.0],
        }
    ).to_parquet(folder / "gpu.parquet")
    pd.DataFrame(
        {
            "service": ["vicuna-13b-v1.5~summary"] * 3 + ["koala"],
            "app": [0, 0, 1, 2],
            "finished_s": [3.0, 9.0, 8.0, 4.0],
            "output_tokens": [10, 20, 10, 5],
        }
    ).to_parquet(folder / "requests.parquet")
    return folder


def test_shapes_of_a_run_by_hand(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    assert samullm_shapes.services_at_once(run) == 2
    assert samullm_shapes.plan_loads(run) == 3
    assert samullm_shapes.summariser_gpus_at_end(run) == 2
    assert samullm_shapes.summarised_share(run) == 10 / 40
    assert samullm_shapes.estimate_error(run) == pytest.approx(1 - 8 / 92)
    requests = pd.read_parquet(run / "requests.parquet")
    requests.assign(service="vicuna-13b-v1.5").to_parquet(run / "requests.parquet")
    assert samullm_shapes.chunks_of(run).tolist() == [2, 1, 1]
    assert samullm_shapes.chunks_median(run) == 1
    assert samullm_shapes.chunks_longest(run) == 2


@pytest.mark.parametrize("name", samullm_schedules.FIGURES)
def test_a_schedule_has_a_panel_for_every_method(name: str, tmp_path: Path) -> None:
    what = samullm_schedules.FIGURES[name]
    run = str(write_run(tmp_path / "run"))
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
    lengths = samullm_insights.figure2(Path())
    assert [len(panel.lines) for panel in lengths.axes] == [4, 5]
    assert len(samullm_insights.figure4(Path()).axes) == 3


def test_figures_without_runs_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, words in (("fig3", "running_requests"), ("fig10", "chain_summary")):
        assert samullm_insights.main([name, "--results", str(tmp_path)]) == 1
        assert words in capsys.readouterr().err
