"""SSJF's curves from made-up runs: every one is drawn, what is missing is named."""

import re
from itertools import product
from pathlib import Path
from shutil import copyfile, copytree
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from harness.claims.derived.columns import with_derived
from harness.paths import ROOT
from harness.reproduce import main
from plots import ssjf_figures
from plots.inputs import Inputs
from plots.ssjf_figures import FIGURES, Panel, draw, points

PLACES = (1, 2, 4)
SEEDS = (0, 1)
PANELS = [
    pytest.param(panel, id=f"{name}: {panel.title}: {panel.shows}")
    for name, panels in FIGURES.items()
    for panel in panels
]


ANSWERED = {
    name: f"harness.claims.derived.ssjf:{name}"
    for name in (ssjf_figures.ANSWERED, ssjf_figures.QUARTER)
}
SECONDS = (ssjf_figures.JCT, ssjf_figures.SLOWEST, ssjf_figures.WAIT)


def write_run(folder: Path) -> Path:
    """Two of four requests are answered while others come, in 10 s; the first of them at 5 s."""
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(
        {"arrival_s": [0.0, 1.0, 2.0, 10.0], "finished_s": [5.0, 5.0, 20.0, 30.0]}
    ).to_parquet(folder / "requests.parquet")
    return folder


def rows_of(panel: Panel, folder: Path) -> pd.DataFrame:
    """Two seeds of every run of a panel; the n-th curve has n times the place as its JCT."""
    rows: list[dict[str, Any]] = [
        {
            **curve.runs,
            panel.along: place,
            "config.seed": seed,
            **dict.fromkeys(SECONDS, float(nth * place + seed)),
            "folder": str(folder),
            "costs.profile": "made up",
            "costs.fit_error": 0.1,
        }
        for nth, curve in enumerate(panel.curves, start=1)
        for place, seed in product(PLACES, SEEDS)
    ]
    if ssjf_figures.POLICY not in panel.curves[0].runs:
        return pd.DataFrame(rows)
    # A run of a policy that no curve shows.
    other = {**rows[0], ssjf_figures.POLICY: "another", "jct_s_mean": 1e9}
    return pd.DataFrame([*rows, other])


def runs_of(name: str, folder: Path) -> dict[str, pd.DataFrame]:
    """All that a figure shows, by scenario; two of its panels may show the same runs."""
    found: dict[str, list[pd.DataFrame]] = {}
    for panel in FIGURES[name]:
        found.setdefault(panel.scenario, []).append(rows_of(panel, folder))
    return {
        scenario: with_derived(pd.concat(rows).drop_duplicates(ignore_index=True), ANSWERED)
        for scenario, rows in found.items()
    }


def drawn(name: str, folder: Path) -> Figure:
    """The figure from made-up runs."""
    return draw(FIGURES[name], runs_of(name, folder), ["rates speedup 2"])


@pytest.mark.parametrize("name", FIGURES)
def test_every_curve_of_every_panel_is_drawn(name: str, tmp_path: Path) -> None:
    figure = drawn(name, write_run(tmp_path / "run"))
    assert len(figure.axes) == len(FIGURES[name])
    for axes, panel in zip(figure.axes, FIGURES[name], strict=True):
        assert axes.get_title(loc="left") == panel.title
        assert axes.get_xlabel() == ssjf_figures.LABELS[panel.along]
        assert axes.get_ylabel() == ssjf_figures.LABELS[panel.shows]
        assert [line.get_label() for line in axes.lines] == [c.label for c in panel.curves]
        assert [line.get_color() for line in axes.lines] == [c.colour for c in panel.curves]
        assert len(axes.collections) == len(panel.curves)
        for nth, line in enumerate(axes.lines, start=1):
            along = range(len(PLACES)) if panel.along == ssjf_figures.AGING else PLACES
            assert np.array(line.get_xdata()).tolist() == list(along)
            by_hand = {
                **{name: [nth * place + 0.5 for place in PLACES] for name in SECONDS},
                "answered_per_s": [0.2] * len(PLACES),
                "quarter_per_s": [0.4] * len(PLACES),
            }
            assert np.array(line.get_ydata()).tolist() == pytest.approx(by_hand[panel.shows])


def test_the_footer_says_what_seconds_rest_on_and_what_the_paper_says(tmp_path: Path) -> None:
    said = drawn("fig4", write_run(tmp_path / "run")).get_supxlabel()
    assert "made up (fit error 10.0%)" in said
    assert "The paper: rates speedup 2." in said


@pytest.mark.parametrize("panel", PANELS)
def test_what_a_panel_shows_is_in_its_scenario(panel: Panel) -> None:
    scenario = OmegaConf.load(ROOT / "scenarios" / "scenario" / f"{panel.scenario}.yaml")
    assert scenario.get("variant", "paper") == panel.variant
    axes = {
        "config.chosen.policy": "policy",
        "config.predictor.name": "predictor",
    }
    assert len(scenario.matrix[panel.along.removeprefix("config.")]) > 2
    for curve in panel.curves:
        for column, value in curve.runs.items():
            axis = axes.get(column, column.removeprefix("config."))
            if axis in scenario.matrix:
                assert value in scenario.matrix[axis]
            else:
                assert {f"override /{axis}": value} in scenario.defaults


@pytest.mark.parametrize("name", ["fig6", "fig7"])
def test_throughput_is_read_as_the_paper_or_its_program_reads_it(name: str) -> None:
    shown = {(panel.variant, panel.shows) for panel in FIGURES[name]}
    assert shown == {("paper", "answered_per_s"), ("code", "quarter_per_s")}


def test_a_point_is_the_mean_over_seeds_with_their_range(tmp_path: Path) -> None:
    panel = FIGURES["fig4"][0]
    spread = points(panel, panel.curves[1], rows_of(panel, tmp_path))
    assert spread.index.tolist() == [1, 2, 4]
    assert spread.loc[2].to_dict() == {"mean": 4.5, "min": 4.0, "max": 5.0}


def test_missing_and_doubled_runs_are_named(tmp_path: Path) -> None:
    panel = FIGURES["fig4"][0]
    rows, curve = rows_of(panel, tmp_path), panel.curves[0]
    said = "runs, not one a seed and setting: run harness/run.py +scenario=ssjf_rates"
    twice = pd.concat([rows, rows])
    for found, count in ((pd.DataFrame(), 0), (rows[6:], 0), (twice, 12)):
        sentence = f"FCFS in no batching has {count} {said}"
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            points(panel, curve, found)


def test_without_runs_the_command_says_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["ssjf", "fig5", "--draw-only", "--results", str(tmp_path)]
    copytree(ROOT / "results" / "claims" / "ssjf", tmp_path / "claims" / "ssjf")
    assert main(command) == 2
    assert capsys.readouterr().err == f"error: there are no claims at {tmp_path}/claims/ssjf.yaml\n"
    copyfile(ROOT / "results" / "claims" / "ssjf.yaml", tmp_path / "claims" / "ssjf.yaml")
    assert main(command) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: FCFS in no batching, load 0.7 has 0 runs, ")
    assert said.err.endswith("+scenario=ssjf_bursts\n")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "figures").exists()


def test_the_footer_has_every_claim_of_the_figure(tmp_path: Path) -> None:
    printed = {"ssjf.fig4.one": {"kind": "reduction", "paper": 0.5}}
    runs = runs_of("fig4", write_run(tmp_path / "run"))
    figure = ssjf_figures.plot(Inputs(name="fig4", runs=runs, printed=printed))
    assert "The paper: one reduction 0.5." in figure.get_supxlabel()
