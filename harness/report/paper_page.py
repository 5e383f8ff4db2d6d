"""A paper's claims and facts as frames: of its page, of the report and of a terminal.

Claims of one group share a row: numbers and words are joined by " / ", and one stands for all where
all agree.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from pathlib import Path
from typing import TypeVar

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from harness.claims.paper import Judged, JudgedFact, Paper
from harness.claims.texts import NONE, NOT_RUN, Shown, filled, joined, ours_of, printed, with_texts
from harness.claims.verdicts import LOST_WITH, Verdict, Word, agrees
from harness.config.paths import ROOT
from harness.report.pages import WHERE, measured_run, part_of
from harness.report.render import Frames, render

REASON_WORDS = 20
INTERVALS, TERMINAL_INTERVALS = 3, 1
"""Claims of a row with intervals, on a page and on a terminal; longer rows have numbers alone."""
KEPT = {True: "kept", False: "not kept", None: NONE}
PROGRAM = "authors' program"
FACTS, BESIDE, LOADS = "facts", "beside", "loads"
FACT_COLUMNS = {
    FACTS: ("fact", "where", "printed", "ours", PROGRAM, "kept"),
    BESIDE: ("figure", "ours", PROGRAM),
    LOADS: ("figure and setting", "load", PROGRAM, "note"),
}
"""Of facts with a printed number, of what is measured beside them for texts, and of loads."""
MAY_LACK = {PROGRAM, "note"}
"""Columns that are left out where no row has anything."""
CLAIM_COLUMNS = ("claim", "paper", "ours", PROGRAM, "verdict", "variations", "why")
WIDTHS = {"claim": 36, "paper": 16, "ours": 24, "verdict": 14, "why": None}
"""Columns of a terminal, and how wide they may be of its 120."""

T = TypeVar("T", Judged, JudgedFact)


def page_of(
    paper: Paper,
    judged: Sequence[Judged],
    facts: Sequence[JudgedFact] = (),
    *,
    basis: str,
    results: Path = ROOT / "results",
) -> str:
    """The page in Markdown. `basis` is a sentence on engine and fit error.

    Figures are shown whose picture is in results/figures; the forest plot always.
    """
    paths = (results / "fidelity_runs" / f"{name}.json" for name in paper.measured)
    frames = frames_of(paper, judged, facts) | {
        "basis": basis.rstrip("."),
        "where": part_of(f"{WHERE}{paper.name}", results.parent),
        "drawn": {path.stem for path in (results / "figures").glob(f"{paper.name}_*.png")},
        "measured": [measured_run(path) for path in paths if path.is_file()],
    }
    return render("paper.md.j2", **frames) + "\n"


def frames_of(paper: Paper, judged: Sequence[Judged], facts: Sequence[JudgedFact]) -> Frames:
    """What page and report show alike; `fill` puts the numbers into a text of the paper."""
    judged, facts = with_texts(paper, judged, facts)
    by_id = {one.claim.id: one for one in judged}
    return {
        "paper": paper,
        "judged": by_id,
        "claims": claim_frame(judged, INTERVALS),
        **fact_frames(facts),
        "fill": partial(filled, paper=paper, judged=by_id, facts=facts),
    }


def claim_frame(judged: Sequence[Judged], intervals: int) -> pd.DataFrame:
    """A row per group of claims; rows of up to `intervals` claims have theirs."""
    rows = _grouped(judged, lambda one: one.claim.group or one.claim.id)
    return _frame([_claim_row(row, is_short=len(row) > intervals) for row in rows], CLAIM_COLUMNS)


def _claim_row(row: Sequence[Judged], *, is_short: bool) -> dict[str, str]:
    ours = [ours_of(one.verdict, one.claim.unit) for one in row]
    return {
        "claim": _claim_words(row),
        "paper": _paper(row),
        "ours": joined(ours, short=is_short),
        PROGRAM: _code(row),
        "verdict": _together(one.verdict.word.value for one in row),
        "variations": _agreement(row),
        "why": why_of(row),
    }


def fact_frames(facts: Sequence[JudgedFact]) -> dict[str, pd.DataFrame]:
    """By `FACTS`, `BESIDE` and `LOADS`: a row per group of facts."""
    own: dict[str, list[JudgedFact]] = {kind: [] for kind in FACT_COLUMNS}
    for one in facts:
        is_printed = bool(one.fact.printed) or not isnan(one.fact.paper)
        own[LOADS if one.is_load else FACTS if is_printed else BESIDE].append(one)
    found = {}
    for kind, columns in FACT_COLUMNS.items():
        rows = _grouped(own[kind], lambda one: one.fact.group or one.fact.says)
        found[kind] = _frame([*map(_fact_row, rows)], columns)
    return found


def for_terminal(judged: Sequence[Judged], facts: Sequence[JudgedFact]) -> list[Table]:
    """Facts, loads and claims for a terminal of 120 columns; no table where there are no facts."""
    claims = claim_frame(judged, TERMINAL_INTERVALS)[list(WIDTHS)]
    found = [*(frame for frame in fact_frames(facts).values() if len(frame)), claims]
    shown = [Table(box=SIMPLE_HEAD, pad_edge=False) for _ in found]
    for frame, table in zip(found, shown, strict=True):
        for name in map(str, frame):
            most = WIDTHS[name] if frame is claims else None
            table.add_column(name, max_width=most, overflow="fold")
        for line in frame.itertuples(index=False, name=None):
            table.add_row(*line)
    return shown


def _frame(rows: Sequence[Mapping[str, str]], columns: Iterable[str]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(columns), dtype=str)
    empty = [name for name in frame if name in MAY_LACK and set(frame[name]) <= {"", NONE}]
    return frame.drop(columns=empty)


def _grouped(items: Iterable[T], key: Callable[[T], str]) -> list[list[T]]:
    """Those of one key together, where the first stands."""
    rows: dict[str, list[T]] = {}
    for one in items:
        rows.setdefault(key(one), []).append(one)
    return list(rows.values())


def _fact_row(row: Sequence[JudgedFact]) -> dict[str, str]:
    """What any of `FACT_COLUMNS` has; intervals of a group are in its CSV."""
    fact = row[0].fact
    ours = joined([ours_of(one.ours, one.fact.unit) for one in row], short=len(row) > 1)
    code = _together(map(_code_value, row))
    words = dict.fromkeys(("fact", "figure", "figure and setting"), fact.group or fact.says)
    return words | {
        "where": fact.where,
        "printed": joined([printed(it.fact.paper, it.fact.printed, it.fact.unit) for it in row]),
        "ours": ours,
        "load": ours + _overloaded([one.ours for one in row]),
        PROGRAM: code + _overloaded([one.code for one in row]) * row[0].is_load,
        "kept": _together(map(_kept, row)),
        "note": _together(one.fact.note for one in row),
    }


def _overloaded(loads: Sequence[Verdict | None]) -> str:
    """A remark where some loads are above 1."""
    above = [one is not None and one.ours > 1.0 for one in loads]
    return (", overloaded" if all(above) else ", overloaded above 1") * any(above)


def _code_value(one: JudgedFact) -> str:
    if one.code is None:
        return NONE
    text = ours_of(one.code, one.fact.unit).short
    return text if one.code_kept is None else f"{text}: {KEPT[one.code_kept]}"


def _kept(one: JudgedFact) -> str:
    return KEPT[one.kept] + (f": {one.fact.note}" if one.fact.note and not one.kept else "")


def _together(texts: Iterable[str]) -> str:
    """Texts of a row, once where all agree."""
    return joined([Shown(text) for text in texts])


def _claim_words(row: Sequence[Judged]) -> str:
    """What a row claims; a group that does not name its claims in brackets is followed by them."""
    group, says = row[0].claim.group, " / ".join(one.claim.says for one in row)
    if not group:
        return says
    return group if group.endswith(")") else f"{group} ({says})"


def printed_of(one: Judged) -> Shown:
    """What the paper prints, with the ceiling."""
    claim = one.claim
    return printed(claim.paper, claim.printed, claim.unit, one.ceiling)


def _paper(row: Sequence[Judged]) -> str:
    """A ceiling that all share stands once."""
    found = [printed_of(one) for one in row]
    shared = {one.after for one in found}
    if len(found) == 1 or len(shared) > 1:
        return joined(found)
    return joined([replace(one, after="") for one in found]) + shared.pop()


def _agreement(row: Sequence[Judged]) -> str:
    """Such as " (3 of 6 variations agree, 1 too noisy)"; one agrees with all claims of the row."""
    told: dict[str, list[bool]] = {}
    for one in row:
        for name, variation in one.variations.items() if one.verdict.word != Word.UNTESTED else ():
            same = agrees(one.verdict, variation)
            told.setdefault(name, []).extend([] if same is None else [same])
    agree = [all(each) for each in told.values() if each]
    count, same_side, noisy = len(agree), sum(agree), len(told) - len(agree)
    parts = []
    if count:
        verb = "agrees" if 1 in (same_side, count) else "agree"
        parts.append(f"{same_side} of {count} variation{'s' * (count != 1)} {verb}")
    if noisy:
        variations = "" if count else f" variation{'s' * (noisy != 1)}"
        parts.append(f"{noisy}{variations} too noisy")
    return f" ({', '.join(parts)})" if parts else ""


def _code(row: Sequence[Judged]) -> str:
    """What the authors' program gives, where it differs in word or beyond our interval."""
    if not any(_differs(one) for one in row):
        return ""
    found = [(one, one.code) for one in row]
    numbers = [ours_of(code, one.claim.unit) if code else Shown(NONE) for one, code in found]
    words = [Shown(code.word.value if code else NONE) for _, code in found]
    return f"{joined(numbers, short=True)}: {joined(words)}"


def _differs(one: Judged) -> bool:
    if one.code is None or isnan(one.code.ours):
        return False
    found, code = one.verdict, one.code
    is_same = (code.word, code.kind) == (found.word, found.kind)
    return not is_same or not found.low <= code.ours <= found.high


def _cause(one: Judged) -> str:
    """The cause of a verdict; none where its text names what has not run."""
    return "" if NOT_RUN in one.claim.why else one.claim.why.strip()


def why_of(row: Sequence[Judged]) -> str:
    """Causes of a row, each once; of claims without a cause the reasons, then notes, cut short.

    Sizes stand together: "0.42 / 0.57 of the claimed effect". So do variations that lose an effect.
    """
    reasons = (
        part
        for it in row
        for part in it.verdict.reason.split("; ")
        if part and (not _cause(it) or part.startswith(LOST_WITH))
    )
    sizes: dict[str, list[str]] = {}
    lost: dict[str, None] = {}
    for reason in dict.fromkeys(reasons):
        if reason.startswith(LOST_WITH):
            names = reason.removeprefix(LOST_WITH).split(", ")
            lost |= dict.fromkeys(name.strip() for name in names)
        elif size := re.fullmatch(r"([\d.]+)( of the .*)", reason):
            sizes.setdefault(size[2], []).append(size[1])
        else:
            sizes.setdefault(reason, [])
    shown = [" / ".join(found) + words for words, found in sizes.items()]
    shown += [f"{LOST_WITH} {', '.join(lost)}"] * bool(lost)
    shown += [one.claim.note for one in row if not one.claim.untested]
    words = "; ".join(dict.fromkeys(filter(None, shown))).split()
    cut = " ".join(words[:REASON_WORDS]) + "..." * (len(words) > REASON_WORDS)
    return "; ".join(filter(None, [*dict.fromkeys(map(_cause, row)), cut]))
