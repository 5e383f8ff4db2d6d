"""SSJF's gains from made-up runs: every curve and every printed value is drawn."""

from functools import cache
from itertools import product
from typing import Any

import pandas as pd
import pytest
from matplotlib.axes import Axes

from harness.claims.effects import ClaimError
from harness.claims.judge import probes
from harness.claims.paper import load_paper
from harness.runs.cells import Run
from harness.tests.support.run_folders import run_with
from plots.inputs import Inputs
from plots.ssjf_figures import ACCURACY, FIGURES, Panel, plot, points

PAPER = load_paper("ssjf")
PLACES = (0.5, 1.0, 5.0)
SEEDS = (0, 1, 2)
OURS = {
    "": 25.0,
    "when a quarter is answered": 2.0,
    "while requests come in": 1.5,
    "to the last answer": 2.0,
}
"""Of the made-up runs below, by reading."""


@cache
def run_of(times: float) -> Run:
    """Requests that are answered so many times as fast, two of four while others come."""
    finished_s = [5.0 / times, 6.0 / times, 20.0 / times, 30.0 / times]
    times_s = {"arrival_s": [0.0, 0.0, 0.0, 10.0], "finished_s": finished_s}
    return run_with(requests=pd.DataFrame(times_s))


def cells_of(panel: Panel) -> list[dict[str, Any]]:
    """SSJF takes three quarters of the JCT of FCFS and answers twice as fast, in every seed."""
    slow, fast = run_of(1.0), run_of(2.0)
    rows: list[dict[str, Any]] = []
    for curve, place, seed in product(panel.curves, PLACES, SEEDS):
        for side, jct_s, run in ((curve.over, 8.0, slow), (curve.of, 6.0, fast)):
            row = {panel.along: place, "seed": seed, "jct_s_mean": jct_s + seed * jct_s / 8}
            rows.append({**row, **side, "folder": run, "costs.profile": "made up"})
    return rows


def inputs_of(name: str) -> Inputs:
    """All that a figure shows, by scenario."""
    found: dict[str, list[dict[str, Any]]] = {}
    for panel in FIGURES[name]:
        found.setdefault(panel.scenario, []).extend(cells_of(panel))
    runs = {scenario: pd.DataFrame(rows).drop_duplicates() for scenario, rows in found.items()}
    printed = {claim.id: claim for claim in PAPER.of_figure(name)}
    return Inputs(name=name, runs=runs, printed=printed)


def drawn(axes: Axes, label: str) -> list[float]:
    """The values of the curve with this label."""
    line = next(line for line in axes.lines if line.get_label() == label)
    return [float(value) for value in line.get_ydata()]  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("name", FIGURES)
def test_gains_and_printed_values_are_drawn(name: str) -> None:
    inputs = inputs_of(name)
    figure = plot(inputs)
    assert len(figure.axes) == len(FIGURES[name])
    for axes, panel in zip(figure.axes, FIGURES[name], strict=True):
        for curve in panel.curves:
            assert drawn(axes, curve.label) == pytest.approx([OURS[panel.reading]] * 3)
            claims = [curve.line] * bool(curve.line) + [*curve.marks.values()]
            texts = [text.get_text() for text in axes.texts]
            for claim in claims:
                value = inputs.printed[claim].paper
                assert isinstance(value, float)
                said = f"paper {value:.2g}x" if panel.reading else f"paper {100 * value:.1f}%"
                assert said in texts
    assert "made up" in figure.get_supxlabel()
    assert "3 seeds" in figure.get_supxlabel()


def test_bands_are_intervals_of_paired_seeds() -> None:
    """Ratios of 0.5, 0.6 and 0.72 have the mean 0.6 and a standard deviation of logs of 0.182."""
    panel = FIGURES["fig4"][0]
    curve = panel.curves[0]
    rows = []
    for seed, share in enumerate((0.5, 0.6, 0.72)):
        rows += [
            {**curve.over, panel.along: 1, "seed": seed, "jct_s_mean": 10.0},
            {**curve.of, panel.along: 1, "seed": seed, "jct_s_mean": 10.0 * share},
        ]
    found = points(panel, curve, pd.DataFrame(rows)).loc[1]
    half = 4.302653 * 0.1823216 / 3**0.5
    by_hand = [40.0, 100 * (1 - 0.6 * 2.718281828**half), 100 * (1 - 0.6 / 2.718281828**half)]
    assert [found["value"], found["low"], found["high"]] == pytest.approx(by_hand, rel=1e-5)


def test_missing_runs_are_named() -> None:
    inputs = inputs_of("fig5")
    rows = inputs.runs["ssjf_bursts"]
    kept = rows[rows["policy"] != "fcfs_dynamic"]
    with pytest.raises(ClaimError, match="no cell has policy=fcfs_dynamic"):
        plot(Inputs(name="fig5", runs={"ssjf_bursts": kept}, printed=inputs.printed))


@pytest.mark.parametrize("name", FIGURES)
def test_every_curve_is_in_its_scenario(name: str) -> None:
    """Probes of a scenario have one value of every figure: no curve lacks cells."""
    for panel in FIGURES[name]:
        cells = probes([panel.scenario])
        if panel.reading:
            panel = Panel(panel.title, panel.scenario, panel.along, panel.curves)
        for curve in panel.curves:
            found = points(panel, curve, cells)
            assert found["value"].tolist() == pytest.approx([0.0] * len(found))
            assert len(found) >= 5 or panel.along == ACCURACY
    assert all(panel.scenario in _scenarios(name) for panel in FIGURES[name])


def _scenarios(name: str) -> tuple[str, ...]:
    figure = PAPER.figure(name)
    return (*figure.scenarios, *figure.also)
