"""The report's part of a paper: headline, figures with plots, and a row per claim.

Texts of claims come from `systems/<paper>/claims.py`; numbers and words from the published page
and from results/claims, so that report and page never differ.
"""

import base64
import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from harness.claims.judge import CODE, REFERENCE, Judged
from harness.claims.paper import Claim, FigureSpec, Paper
from harness.claims.verdicts import Verdict, Word
from harness.report.paper_page import NONE, PLURALS, number, printed, reason_of, rows_of, words_of

COLOURS = 64
"""Of a plot in the file: lines and letters need no more."""
WIDEST = 1600
"""Pixels; wider plots are made smaller."""
HEADER = re.compile(r"\n\| claim \|(.*)\n\|[- |]+\n((?:\|.*\n?)*)")
PURE = re.compile(r"-?[\d.,]+(?:-[\d.,]+)?")
"""A number or a range without its unit, as all but the last of a group have it."""
INTERVAL = re.compile(r"(.+?) (\[.+\])")

Page = dict[str, Any]
Line = Mapping[str, str]
"""A line of a paper's CSV file."""


def paper_part(root: Path, paper: Paper) -> Page:
    """What the report says of a paper; without published verdicts, the command that makes them.

    ValueError where the page, the verdicts and the claims do not go together: one is older.
    """
    page = root / "results" / "pages" / f"{paper.name}.md"
    verdicts = root / "results" / "claims" / f"{paper.name}.csv"
    found: Page = {"name": paper.name, "title": paper.title, "citation": paper.citation}
    found |= {"command": f"make reproduce-{paper.name}", "figures": [], "claims": {}}
    if not (page.is_file() and verdicts.is_file()):
        return found
    text = page.read_text(encoding="utf-8")
    said = [line[1:].strip() for line in text.splitlines() if line.startswith(">")]
    lead, _, rest = " ".join(said[: said.index("")]).removeprefix("**").partition("**")
    lines = _lines(verdicts)
    if missing := paper.claims.keys() ^ lines.keys():
        raise ValueError(f"{verdicts} and the claims of {paper.name} differ in {min(missing)}")
    basis = plain(said[-1]).partition(". ")[2]
    rows = claim_rows(paper, text, lines)
    return found | {
        "lead": plain(lead),
        "rest": plain(rest).strip(),
        "basis": basis,
        "counts": counts_of(rows),
        "figures": [_figure(root, paper, one, rows, basis) for one in paper.figures],
        "forest": picture(root, f"{paper.name}_forest"),
        "claims": {claim: _more(paper.claims[claim], every) for claim, every in lines.items()},
        "chosen": list(paper.chosen),
        "program": plain(paper.program.strip()),
    }


def _lines(path: Path) -> dict[str, list[Line]]:
    """Lines of a CSV file by claim, the reference first."""
    found: dict[str, list[Line]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["claim"] not in found and line["setting"] != REFERENCE:
                raise ValueError(f"{path} has no {REFERENCE} of {line['claim']} first")
            found.setdefault(line["claim"], []).append(line)
    return found


def claim_rows(paper: Paper, page: str, lines: Mapping[str, Sequence[Line]]) -> list[Page]:
    """Of every claim its words, the paper's number, ours, interval, verdict and reason.

    ValueError for a claim that the page does not have.
    """
    table = HEADER.search(page)
    header = ["claim", *(name.strip() for name in table[1].split("|")[:-1])] if table else []
    cells = [line[2:-2].split(" | ") for line in table[2].splitlines()] if table else []
    ours = {line[0]: line[header.index("ours")] for line in cells}
    found = []
    judged = []
    for claim, (line, *_) in ((it, lines[it.id]) for it in paper.claims.values()):
        judged.append(Judged(claim, Verdict(Word(line["verdict"]), reason=line["reason"])))
    for row in rows_of(judged):
        words = words_of(row).replace("|", "/")
        if words not in ours:
            raise ValueError(f"the page of {paper.name} has no row {words!r}")
        texts = each_of(ours[words], [one.claim.unit for one in row])
        found += [_row(one, text) for one, text in zip(row, texts, strict=True)]
    return found


def each_of(joined: str, units: Sequence[str]) -> list[str]:
    """The texts that a page joins by " / ", each with its unit; of another number, all for each."""
    texts = joined.strip().split(" / ")
    if len(texts) != len(units):
        return [joined.strip()] * len(units)
    return [
        text + unit if PURE.fullmatch(text) else text
        for text, unit in zip(texts, units, strict=True)
    ]


def _row(one: Judged, ours: str) -> Page:
    claim = one.claim
    parts = INTERVAL.fullmatch(ours) if " / " not in ours else None
    return {
        "id": claim.id,
        "figure": claim.figure,
        "claim": label_of(claim),
        "paper": printed(one),
        "ours": parts[1] if parts else ours,
        "interval": parts[2] if parts else "",
        "word": one.verdict.word.value,
        "reason": reason_of([one]),
    }


def label_of(claim: Claim) -> str:
    """The words of a claim alone: its group, then what distinguishes it there."""
    group, says = claim.group.partition(" (")[0].split(), claim.says.split()
    if {word.strip(",:") for word in group} <= {word.strip(",:") for word in says}:
        return claim.says
    same = [one.strip(",") == other.strip(",") for one, other in zip(group, says, strict=False)]
    start = same.index(False) if False in same else len(same)
    return f"{' '.join(group)}: {' '.join(says[start:] or says)}"


def _more(claim: Claim, lines: Sequence[Line]) -> Page:
    """The quotation, and of every other setting its name, ours, interval, word and reason."""
    unit = "%" if claim.unit == "%" else ""
    settings = []
    for line in lines[1:]:
        ours, low, high = (
            line[name] and number(float(line[name]), claim.unit) for name in ("ours", "low", "high")
        )
        said = "the authors' program" if line["setting"] == CODE else line["setting"]
        shown = ours + unit if ours else NONE
        interval = f"[{low}, {high}]" if low else ""
        settings.append([said, shown, interval, line["verdict"], line["reason"]])
    return {"quote": f"{claim.where}: {claim.quote}", "settings": settings}


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
