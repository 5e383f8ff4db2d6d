"""README's part on what holds: each paper's headline and the counts of its verdicts."""

import csv
from collections import Counter
from pathlib import Path

from harness.claims.judge import REFERENCE
from harness.claims.verdicts import Word
from harness.report.paper_page import counts_text


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
