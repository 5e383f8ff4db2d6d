"""Figure 11 shows the ratios that the runs give."""

import pandas as pd
import pytest

from harness.claims.paper import load_paper
from plots import samullm_fig11 as fig11
from plots.inputs import Inputs

RANGES = dict.fromkeys(fig11.CLAIMS, (1.0, 1.4))
PRINTED = load_paper("samullm").claims
SETTINGS = ((100, 4, 900), (300, 4, 900), (300, 1, 900), (300, 4, 100))
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
            for documents, evaluations, limit in SETTINGS
        ]
    )


def test_ratios_are_paired_by_setting_and_seed() -> None:
    table = fig11.ratios(rows(), "end_to_end_s")
    assert len(table) == 2 * 2 * len(SETTINGS)
    for name, ratio in (("max_heuristic", 1.3), ("min_heuristic", 0.9)):
        found = table.loc[table["name"] == name, "ratio"].to_numpy()
        assert found == pytest.approx([ratio] * 8)


def test_a_panel_shows_what_it_varies_at_the_others_values() -> None:
    figure = fig11.draw(rows(), RANGES)
    assert [panel.get_xlabel() for panel in figure.axes] == [*fig11.PANELS] * 2
    shown = [[100, 300], [1, 4], [100, 900]]
    assert [panel.get_xticks().tolist() for panel in figure.axes] == shown * 2
    footer = figure.get_supxlabel()
    assert footer.startswith("Simulated")
    assert "toy" in footer
    assert "2 seeds" in footer
    for panel in figure.axes:
        assert len(panel.containers) == 2


def test_without_our_runs_there_is_no_figure() -> None:
    with pytest.raises(ValueError, match="needs runs of SamuLLM"):
        fig11.draw(rows().query("`config.system.name` != 'samullm'"), RANGES)


def test_the_printed_ranges_reach_their_panels() -> None:
    figure = fig11.plot(Inputs(name="fig11", runs={"chain_summary": rows()}, printed=PRINTED))
    ranges = [((1.0, 1.3), (1.0, 1.4))] * 3 + [((0.9, 1.6), (1.1, 1.9))] * 3
    for panel, printed in zip(figure.axes, ranges, strict=True):
        spans = [p.get_extents().transformed(panel.transData.inverted()) for p in panel.patches]
        assert [(span.y0, span.y1) for span in spans] == [pytest.approx(it) for it in printed]
