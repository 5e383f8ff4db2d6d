"""Figures of SSJF from made-up runs: every curve is there, what is missing is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from plots import ssjf_figures, ssjf_shapes

X = (1.0, 2.0, 3.0)


def runs_of(panels: tuple[ssjf_figures.Panel, ...], folder: Path) -> dict[str, pd.DataFrame]:
    """Two seeds of every point of every curve; the n-th curve lies at n."""
    requests = {"arrival_s": [0.0, 10.0], "finished_s": [5.0, 12.0]}
    pd.DataFrame(requests).to_parquet(folder / "requests.parquet")
    rows: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
    for panel in panels:
        for place, curve in enumerate(panel.curves, start=1):
            for x in X:
                for seed in (0, 1):
                    row = {**curve.runs, panel.along: x, "config.seed": seed}
                    figures = dict.fromkeys(("jct_s_mean", "jct_s_p99", "waiting_s_max"), place)
                    entry = {**row, **figures, "folder": str(folder)}
                    found = rows.setdefault(panel.scenario, {})
                    found[tuple(sorted((str(k), str(v)) for k, v in row.items()))] = entry
    basis = {"costs.profile": "p", "costs.fit_error": 0.1}
    return {
        name: pd.DataFrame([entry | basis for entry in found.values()])
        for name, found in rows.items()
    }


@pytest.mark.parametrize("name", ssjf_figures.FIGURES)
def test_every_panel_has_every_curve(name: str, tmp_path: Path) -> None:
    panels = ssjf_figures.FIGURES[name]
    figure = ssjf_figures.draw(panels, runs_of(panels, tmp_path), ["what it says"])
    for axes, panel in zip(figure.axes, panels, strict=True):
        assert axes.get_title(loc="left") == panel.title
        assert [line.get_label() for line in axes.lines] == [c.label for c in panel.curves]
        assert all(len(np.asarray(line.get_xdata())) == len(X) for line in axes.lines)
        if panel.shows == "jct_s_mean":
            heights = [float(np.asarray(line.get_ydata())[0]) for line in axes.lines]
            assert heights == [float(place) for place in range(1, len(panel.curves) + 1)]


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    panels = ssjf_figures.FIGURES["fig9"]
    runs = runs_of(panels, tmp_path)
    rows = runs["ssjf_rounds"]
    runs["ssjf_rounds"] = rows[rows["config.chosen.policy"] != "ssjf_continuous"]
    with pytest.raises(ValueError, match=r"SSJF in 1 requests per second has 0 runs.*ssjf_rounds"):
        ssjf_figures.draw(panels, runs, [])


def test_no_runs_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "ssjf.yaml").write_text("claims: []\n")
    assert ssjf_figures.main(["fig4", "--results", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_throughput_while_requests_come_in(tmp_path: Path) -> None:
    """Arrivals from 10 to 20 s; three of five have been answered by then."""
    rows = {"arrival_s": [10.0, 11, 12, 13, 20], "finished_s": [12.0, 15, 20, 21, 30]}
    pd.DataFrame(rows).to_parquet(tmp_path / "requests.parquet")
    assert ssjf_shapes.answered_per_s(tmp_path) == pytest.approx(0.3)


def test_throughput_after_a_quarter(tmp_path: Path) -> None:
    """The second of five ends at 4 s, which is the quarter's quantile."""
    rows = {"arrival_s": [0.0] * 5, "finished_s": [10.0, 4, 2, 30, 20]}
    pd.DataFrame(rows).to_parquet(tmp_path / "requests.parquet")
    assert ssjf_shapes.quarter_per_s(tmp_path) == pytest.approx(2 / 4.0)
