"""What is tracked is written by one command, and by others only where they are told to."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import reproduce
from harness.claims.paper import papers
from harness.reproduce import ALL, FAILED, Reproduction, follow
from harness.runs import published


def test_every_scenario_then_every_paper_then_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    is_whole = [True]

    def run_scenarios(runs: Sequence[str], results: Path) -> bool:
        told.append(list(runs))
        return is_whole[0]

    # Claims of every paper are checked in `claims/test_wrong_system.py`.
    monkeypatch.setattr(reproduce, "check", lambda paper: None)
    monkeypatch.setattr(reproduce, "run_scenarios", run_scenarios)
    monkeypatch.setattr(reproduce, "reproduce", told.append)
    monkeypatch.setattr("harness.report.pages.write_pages", lambda: told.append("pages"))
    every = Reproduction(ALL, publish=True)
    assert follow(every) == 0
    ran, *then = told
    assert isinstance(ran, list)
    assert {"mixed variations=true", "mixed variant=code"} <= {*ran}
    assert len({*ran}) == len(ran) > 20
    assert then == [*(Reproduction(it, publish=True, no_runs=True) for it in papers()), "pages"]
    is_whole[0] = False  # some cells have failed: the others count
    assert follow(every) == FAILED
    assert told[-1] == "pages"
    with pytest.raises(ValueError, match="all goes with --publish and nothing else"):
        follow(Reproduction(ALL))


def test_generated_things_are_local_unless_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local = published.place("figures", publish=False, results=tmp_path)
    assert local == tmp_path / "local" / "figures"
    assert published.place("figures", publish=True, results=tmp_path) == tmp_path / "figures"
    published.write(local / "a.json", "{}\n")
    assert (local / "a.json").read_text() == "{}\n"
    assert capsys.readouterr().out == f"wrote {local / 'a.json'}\n"
    assert published.shown(published.RESULTS / "x") == "results/x"
