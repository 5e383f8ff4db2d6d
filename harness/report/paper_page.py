"""A paper's page, `results/pages/<paper>.md`, and its table of claims for a terminal.

Claims of one group share a row: numbers and words are joined by " / ", and one stands for all where
all agree.
"""

from collections.abc import Mapping, Sequence
from math import isfinite, isnan

from rich.box import SIMPLE_HEAD
from rich.table import Table

from harness.claims.effects import Kind
from harness.claims.judge import Judged, counts
from harness.claims.paper import Paper
from harness.claims.verdicts import Verdict, Word, told
from harness.config.paths import ROOT
from harness.report.markdown import table

REASON_WORDS = 20
NONE = "-"
PLURALS = {Word.HOLDS: "hold", Word.FAILS: "fail"}
LEGEND = (
    "Ours is *simulated* at the reference setting, with the 95% interval over seeds; of a range, "
    "the least and the most over its settings. In brackets: variations that are not too noisy to "
    "tell, of those run. [What the words mean](verdicts.md); every number is in "
    "[{name}.csv](../claims/{name}.csv)."
)


def page_of(paper: Paper, judged: Sequence[Judged], *, basis: str) -> str:
    """The page in Markdown. `basis` is a sentence on engine and fit error.

    Figures are shown whose picture is in results/figures; the forest plot always.
    """
    name = paper.name
    said = [*paper.headline({one.claim.id: one for one in judged}).strip().splitlines(), ""]
    said.append(f"**{counts_text(counts(judged))}.** {basis.rstrip('.')}.")
    quoted = "\n".join(f"> {line}".rstrip() for line in said)
    shown = [
        f"**{one.name}**: {one.shows}\n\n![{one.name}](../figures/{name}_{one.name}.png)"
        for one in paper.figures
        if (ROOT / "results" / "figures" / f"{name}_{one.name}.png").is_file()
    ]
    parts = [
        f"# {paper.title}",
        f"{paper.citation.rstrip('.')}. [All pages](../../README.md)",
        quoted,
        f"![Share of the claimed effect, claim by claim](../figures/{name}_forest.png)",
        LEGEND.format(name=name),
        _table(judged),
        *(["## Figures", *shown] if shown else []),
        *(["## Chosen by us", "\n".join(f"* {one}" for one in paper.chosen)] * bool(paper.chosen)),
        *(["## The authors' own program", paper.program.strip()] * bool(paper.program)),
    ]
    return "\n\n".join(parts) + "\n"


def table_of(judged: Sequence[Judged]) -> Table:
    """The claims for a terminal of 120 columns; numbers of a group without intervals."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for header, most in (("claim", 36), ("paper", 16), ("ours", 24), ("verdict", 14)):
        shown.add_column(header, max_width=most, overflow="fold")
    shown.add_column("reason", overflow="fold")
    for row in rows_of(judged):
        ours = _ours(row, interval=len(row) == 1)
        shown.add_row(words_of(row), _paper(row), ours, _words(row), reason_of(row))
    return shown


def _table(judged: Sequence[Judged]) -> str:
    rows = rows_of(judged)
    code = [_code(row) for row in rows]
    header = ["claim", "paper", "ours", *["authors' program"] * any(code), "verdict", "reason"]
    cells = [
        [
            *(words_of(row), _paper(row), _ours(row, interval=True), *[beside] * any(code)),
            *(_words(row) + _told(row), reason_of(row)),
        ]
        for row, beside in zip(rows, code, strict=True)
    ]
    return table(header, cells)


def rows_of(judged: Sequence[Judged]) -> list[list[Judged]]:
    """Claims of one group together, where its first stands."""
    rows: dict[str, list[Judged]] = {}
    for one in judged:
        rows.setdefault(one.claim.group or one.claim.id, []).append(one)
    return list(rows.values())


def words_of(row: Sequence[Judged]) -> str:
    """What a row claims; a group that does not name its claims in brackets is followed by them."""
    group, says = row[0].claim.group, " / ".join(one.claim.says for one in row)
    if not group:
        return says
    return group if group.endswith(")") else f"{group} ({says})"


def counts_text(found: Mapping[Word, int]) -> str:
    """Such as "18 hold, 16 partly, 0 fail, 10 untested"."""
    return ", ".join(f"{found.get(word, 0)} {PLURALS.get(word, word)}" for word in Word)


def number(value: float, unit: str = "") -> str:
    """About three digits, without the unit; a share as a percentage where that is `%`."""
    scaled = value * 100 if unit.strip() == "%" else value
    size = abs(scaled)
    if 0 < size < 0.1:
        return f"{scaled:.2g}"
    few = 1 if unit.strip() == "%" and size >= 1 else 2
    return f"{scaled:z,.{few if size < 10 else 1 if size < 100 else 0}f}"


def printed(one: Judged) -> str:
    """What the paper prints, with its unit."""
    claim = one.claim
    values = claim.paper if isinstance(claim.paper, tuple) else (claim.paper,)
    if claim.printed or isnan(values[0]):
        return claim.printed or NONE
    scale = 100 if claim.unit.strip() == "%" else 1
    texts = [f"{value * scale:.6g}" for value in values]
    if claim.unit == "x":
        texts = [text if "." in text else f"{text}.0" for text in texts]
    return "-".join(texts) + claim.unit


def ours_of(one: Judged, found: Verdict, *, interval: bool) -> str:
    """The number that a verdict rests on, with its unit; the span of a range."""
    unit = one.claim.unit
    if isnan(found.ours):
        return NONE
    if one.kind is Kind.FACT:
        return f"{found.ours * found.seeds:.0f} of {found.seeds} seeds"
    if one.kind is Kind.RANGE and found.span:
        return "-".join(number(end, unit) for end in found.span) + unit
    text = number(found.ours, unit) + unit
    if interval and isfinite(found.low) and isfinite(found.high):
        text += f" [{number(found.low, unit)}, {number(found.high, unit)}]"
    return text


def _paper(row: Sequence[Judged]) -> str:
    return _joined([printed(one) for one in row], row)


def _ours(row: Sequence[Judged], *, interval: bool) -> str:
    return _joined([ours_of(one, one.verdict, interval=interval) for one in row], row)


def _words(row: Sequence[Judged]) -> str:
    return _joined([one.verdict.word.value for one in row])


def _told(row: Sequence[Judged]) -> str:
    run = sum(len(one.variations) for one in row)
    return f" ({sum(told(one.variations) for one in row)}/{run})" if run else ""


def _code(row: Sequence[Judged]) -> str:
    """What the authors' program gives, where it differs in word or beyond our interval."""
    if not any(_differs(one) for one in row):
        return ""
    texts = [ours_of(one, one.code, interval=False) if one.code else NONE for one in row]
    words = [one.code.word.value if one.code else NONE for one in row]
    return f"{_joined(texts, row)}: {_joined(words)}"


def _differs(one: Judged) -> bool:
    if one.code is None or isnan(one.code.ours):
        return False
    found = one.verdict
    return one.code.word is not found.word or not found.low <= one.code.ours <= found.high


def reason_of(row: Sequence[Judged]) -> str:
    """Reasons of a row, then notes of claims that are tested, each once, cut at 20 words.

    Sizes stand together: "0.42 / 0.57 of the claimed effect".
    """
    reasons = [part for one in row for part in one.verdict.reason.split("; ")]
    sizes: dict[str, list[str]] = {}
    for reason in filter(None, dict.fromkeys(reasons)):
        size, of, rest = reason.partition(" of the ")
        is_size = bool(of) and size.replace(".", "").isdigit()
        sizes.setdefault(of + rest if is_size else reason, []).extend([size] * is_size)
    shown = [" / ".join(found) + words for words, found in sizes.items()]
    notes = [one.claim.note for one in row if not one.claim.untested]
    words = "; ".join(dict.fromkeys(filter(None, [*shown, *notes]))).split()
    return " ".join(words[:REASON_WORDS]) + "..." * (len(words) > REASON_WORDS)


def _joined(texts: Sequence[str], row: Sequence[Judged] = ()) -> str:
    """One text where all agree; a unit that all share stands at the end alone."""
    if len(set(texts)) == 1:
        return texts[0]
    units = {one.claim.unit for one in row}
    unit = units.pop() if len(units) == 1 else ""
    return " / ".join([*(text.removesuffix(unit) for text in texts[:-1]), texts[-1]])
