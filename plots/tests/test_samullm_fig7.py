"""Figure 7 shows what the runs say: heights, labels, hatching, the paper's ranges, the footer."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from harness.claims.paper import load_paper
from harness.runs import record
from harness.tests.support.run_folders import run_with
from plots import samullm_fig7 as fig7
from plots import style
from plots.inputs import Inputs

PRINTED = load_paper("samullm").claims
RANGES = {"max_heuristic": (1.1, 2.4), "min_heuristic": (1.0, 1.6)}
SECONDS = {"samullm": (80.0, 20.0), "max_heuristic": (160.0, 10.0), "min_heuristic": (100.0, 15.0)}


def run(name: str, count: int, limit: int, seed: int) -> dict[str, Any]:
    """Configuration and summary of one run; seed 1 takes a tenth longer than seed 0."""
    inference, extra = (seconds * (1 + 0.1 * seed) for seconds in SECONDS[name])
    config = {
        "system": {"name": name},
        "workload": {"requests": count, "max_output_tokens": limit},
        "seed": seed,
    }
    summary = {"inference_s": inference, "extra_s": extra, "end_to_end_s": inference + extra}
    return {"config": config, "figures": summary}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Runs of every system at two request counts and two limits, of two seeds."""
    results = tmp_path_factory.mktemp("results")
    cells = [
        (n, c, m, s) for n in SECONDS for c in (1000, 3000) for m in (256, 512) for s in range(2)
    ]
    for cell in cells:
        costs = {"profile": "toy_gpu", "fit_error": 0.0712}
        made = run_with(provenance={"costs": costs}, **run(*cell))
        record.write_run(results / "ensembling" / "-".join(map(str, cell)), made)
    return record.read_summaries(results / "ensembling")


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def ticks(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_xticklabels()]


def test_bars_stack_to_the_relative_end_to_end_time(rows: pd.DataFrame) -> None:
    """84 + 21, 168 + 10.5 and 105 + 15.75 s on average, in units of SamuLLM's 105 s."""
    panel = fig7.draw(rows, RANGES).axes[0]
    bars = [patch for patch in panel.patches if isinstance(patch, Rectangle)]
    for place, (name, inference, extra) in enumerate(
        [("samullm", 0.8, 0.2), ("max_heuristic", 1.6, 0.1), ("min_heuristic", 1.0, 0.15)]
    ):
        lower, upper = bars[2 * place : 2 * place + 2]
        assert lower.get_height() == pytest.approx(inference)
        assert upper.get_y() == pytest.approx(inference)
        assert upper.get_height() == pytest.approx(extra)
        assert not lower.get_hatch()
        assert upper.get_hatch() == style.HATCH
        assert to_rgb(lower.get_facecolor()) == to_rgb(fig7.COLOURS[name])


def test_labels_are_the_papers_two_values(rows: pd.DataFrame) -> None:
    per_group = ["1.00", "1.00", "2.00", "1.70", "1.25", "1.15"]  # inference, end-to-end
    assert texts(fig7.draw(rows, RANGES)) == [*per_group, *per_group, "1.1", "2.4", "1.0", "1.6"]


def test_the_papers_ranges_are_drawn_where_they_lie(rows: pd.DataFrame) -> None:
    panel = fig7.draw(rows, RANGES).axes[1]
    bands = [p for p in panel.patches if isinstance(p, Rectangle)][-2:]
    spans = [(band.get_y(), band.get_y() + band.get_height()) for band in bands]
    assert spans == [pytest.approx(RANGES[name]) for name in RANGES]


def test_whiskers_reach_from_the_fastest_to_the_slowest_seed(rows: pd.DataFrame) -> None:
    """SamuLLM takes 100 and 110 s, 105 on average."""
    whisker = fig7.draw(rows, RANGES).axes[0].collections[0].get_paths()[0]
    heights = np.asarray(whisker.vertices, dtype=np.float64)[:, 1]
    assert heights == pytest.approx([100 / 105, 110 / 105])


def test_a_missing_baseline_leaves_a_gap_and_a_missing_samullm_no_group(rows: pd.DataFrame) -> None:
    at_1000 = rows[fig7.REQUESTS] == 1000
    figure = fig7.draw(rows[~(at_1000 & (rows[fig7.NAME] == "max_heuristic"))], RANGES)
    assert texts(figure)[:4] == ["1.00", "1.00", "1.25", "1.15"]
    figure = fig7.draw(rows[~(at_1000 & (rows[fig7.NAME] == "samullm"))], RANGES)
    assert ticks(figure) == ["3,000\n105 s", "paper"]


def test_without_runs_it_is_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"^figure 7 needs runs of SamuLLM"):
        fig7.plot(Inputs(name="fig7", runs={"ensembling": pd.DataFrame()}, printed=PRINTED))


def test_the_ranges_are_those_that_the_claims_print() -> None:
    assert fig7.paper_ranges(PRINTED) == RANGES
