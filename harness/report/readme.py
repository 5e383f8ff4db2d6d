"""Writes the generated parts of README.md and of the pages below results/pages.

`python -m harness.report` rewrites what stands between `<!-- generated: NAME -->` and
`<!-- end: NAME -->`; the text around it is written by hand.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.claims.paper import REFERENCE
from harness.claims.verdicts import Word
from harness.config.paths import ROOT
from harness.report import measured, real_vllm, served
from harness.report.paper_page import counts_text

MARK = re.compile(r"<!-- generated: ([\w-]+) -->\n(.*?)<!-- end: \1 -->", re.DOTALL)


def holds_part(root: Path) -> str:
    """Of every paper with verdicts: the first paragraph of its page's headline, and the counts."""
    parts = [_of_paper(root, path) for path in sorted((root / "results" / "claims").glob("*.csv"))]
    return "\n\n".join(parts) or "No verdicts are published yet."


def _of_paper(root: Path, path: Path) -> str:
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["setting"] == REFERENCE]
    found = Counter(Word(row["verdict"]) for row in rows)
    page = Path("results") / "pages" / f"{path.stem}.md"
    text = (root / page).read_text(encoding="utf-8")
    quoted = [line[1:].strip() for line in text.splitlines() if line.startswith(">")]
    headline = " ".join(quoted[: quoted.index("")])
    return f"{headline} {counts_text(found)}: [{path.stem}]({page})."


PARTS: Mapping[str, Callable[[Path], str]] = {
    "holds": holds_part,
    "costs": measured.costs_part,
    "engines": served.engines_part,
    "served": served.served_part,
    "predictor": measured.predictor_part,
    "verify": measured.verify_part,
    "bench": measured.bench_part,
    "fidelity": measured.fidelity_part,
    "fidelity-vllm": real_vllm.fidelity_vllm_part,
    "fidelity-headline": real_vllm.fidelity_headline_part,
    "fidelity-runs": measured.fidelity_runs_part,
    "overhead": measured.overhead_part,
    "starting": measured.starting_part,
}
"""By name."""


def rewritten(text: str, root: Path) -> str:
    """`text` with every generated part as it should be. ValueError for a part without its end."""

    def part(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in PARTS:
            raise ValueError(f"there is no generated part {name}; there are {', '.join(PARTS)}")
        return f"<!-- generated: {name} -->\n{PARTS[name](root)}\n<!-- end: {name} -->"

    new = MARK.sub(part, text)
    for start in re.findall(r"<!-- generated: .* -->", MARK.sub("", text)):
        raise ValueError(f"{start} has no {start.replace('generated', 'end')}")
    return new


def pages(root: Path) -> list[Path]:
    """What has generated parts."""
    return [root / "README.md", *sorted((root / "results" / "pages").glob("*.md"))]


def write_pages() -> None:
    """Rewrite the generated parts."""
    for page in pages(ROOT):
        page.write_text(rewritten(page.read_text(encoding="utf-8"), ROOT), encoding="utf-8")
