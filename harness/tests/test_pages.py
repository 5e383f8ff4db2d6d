"""What the written pages say of the tree: paths that are there, floors as they are, few lines."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from harness.claims import effects
from harness.config.paths import ROOT
from harness.core.draft import Draft

PAGES = sorted(ROOT.glob("*.md"))
MOST_LINES = 150
FOLDERS = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != ".")
PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w(?![\w<*])")
"""A folder or a file, in a command or not; one with a word in capitals stands for many."""
EXAMPLE = re.compile(r"[A-Z]{4,}|\b_?sjf\b|_sjf\b|^ours$")
"""What a reader is to write: in capitals, or the policies that a page makes up."""
WRITTEN_BY_RUNS = ("results/local", "results/index.parquet", "results/report.html", "results/wandb")
GROUPS = "|".join(path.name for path in (ROOT / "scenarios").iterdir() if path.is_dir())


VERDICTS = sorted((ROOT / "results" / "claims").glob("*.csv"))
MOST_BYTES = {"pages": 16_384, "claims": 300_000}


def _paths(text: str) -> list[str]:
    return [
        name
        for name in PATH.findall(text)
        if not name.startswith(WRITTEN_BY_RUNS) and not EXAMPLE.search(name)
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


def _chosen(text: str) -> set[str]:
    """Files of the choices that a command line or a text names, such as `policy=vllm`."""
    found = re.findall(rf"(?<![\w./])\+?({GROUPS}(?:/\w+)?)=([a-z]\w+)", text)
    return {f"scenarios/{group}/{name}.yaml" for group, name in found if not EXAMPLE.search(name)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_names_commands_that_are_there(page: Path) -> None:
    """Targets of make, modules to run, files of a scenario's choices."""
    text = page.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {*re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE)}
    made = {*re.findall(r"(?:`|^|= )make ([a-z][a-z0-9-]*)", text, re.MULTILINE)}
    asked = {name for name in made if not EXAMPLE.search(name) and name[:10] != "reproduce-"}
    modules = re.findall(r"python -m ([\w.]+)", text)
    assert asked <= targets
    assert [name for name in modules if find_spec(name) is None] == []
    assert {name for name in _chosen(text) if not (ROOT / name).is_file()} == set()


def test_what_is_said_of_a_draft_and_of_effects_is_there() -> None:
    text = (ROOT / "ADDING.md").read_text(encoding="utf-8")
    said = set(re.findall(r"(?<!/)\bdraft\.(\w+)", text))
    assert {name for name in said if not hasattr(Draft, name)} == set()
    listed = re.search(r"has the helpers: ((?:`\w+`,?\s)+)", text)
    assert listed is not None
    assert {n for n in re.findall(r"\w+", listed[1]) if not hasattr(effects, n)} == set()


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
