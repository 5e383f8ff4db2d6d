"""What the written pages say of the tree: paths that are there, floors as they are, few lines."""

import re
from pathlib import Path

import pytest

from harness.config.paths import ROOT

PAGES = sorted(ROOT.glob("*.md"))
MOST_LINES = 150
PATH = re.compile(r"`((?:\w[\w.-]*/)+[\w.-]*\.?\w*)`")
"""A folder or a file, told by its slash; one with a word in capitals stands for many."""
EXAMPLE = re.compile(r"[A-Z]{4,}|\bsjf\.|_sjf\.")
"""What a reader is to write: in capitals, or the policy that a page makes up."""
WRITTEN_BY_RUNS = ("results/local", "results/<", "results/index.parquet", "results/report.html")
FOLDERS = {path.name for path in ROOT.iterdir() if path.is_dir()}


VERDICTS = sorted((ROOT / "results" / "claims").glob("*.csv"))
MOST_BYTES = {"pages": 16_384, "claims": 300_000}


def _paths(text: str) -> list[str]:
    found = [name for name in PATH.findall(text) if name.partition("/")[0] in FOLDERS]
    return [
        name for name in found if not name.startswith(WRITTEN_BY_RUNS) and not EXAMPLE.search(name)
    ]


def _section(page: str, title: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n## {title}")
    return rest.partition("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_is_short_and_names_what_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    assert [name for name in _paths(text) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("title", "most"), [("From a command to a plot", 14), ("From a policy to vLLM's batch", 11)]
)
def test_a_trace_opens_few_files(title: str, most: int) -> None:
    steps = re.findall(r"^\d+\. `([^`]+)`", _section("ARCHITECTURE.md", title), re.MULTILINE)
    assert len(set(steps)) == len(steps) <= most
    assert all((ROOT / step).is_file() for step in steps)


@pytest.mark.parametrize("table", VERDICTS, ids=lambda path: path.stem)
def test_a_papers_page_and_its_verdicts_are_short(table: Path) -> None:
    page = ROOT / "results" / "pages" / f"{table.stem}.md"
    assert page.stat().st_size <= MOST_BYTES["pages"]
    assert table.stat().st_size <= MOST_BYTES["claims"]
    assert "\n> " in page.read_text(encoding="utf-8")


def test_the_page_of_findings_is_short() -> None:
    assert (ROOT / "results" / "FINDINGS.md").stat().st_size <= 8_000
