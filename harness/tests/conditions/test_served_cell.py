"""One cell served by its name: its runs are kept, and give what its row of the table says."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.__main__ import main
from harness.conditions.space import read_spaces
from harness.config.paths import ROOT
from harness.results import scenario_runs
from harness.where import serve_cell

CELLS = ROOT / "results" / "conditions" / "ssjf" / "fig4-none.csv"


def test_published_cells_are_the_sample_of_their_space() -> None:
    table = pd.read_csv(CELLS)
    space = read_spaces("ssjf")["fig4-none"]
    sample = pd.DataFrame(space.sample(len(table)))
    for name in sample:
        assert table[name].tolist() == pytest.approx(sample[name].tolist(), rel=1e-3)


def test_runs_of_a_cell_are_kept_and_give_what_is_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pd.read_csv(CELLS)
    number = int(np.nanargmin(table["requests"].where(table["seeds"] == 3)))
    row = table.loc[number]
    for _ in range(2):  # the second time they are read
        serve_cell("ssjf", f"fig4-none:{number}", tmp_path)
        _, *runs, jct, throughput = capsys.readouterr().out.splitlines()
        assert len(runs) == 6
        assert {str(it) for it in scenario_runs(tmp_path / f"ssjf_fig4-none_{number}")} == {
            it.rpartition(" ")[2] for it in runs
        }
        for said, name in ((jct, "fig4.jct-none"), (throughput, "fig6.throughput-none")):
            assert said.startswith(f"{name}: {row[f'{name} outcome']}, {row[f'{name} value']:.4g} ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cell", "fig4-none:1024"], "fig4-none has no cell '1024': its cells are 0 to 1023"),
        (["--cell", "fig4-none:-1"], "fig4-none has no cell '-1': its cells are 0 to 1023"),
        (["--cell", "nope:1"], "No space is called 'nope'; closest: fig4-none."),
        (["--cell", "3"], "--cell 3 is neither SPACE:NUMBER nor a claim with a map"),
        (
            ["fig4.jct-none", "--cell", "fig4-none:1"],
            "--cell serves one cell for all claims of its space and publishes nothing",
        ),
    ],
)
def test_a_cell_that_is_not_there_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["conditions", "ssjf", *words]) == 2
    assert capsys.readouterr().err == f"error: {said}\n"
