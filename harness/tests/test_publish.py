"""What is tracked is written by one command, and by others only where they are told to."""

from pathlib import Path

import pytest

from harness import publish
from harness.runs import published


def test_every_paper_and_variant_then_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    def say(*words: object, status: int = 0) -> int:
        told.append(words)
        return status

    monkeypatch.setattr("harness.reproduce.main", lambda words: say("reproduce", *words))
    monkeypatch.setattr("harness.report.readme.main", lambda words: say("report", *words))
    monkeypatch.setattr("harness.claims.changes.main", lambda words: say("changes", *words))
    assert publish.main() == 0
    assert told[:2] == [
        ("reproduce", "samullm", "--publish"),
        ("reproduce", "samullm", "--publish", "--variant", "code"),
    ]
    # Whose figures show both variants is judged by both at once.
    assert ("reproduce", "ssjf", "--publish") in told
    assert ("reproduce", "ssjf", "--publish", "--variant", "code") not in told
    assert told[-2:] == [("report",), ("changes", "HEAD")]
    told.clear()
    monkeypatch.setattr("harness.reproduce.main", lambda words: say(*words, status=3))
    assert publish.main() == 3
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
