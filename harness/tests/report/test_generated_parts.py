"""README.md and its pages say what the committed verdicts and profiles say."""

import json
import shutil
from pathlib import Path

import pytest

from harness.config.paths import PROFILES, ROOT
from harness.report import pages


def test_readme_is_up_to_date() -> None:
    for page in pages.every_page(ROOT):
        text = page.read_text(encoding="utf-8")
        assert pages.rewritten(text, ROOT) == text, "run: python -m harness.report"


def write_verdicts(root: Path) -> None:
    """Three claims of a paper p, and its page."""
    for name, text in {
        "claims/p.csv": "claim,setting,verdict\na,reference,holds\na,model=b,fails\n"
        "b,reference,untested\nc,reference,holds\n",
        "pages/p.md": "# P\n\n> **P. It holds.**\n> Faster by 42%.\n>\n> **2 hold.** Simulated.\n",
    }.items():
        path = root / "results" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)


def test_what_holds_is_the_headline_and_the_counts_of_the_reference(tmp_path: Path) -> None:
    assert pages.part_of("holds", tmp_path) == "No verdicts are published yet."
    write_verdicts(tmp_path)
    assert pages.part_of("holds", tmp_path) == (
        "**P. It holds.** Faster by 42%. "
        "2 hold, 0 partly, 0 fail, 1 untested: [p](results/pages/p.md)."
    )


def test_a_part_is_rewritten_and_the_rest_kept(tmp_path: Path) -> None:
    write_verdicts(tmp_path)
    text = "a\n<!-- generated: holds -->\nstale\n<!-- end: holds -->\nb"
    new = pages.rewritten(text, tmp_path)
    assert "2 hold" in new
    assert "stale" not in new
    assert (new[0], new[-1]) == ("a", "b")
    assert pages.rewritten(new, tmp_path) == new


def test_a_part_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="no <!-- end: holds -->"):
        pages.rewritten("<!-- generated: holds -->", ROOT)


def test_seconds_to_take_a_request_in_are_shown_where_a_profile_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(PROFILES / "a100_80g_vllm_0_3", tmp_path / "a100")
    monkeypatch.setattr(pages, "PROFILES", tmp_path)
    assert "received_s" not in pages.part_of("costs", ROOT)
    shutil.copytree(PROFILES / "h200-141g_vllm", tmp_path / "own")
    profile = tmp_path / "own" / "random-1b.json"
    content = json.loads(profile.read_text())
    content["tensor_parallel"]["1"] |= {"received_s": [0.00061, 0.0002]}
    profile.write_text(json.dumps(content))
    assert pages.part_of("costs", ROOT).endswith(
        "computed: `own`, random-1b: 0.61 ms, each further one 0.2 ms."
    )


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match="no generated part clams; there are holds, costs"):
        pages.rewritten("<!-- generated: clams -->\n<!-- end: clams -->", ROOT)


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
    folder = tmp_path / "results" / "predictors"
    folder.mkdir(parents=True)
    published = {"heads": {"reg_l1": [0.615, 0.61]}}
    for name, content in (("summary", summary), ("published", published)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    made = pages.part_of("predictor", tmp_path)
    assert "| `reg_l1` | 0.615 | 0.610 | 0.500 | 0.400 | 31.3 | 0.78 | 12.3 | 50.0 |" in made
    assert "| `bin` | - | - | 0.500 (of 2) |" in made
    assert "| `ridge` | - | - | 0.500 |" in made
    assert "one encoder for all heads" in made
    assert "6,000 training" in made
