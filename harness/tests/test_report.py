"""README.md says what the committed verdicts and profiles say."""

import json
from pathlib import Path

import pytest

from harness import report
from harness.record import ROOT


def test_readme_is_up_to_date() -> None:
    assert report.main(["--check"]) == 0, "run: python -m harness.report"


def test_a_part_is_rewritten_and_the_rest_kept(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "claims"
    folder.mkdir(parents=True)
    facts = {"paper": [1.1, 2.4], "ours": "1.2 [1.1, 1.3]", "note": "a|b"}
    claims = [
        {"id": "p.one", "verdict": "not reproduced"} | facts,
        {"id": "p.two", "verdict": "not run"} | facts,
    ]
    (folder / "p_verdicts.json").write_text(json.dumps(claims))
    text = "a\n<!-- generated: claims -->\nold\n<!-- end: claims -->\nb"
    new = report.rewritten(text, tmp_path)
    assert "| `p.one` | 1.1 to 2.4 | 1.2 [1.1, 1.3] | **not reproduced** | a/b |" in new
    assert "old" not in new
    assert "p.two" not in new
    assert "Not run yet: 1 of p." in new
    assert (new[0], new[-1]) == ("a", "b")
    assert report.rewritten(new, tmp_path) == new


def test_a_part_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="no <!-- end: claims -->"):
        report.rewritten("<!-- generated: claims -->", ROOT)
