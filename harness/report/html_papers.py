"""The report's part of a paper: headline, facts, figures with plots, and a row per claim.

Texts of claims come from `systems/<paper>/claims.py`, numbers and words from results/claims, from
which the published page is made, too; the headline from that page.
"""

import base64
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from harness.claims.paper import CODE, REFERENCE, Claim, FigureSpec, Judged, Paper
from harness.claims.tables import facts_path, read_csv, read_facts
from harness.claims.texts import filled, ours_of, with_texts
from harness.claims.verdicts import Word
from harness.report.paper_page import (
    BESIDE_ARE,
    FACTS_ARE,
    PLURALS,
    beside_table,
    fact_table,
    load_table,
    printed_of,
    why_of,
)

COLOURS = 64
"""Of a plot in the file: lines and letters need no more."""
WIDEST = 1600
"""Pixels; wider plots are made smaller."""

Page = dict[str, Any]


def paper_part(root: Path, paper: Paper) -> Page:
    """What the report says of a paper; without published verdicts, the command that makes them.

    ValueError where the verdicts and the claims do not go together: one is older.
    """
    page = root / "results" / "pages" / f"{paper.name}.md"
    claims = root / "results" / "claims"
    verdicts = claims / f"{paper.name}.csv"
    found: Page = {"name": paper.name, "title": paper.title, "citation": paper.citation}
    found |= {"command": f"make reproduce-{paper.name}", "figures": [], "claims": {}}
    if not (page.is_file() and verdicts.is_file()):
        return found
    headline = _headline(page.read_text(encoding="utf-8"))
    judged, facts = read_csv(verdicts, paper), read_facts(facts_path(claims, paper.name), paper)
    judged, facts = with_texts(paper, judged, facts)
    by_id = {one.claim.id: one for one in judged}
    fill = partial(filled, paper=paper, judged=by_id, facts=facts)
    rows = [_row(one) for one in judged]
    return found | {
        **headline,
        "counts": counts_of(rows),
        "tables": [
            ("Facts kept", FACTS_ARE, *fact_table(facts)),
            ("Beside the facts", BESIDE_ARE, *beside_table(facts)),
            ("Load over capacity", plain(paper.load_is), *load_table(facts)),
        ],
        "figures": [_figure(root, paper, one, rows, headline["basis"]) for one in paper.figures],
        "forest": picture(root, f"{paper.name}_forest"),
        "claims": {one.claim.id: _more(one) for one in judged},
        "said": [
            (heading, [(title, plain(fill(text))) for title, text in texts.items()])
            for heading, texts in (
                ("Why it fails here", paper.causes),
                ("Positive control", paper.controls),
            )
        ],
        "chosen": list(paper.chosen),
        "program": plain(paper.program.strip()),
    }


def _headline(page: str) -> dict[str, str]:
    """Of a published page: the words in bold, the rest, and what its seconds rest on."""
    said = [line[1:].strip() for line in page.splitlines() if line.startswith(">")]
    lead, _, rest = " ".join(said[: said.index("")]).removeprefix("**").partition("**")
    basis = plain(said[-1]).partition(". ")[2]
    return {"lead": plain(lead), "rest": plain(rest).strip(), "basis": basis}


def _row(one: Judged) -> Page:
    claim, ours = one.claim, ours_of(one.verdict, one.claim.unit)
    return {
        "id": claim.id,
        "figure": claim.figure,
        "claim": label_of(claim),
        "paper": printed_of(one).text,
        "ours": ours.short,
        "interval": ours.after.strip(),
        "word": one.verdict.word.value,
        "why": why_of([one]),
    }


def label_of(claim: Claim) -> str:
    """The words of a claim alone: its group, then what distinguishes it there."""
    group, says = claim.group.partition(" (")[0].split(), claim.says.split()
    if {word.strip(",:") for word in group} <= {word.strip(",:") for word in says}:
        return claim.says
    same = [one.strip(",") == other.strip(",") for one, other in zip(group, says, strict=False)]
    start = same.index(False) if False in same else len(same)
    return f"{' '.join(group)}: {' '.join(says[start:] or says)}"


def _more(one: Judged) -> Page:
    """The quotation, and of every other setting its name, ours, interval, word and reason."""
    settings = []
    for name, found in one.verdicts.items():
        if name != REFERENCE:
            ours = ours_of(found, one.claim.unit)
            said = "the authors' program" if name == CODE else name
            settings.append([said, ours.short, ours.after.strip(), found.word, found.reason])
    return {"quote": f"{one.claim.where}: {one.claim.quote}", "settings": settings}


def counts_of(rows: Sequence[Page]) -> list[tuple[str, str]]:
    """Every word that rows have, and how many have it, such as ("holds", "2 hold")."""
    count = Counter(Word(row["word"]) for row in rows)
    return [(it.value, f"{count[it]} {PLURALS.get(it, it)}") for it in Word if count[it]]


def _figure(root: Path, paper: Paper, figure: FigureSpec, rows: Sequence[Page], basis: str) -> Page:
    """A figure with its plot, its rows and what its seconds rest on."""
    own = [row for row in rows if row["figure"] == figure.name]
    runs = [*figure.scenarios, *figure.also]
    has_result = bool(figure.plot) or any(row["word"] != Word.UNTESTED.value for row in own)
    engine = "Not tested here: no run."
    if runs:
        engine = f"{basis} Scenarios: {', '.join(runs)}."
    elif has_result:
        engine = "No run: from stored measurements and published lengths."
    for module, measured in figure.needs.items():
        engine += f" {', '.join(measured)} runs in {module}."
    return {
        "name": figure.name,
        "shows": figure.shows,
        "rows": own,
        "counts": counts_of(own),
        "picture": picture(root, f"{paper.name}_{figure.name}"),
        "command": f"make reproduce-{paper.name}-{figure.name}" if runs or has_result else "",
        "engine": engine,
    }


def plain(text: str) -> str:
    """Markdown as plain text."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text).replace("**", "").replace("*", "")


def picture(root: Path, name: str) -> Page | None:
    """A published plot with its size, as a data address; None where there is none."""
    path = root / "results" / "figures" / f"{name}.png"
    if not path.is_file():
        return None
    small = BytesIO()
    with Image.open(path) as whole:
        image = whole.convert("RGB")
        image.thumbnail((WIDEST, WIDEST * 4))
        image.quantize(COLOURS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
        width, height = image.size
    source = f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}"
    return {"source": source, "width": width, "height": height}
