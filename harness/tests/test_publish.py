"""What is tracked is written by one command, and by others only where they are told to."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import reproduce
from harness.claims.paper import papers
from harness.reproduce import FAILED
from harness.runs import published


def test_every_scenario_then_every_paper_then_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[list[str]] = []
    gives = [0]

    def run_scenarios(runs: Sequence[str], results: Path) -> int:
        told.append(list(runs))
        return gives[0]

    def say(words: list[str]) -> int:
        told.append(words)
        return 0

    # Claims of every paper are checked in `claims/test_wrong_system.py`.
    monkeypatch.setattr(reproduce, "check", lambda paper: None)
    runs = reproduce.every_scenario()
    monkeypatch.setattr(reproduce, "every_scenario", lambda: runs)
    monkeypatch.setattr("harness.reproduce.run_scenarios", run_scenarios)
    monkeypatch.setattr("harness.reproduce.main", say)
    monkeypatch.setattr("harness.report.readme.write_pages", lambda: say([]))
    assert reproduce.publish() == 0
    ran, *then = told
    assert {"mixed variations=true", "mixed variant=code"} <= {*ran}
    assert len({*ran}) == len(ran) > 20
    assert then == [[paper, "--publish", "--no-runs"] for paper in papers()] + [[]]
    told.clear()
    gives[0] = FAILED  # some cells: the others count
    assert reproduce.publish() == FAILED
    assert told[-1] == []
    told.clear()
    gives[0] = 3
    assert reproduce.publish() == 3
    assert len(told) == 1


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
