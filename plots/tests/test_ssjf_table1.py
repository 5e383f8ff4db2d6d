import pytest

from plots.ssjf_table1 import PAPER, latencies, main


def test_ratios_are_ours_over_the_papers() -> None:
    rows = latencies().set_index("paper")
    assert list(rows.index) == list(PAPER)
    for reading in ("prompt", "generate"):
        again = rows[f"{reading}_ms"] / rows["paper_ms"]
        assert rows[f"{reading}_ratio"].tolist() == pytest.approx(again.tolist())


def test_the_papers_figures_lie_between_both_readings() -> None:
    """So neither reading reproduces them, for any of the ten models."""
    rows = latencies()
    assert (rows["prompt_ms"] < rows["paper_ms"]).all()
    assert (rows["generate_ms"] > rows["paper_ms"]).all()


def test_every_model_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in PAPER)
