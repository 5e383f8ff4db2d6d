"""README.md and its pages say what the committed verdicts and profiles say."""

import json
from pathlib import Path

import pytest

from harness.claims.settling import Verdict
from harness.paths import ROOT
from harness.report import readme as report


def test_readme_is_up_to_date() -> None:
    assert report.main(["--check"]) == 0, "run: python -m harness.report"


def write_verdicts(root: Path) -> None:
    """Two claims of a paper p: one that depends on what is open, one that was not run."""
    folder = root / "results" / "claims"
    folder.mkdir(parents=True)
    facts = {"paper": [1.1, 2.4], "ours": "1.2 [1.1, 1.3]", "note": "a|b"}
    tried = [
        {"choices": {"slots": 4}, "varied": "", "over": "", "agreement": "agrees"},
        {"choices": {"slots": 8}, "varied": "slots", "over": "", "agreement": "differs"},
    ]
    over = {"open": [{"key": "slots", "values": [4, 8], "source": "not stated"}]}
    claims = [
        {"id": "p.one", "verdict": "depends", "specifications": tried} | over | facts,
        {"id": "p.two", "verdict": "not run"} | facts,
    ]
    (folder / "p_verdicts.json").write_text(json.dumps(claims))


def test_what_is_open_is_listed_with_what_it_decides(tmp_path: Path) -> None:
    write_verdicts(tmp_path)
    made = report.PARTS["open"](tmp_path, "p").splitlines()
    assert made[-1] == "| `p.one` | `slots` | 4: agrees; 8: differs | not stated |"
    (tmp_path / "results" / "figures").mkdir()
    (tmp_path / "results" / "figures" / "p_specifications.png").touch()
    assert "](../figures/p_specifications.png)" in report.PARTS["open"](tmp_path, "p")


def test_claims_stand_beside_what_their_seconds_rest_on(tmp_path: Path) -> None:
    """Those of one basis together; what rests on no seconds is not there."""
    folder = tmp_path / "results" / "claims"
    folder.mkdir(parents=True)
    bases = {"p.one": "gpu (fit error 5%)", "p.two": "", "p.three": "gpu (fit error 5%)"}
    claims = [{"id": name, "basis": basis} for name, basis in bases.items()]
    (folder / "p_verdicts.json").write_text(json.dumps(claims))
    made = report.PARTS["basis"](tmp_path, "p").splitlines()
    assert made[2:] == ["| `one`, `three` | gpu (fit error 5%) |"]


def test_verdicts_are_counted_by_paper(tmp_path: Path) -> None:
    write_verdicts(tmp_path)
    head, _, row = report.PARTS["counts"](tmp_path).splitlines()
    counted = dict(zip(head.split(" | "), row.split(" | "), strict=True))
    assert {name: count for name, count in counted.items() if count.strip("| ").isdigit()} == {
        "depends": "1",
        "not run": "1",
        "claims |": "2 |",
    }


def test_the_rules_are_those_of_the_program(tmp_path: Path) -> None:
    rules = report.PARTS["rules"](tmp_path)
    assert all(f"\n{verdict} " in rules for verdict in Verdict)
    assert all(f"\n{rule} " in rules for rule in ("range", "figure", "within", "bound", "trend"))


def test_a_part_is_rewritten_and_the_rest_kept(tmp_path: Path) -> None:
    write_verdicts(tmp_path)
    text = "a\n<!-- generated: claims p -->\nold\n<!-- end: claims p -->\nb"
    new = report.rewritten(text, tmp_path)
    row = "| `p.one` | 1.1 to 2.4 | 1.2 [1.1, 1.3] | **depends** | 1 of 2 | a/b |"
    assert row in new
    assert "old" not in new
    assert "p.two" not in new
    assert "Not run: 1." in new
    assert (new[0], new[-1]) == ("a", "b")
    assert report.rewritten(new, tmp_path) == new


def test_a_part_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="no <!-- end: claims p -->"):
        report.rewritten("<!-- generated: claims p -->", ROOT)


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match="no generated part clams; there are counts, claims"):
        report.rewritten("<!-- generated: clams -->\n<!-- end: clams -->", ROOT)


def test_heads_stand_beside_what_was_published_for_them(tmp_path: Path) -> None:
    figures = {"accuracy": 0.5, "macro_f1": 0.4, "mae_tokens": 31.26, "spearman": 0.777}
    row = figures | {"classes": 5, "latency_s": {"mean": 0.0123, "p99": 0.05}}
    summary = {
        "heads": [row | {"name": "reg_l1"}, row | {"name": "bin", "classes": 2}],
        "baselines": [row | {"name": "ridge"}],
        "machine": {"cpu": "c", "cores": 2},
        "threads": 1,
        "minutes": 12.3,
        "base": "b",
        "shared_encoder": True,
        "split": {"train": 6000, "validation": 2000, "test": 2000},
        "class_bounds_tokens": [1, 2, 3, 4],
    }
    for name, text in (
        ("predictors/summary.json", json.dumps(summary)),
        (
            "claims/p.yaml",
            "claims: [{id: p.tab2.accuracy, where: Table 2, quantity: accuracy, kind: value, "
            "paper: {regression-l1: [0.615, 0.61]}, not_testable: no data}]",
        ),
    ):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    made = report.PARTS["predictor"](tmp_path)
    assert "| `reg_l1` | 0.615 | 0.610 | 0.500 | 0.400 | 31.3 | 0.78 | 12.3 | 50.0 |" in made
    assert "| `bin` | - | - | 0.500 (of 2) |" in made
    assert "| `ridge` | - | - | 0.500 |" in made
    assert "one encoder for all heads" in made
    assert "6,000 training" in made
