"""Verdicts and facts of a paper as CSV files: written when it is published, read for its pages.

The page and the report are both made from these files, so that their numbers cannot differ.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import isnan, nan
from pathlib import Path

from harness.claims.effects import EffectKind
from harness.claims.paper import (
    AT,
    CEILING,
    CODE,
    REFERENCE,
    Claim,
    Fact,
    Judged,
    JudgedFact,
    Paper,
)
from harness.claims.texts import printed
from harness.claims.verdicts import Verdict, Word

NUMBERS = ("ours", "low", "high", "share", "share_low", "share_high")
COLUMNS = (
    *("claim", "setting", "kind", "paper", *NUMBERS, "least", "most"),
    *("verdict", "seeds", "reason"),
)
"""Of a paper's CSV file; `least` and `most` are the span of several settings."""
FACT_COLUMNS = (
    *("kind", "says", "where", "printed", "ours", "low", "high", "kept"),
    *("code", "code_kept", "note"),
)
FACT, LOAD = "fact", "load"
KEPT = {True: "yes", False: "no", None: ""}


def facts_path(claims: Path, name: str) -> Path:
    """The file of a paper's facts, below the folder of its verdicts."""
    return claims / "facts" / f"{name}.csv"


def write_csv(path: Path, judged: Iterable[Judged]) -> None:
    """Write a row per claim and setting: reference, variations, the program, single settings."""
    rows = (_row(one.claim, name, found) for one in judged for name, found in one.verdicts.items())
    _write(path, COLUMNS, rows)


def write_facts(path: Path, facts: Iterable[JudgedFact]) -> None:
    """Write a row per fact and load."""
    _write(path, FACT_COLUMNS, map(_fact_row, facts))


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _row(claim: Claim, setting: str, found: Verdict) -> list[object]:
    paper = claim.paper if isinstance(claim.paper, tuple) else (claim.paper,)
    said = claim.printed or "-".join(f"{value:g}" for value in paper)
    numbers = [_text(getattr(found, name)) for name in NUMBERS]
    span = [_text(end) for end in found.span or (nan, nan)]
    kind = found.kind or ""
    return [claim.id, setting, kind, said, *numbers, *span, found.word, found.seeds, found.reason]


def _fact_row(one: JudgedFact) -> list[object]:
    fact, ours, code = one.fact, one.ours, one.code
    said = printed(fact.paper, fact.printed, fact.unit).text
    numbers = [_text(value) for value in (ours.ours, ours.low, ours.high)]
    beside = [_text(code.ours) if code else "", KEPT[one.code_kept]]
    kind = LOAD if one.is_load else FACT
    return [kind, fact.says, fact.where, said, *numbers, KEPT[one.kept], *beside, fact.note]


def _text(value: float) -> str:
    return "" if isnan(value) else f"{value:.6g}"


def _number(text: str) -> float:
    return float(text) if text else nan


def read_csv(path: Path, paper: Paper) -> list[Judged]:
    """The claims of a paper as they were judged. ValueError for another list of claims."""
    found: dict[str, dict[str, Verdict]] = {}
    for line in _lines(path):
        if line["claim"] not in found and line["setting"] != REFERENCE:
            raise ValueError(f"{path} has no {REFERENCE} of {line['claim']} first")
        found.setdefault(line["claim"], {})[line["setting"]] = _verdict(line)
    if missing := paper.claims.keys() ^ found.keys():
        raise ValueError(f"{path} and the claims of {paper.name} differ in {min(missing)}")
    return [_judged(claim, found[claim.id]) for claim in paper.claims.values()]


def read_facts(path: Path, paper: Paper) -> list[JudgedFact]:
    """The facts and loads of a paper as they were measured; none where there is no file.

    ValueError for a fact that the paper does not have.
    """
    if not path.is_file():
        return []
    known = {fact.says: fact for fact in (*paper.facts, *paper.loads)}
    lines = list(_lines(path))
    if unknown := {line["says"] for line in lines} - known.keys():
        raise ValueError(f"{path} and the facts of {paper.name} differ in {min(unknown)}")
    return [_judged_fact(known[line["says"]], line) for line in lines]


def _lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _verdict(line: dict[str, str]) -> Verdict:
    """A line as a verdict. Files of an earlier edition have no kind and no span."""
    ours, low, high, share, share_low, share_high = (_number(line.get(it, "")) for it in NUMBERS)
    least, most = (_number(line.get(it, "")) for it in ("least", "most"))
    found = Verdict(Word(line["verdict"]), ours, low, high, share, share_low, share_high)
    return replace(
        found,
        span=None if isnan(least) else (least, most),
        seeds=int(line.get("seeds") or 0),
        reason=line.get("reason", ""),
        is_noisy=line.get("reason", "").startswith("too noisy"),
        kind=EffectKind(line["kind"]) if line.get("kind") else None,
    )


def _judged(claim: Claim, verdicts: dict[str, Verdict]) -> Judged:
    reference = verdicts.pop(REFERENCE)
    code, ceiling = verdicts.pop(CODE, None), verdicts.pop(CEILING, None)
    at = {name: one for name, one in verdicts.items() if name.startswith(AT)}
    variations = {name: one for name, one in verdicts.items() if name not in at}
    settings = {name.removeprefix(AT): one for name, one in at.items()}
    return Judged(claim, reference, variations, code, settings, ceiling)


def _judged_fact(fact: Fact, line: dict[str, str]) -> JudgedFact:
    value, low, high = (_number(line[name]) for name in ("ours", "low", "high"))
    ours = Verdict(Word.UNTESTED, value, low, high)
    code = Verdict(Word.UNTESTED, _number(line["code"])) if line["code"] else None
    kept = {text: value for value, text in KEPT.items()}
    return JudgedFact(
        fact,
        ours,
        is_load=line["kind"] == LOAD,
        kept=kept[line["kept"]],
        code=code,
        code_kept=kept[line["code_kept"]],
    )
