"""Figure 11 shows the ratios that the runs give."""

import pandas as pd
import pytest

from plots import samullm_fig11 as fig11
from plots.inputs import Inputs

RANGES = dict.fromkeys(fig11.CLAIMS, (1.0, 1.4))
SECONDS = {"samullm": 100.0, "max_heuristic": 130.0, "min_heuristic": 90.0}


def rows(*, seeds: int = 2) -> pd.DataFrame:
    """Runs of every system; later seeds take a tenth longer, and the ratio stays."""
    return pd.DataFrame(
        [
            {
                fig11.NAME: name,
                fig11.SEED: seed,
                fig11.DOCUMENTS: documents,
                fig11.LIMIT: limit,
                fig11.EVALUATIONS: evaluations,
                "end_to_end_s": seconds * documents * (1 + 0.1 * seed),
                "gpu_idle_s": 2 * seconds,
                "costs.profile": "toy",
                "costs.fit_error": 0.05,
                "costs.source.m": "measured",
            }
            for name, seconds in SECONDS.items()
            for seed in range(seeds)
            for documents in (100, 500)
            for limit in (100, 900)
            for evaluations in (1, 4)
        ]
    )


def test_ratios_are_paired_by_setting_and_seed() -> None:
    table = fig11.ratios(rows(), "end_to_end_s")
    assert len(table) == 2 * 2 * 2 * 2 * 2
    for name, ratio in (("max_heuristic", 1.3), ("min_heuristic", 0.9)):
        found = table.loc[table["name"] == name, "ratio"].to_numpy()
        assert found == pytest.approx([ratio] * 16)


def test_a_panel_per_limit_and_figure_says_what_it_is() -> None:
    figure = fig11.draw(rows(), RANGES)
    assert [panel.get_title(loc="left") for panel in figure.axes] == [
        "Maximum output length limit = 100",
        "Maximum output length limit = 900",
    ] * 2
    footer = figure.get_supxlabel()
    assert footer.startswith("Simulated")
    assert "toy" in footer
    assert "2 seeds" in footer
    for panel in figure.axes:
        assert len(panel.containers) == 4


def test_without_our_runs_there_is_no_figure() -> None:
    with pytest.raises(ValueError, match="needs runs of SamuLLM"):
        fig11.draw(rows().query("`config.system.name` != 'samullm'"), RANGES)


def test_no_runs_are_said() -> None:
    printed = {claim: {"paper": [1.0, 1.4]} for claim in fig11.CLAIMS.values()}
    with pytest.raises(ValueError, match="needs runs of SamuLLM"):
        fig11.plot(Inputs(name="fig11", runs={"chain_summary": pd.DataFrame()}, printed=printed))


def test_the_printed_ranges_reach_their_panels() -> None:
    printed = {claim: {"paper": [1.0, 1.4]} for claim in fig11.CLAIMS.values()}
    figure = fig11.plot(Inputs(name="fig11", runs={"chain_summary": rows()}, printed=printed))
    for panel in figure.axes:
        spans = [p.get_extents().transformed(panel.transData.inverted()) for p in panel.patches]
        assert [(span.y0, span.y1) for span in spans] == [pytest.approx((1.0, 1.4))] * 2
