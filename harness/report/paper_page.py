"""A paper's page, `results/pages/<paper>.md`, and its tables of claims and facts for a terminal.

Claims of one group share a row: numbers and words are joined by " / ", and one stands for all where
all agree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from harness.claims.judge import counts
from harness.claims.paper import Fact, Judged, JudgedFact, Paper
from harness.claims.texts import NONE, NOT_RUN, Shown, filled, joined, ours_of, printed, with_texts
from harness.claims.verdicts import LOST_WITH, Verdict, Word, agrees
from harness.config.paths import ROOT
from harness.report.markdown import read_json, table
from harness.report.measured import fidelity_run_text

REASON_WORDS = 20
MOST_INTERVALS = 3
"""Claims of a row with intervals; those of longer rows are in the CSV."""
PLURALS = {Word.HOLDS: "hold", Word.FAILS: "fail"}
LEGEND = (
    "Ours is *simulated* at the reference setting, with the 95% interval over seeds; of a range, "
    "the least and the most over its settings. In brackets: variations on the same side as the "
    "reference (*fails*, or *holds* and *partly*) in all claims of a row, of those not too noisy. "
    "[What the words mean](verdicts.md); every number is in [{name}.csv](../claims/{name}.csv)."
)
BESIDE_ARE = "Not printed, for the texts below:"
FACTS_ARE = (
    "What the paper states of its own runs, at the reference setting: kept within 25% of the "
    "printed value, or within the printed bound."
)
KEPT = {True: "kept", False: "not kept", None: NONE}


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
    name = paper.name
    judged, facts = with_texts(paper, judged, facts)
    by_id = {one.claim.id: one for one in judged}
    said = [*paper.headline(by_id).strip().splitlines(), ""]
    said.append(f"**{counts_text(counts(judged))}.** {basis.rstrip('.')}.")
    fill = partial(filled, paper=paper, judged=by_id, facts=facts)
    parts = [
        f"# {paper.title}",
        f"{paper.citation.rstrip('.')}. [All pages](../../README.md)",
        "\n".join(f"> {line}".rstrip() for line in said),
        *_section("Facts kept", _facts(facts)),
        *_section("Load over capacity", paper.load_is.strip(), _markdown(load_table(facts))),
        f"![Share of the claimed effect, claim by claim](../figures/{name}_forest.png)",
        LEGEND.format(name=name),
        _table(judged),
        *_section("Why it fails here", *_paragraphs(paper.causes, fill)),
        *_section("Positive control", *_paragraphs(paper.controls, fill)),
        *_section("Figures", *_figures(paper, results)),
        *_section("Real vLLM", *_measured(paper, results)),
        *_section("Chosen by us", "\n".join(f"* {one}" for one in paper.chosen)),
        *_section("The authors' own program", paper.program.strip()),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, *parts: str) -> list[str]:
    """A title and what is below it; nothing where its last part is empty."""
    return [f"## {title}", *filter(None, parts)] if parts and parts[-1] else []


def _paragraphs(texts: Mapping[str, str], fill: Callable[[str], str]) -> list[str]:
    return [f"**{title}.** {fill(text).strip()}" for title, text in texts.items()]


def _figures(paper: Paper, results: Path) -> list[str]:
    named = ((one, f"{paper.name}_{one.name}.png") for one in paper.figures)
    return [
        f"**{one.name}**: {one.shows}\n\n![{one.name}](../figures/{file})"
        for one, file in named
        if (results / "figures" / file).is_file()
    ]


def _measured(paper: Paper, results: Path) -> list[str]:
    """The same comparison on real engines, where it was run."""
    paths = (results / "fidelity_runs" / f"{name}.json" for name in paper.measured)
    return [
        fidelity_run_text(path.stem, read_json(path), brief=True)
        for path in paths
        if path.is_file()
    ]


OVERLOADED = ", overloaded"
"""Behind loads above 1."""
OVERLOADED_IN_PART = ", overloaded above 1"

Lines = tuple[list[str], list[list[str]]]
"""Header and lines of a table; without lines it is left out."""


def _markdown(lines: Lines) -> str:
    return table(*lines) if lines[1] else ""


def _facts(facts: Sequence[JudgedFact]) -> str:
    """The table of facts with a printed number, and that of what is measured beside them."""
    tables = ((FACTS_ARE, fact_table(facts)), (BESIDE_ARE, beside_table(facts)))
    return "\n\n".join(f"{words}\n\n{_markdown(one)}" for words, one in tables if one[1])


def _is_printed(fact: Fact) -> bool:
    return bool(fact.printed) or not isnan(fact.paper)


def fact_table(facts: Sequence[JudgedFact]) -> Lines:
    """Fact, where, printed, ours, the authors' program where it was run, and whether it is kept."""
    own = [one for one in facts if not one.is_load and _is_printed(one.fact)]
    has_code = any(one.code for one in own)
    header = ["fact", "where", "printed", "ours", *["authors' program"] * has_code, "kept"]
    lines = []
    for row in _fact_rows(own):
        each = [printed(one.fact.paper, one.fact.printed, one.fact.unit) for one in row]
        texts = [_fact_words(row), row[0].fact.where, joined(each), _values(row)]
        lines.append([*texts, *[_codes(row)] * has_code, _together([_kept(one) for one in row])])
    return header, lines


def beside_table(facts: Sequence[JudgedFact]) -> Lines:
    """What texts need and no paper prints: figure, ours, the authors' program where it was run."""
    own = [one for one in facts if not one.is_load and not _is_printed(one.fact)]
    has_code = any(one.code for one in own)
    lines = [[_fact_words(row), _values(row), *[_codes(row)] * has_code] for row in _fact_rows(own)]
    return ["figure", "ours", *["authors' program"] * has_code], lines


def load_table(facts: Sequence[JudgedFact]) -> Lines:
    """Figure and setting, offered load over capacity, that of the authors' program, remarks."""
    own = [one for one in facts if one.is_load]
    has_code, has_notes = (
        any(of) for of in ([it.code for it in own], [it.fact.note for it in own])
    )
    header = ["figure and setting", "load"]
    header += [*["authors' program"] * has_code, *["note"] * has_notes]
    lines = [
        [
            *(_fact_words(row), _overloaded(_values(row), [one.ours for one in row])),
            *[_overloaded(_codes(row), [one.code for one in row])] * has_code,
            *[_together([one.fact.note for one in row])] * has_notes,
        ]
        for row in _fact_rows(own)
    ]
    return header, lines


def _fact_rows(facts: Sequence[JudgedFact]) -> list[list[JudgedFact]]:
    """Facts of one group together, where its first stands."""
    rows: dict[str, list[JudgedFact]] = {}
    for one in facts:
        rows.setdefault(one.fact.group or one.fact.says, []).append(one)
    return list(rows.values())


def _fact_words(row: Sequence[JudgedFact]) -> str:
    return row[0].fact.group or row[0].fact.says


def _values(row: Sequence[JudgedFact]) -> str:
    """Of a group without intervals, which its CSV has."""
    return joined([ours_of(one.ours, one.fact.unit) for one in row], short=len(row) > 1)


def _codes(row: Sequence[JudgedFact]) -> str:
    return _together([_code_value(one) for one in row])


def _code_value(one: JudgedFact) -> str:
    if one.code is None:
        return NONE
    text = ours_of(one.code, one.fact.unit).short
    return text if one.code_kept is None else f"{text}: {KEPT[one.code_kept]}"


def _kept(one: JudgedFact) -> str:
    return KEPT[one.kept] + (f": {one.fact.note}" if one.fact.note and not one.kept else "")


def _together(texts: Sequence[str]) -> str:
    """Texts of a row, once where all agree."""
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def _overloaded(text: str, loads: Sequence[Verdict | None]) -> str:
    """A row of loads, with a remark where some are above 1."""
    above = [one is not None and one.ours > 1.0 for one in loads]
    return text + (OVERLOADED if all(above) else OVERLOADED_IN_PART) * any(above)


def table_of(judged: Sequence[Judged]) -> Table:
    """The claims for a terminal of 120 columns; numbers of a group without intervals."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for header, most in (("claim", 36), ("paper", 16), ("ours", 24), ("verdict", 14)):
        shown.add_column(header, max_width=most, overflow="fold")
    shown.add_column("why", overflow="fold")
    for row in rows_of(judged):
        ours = joined(_ours(row), short=len(row) > 1)
        shown.add_row(words_of(row), _paper(row), ours, _words(row), why_of(row))
    return shown


def facts_for_terminal(facts: Sequence[JudgedFact]) -> list[Table]:
    """Facts and loads for a terminal; no table where there are none."""
    found = []
    for header, lines in (fact_table(facts), beside_table(facts), load_table(facts)):
        shown = Table(*header, box=SIMPLE_HEAD, pad_edge=False)
        for line in lines:
            shown.add_row(*line)
        found += [shown] * bool(lines)
    return found


def _table(judged: Sequence[Judged]) -> str:
    rows = rows_of(judged)
    code = [_code(row) for row in rows]
    header = ["claim", "paper", "ours", *["authors' program"] * any(code), "verdict", "why"]
    cells = [
        [
            *(words_of(row), _paper(row), joined(_ours(row), short=len(row) > MOST_INTERVALS)),
            *[beside] * any(code),
            *(_words(row) + _agreement(row), why_of(row)),
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


def _ours(row: Sequence[Judged]) -> list[Shown]:
    return [ours_of(one.verdict, one.claim.unit) for one in row]


def _words(row: Sequence[Judged]) -> str:
    return joined([Shown(one.verdict.word.value) for one in row])


def _agreement(row: Sequence[Judged]) -> str:
    """Such as " (3 of 6 variations agree, 1 too noisy)"; one agrees with all claims of the row."""
    tested = [one for one in row if one.verdict.word is not Word.UNTESTED]
    told: dict[str, list[bool]] = {}
    for one in tested:
        for name, variation in one.variations.items():
            same = agrees(one.verdict, variation)
            told.setdefault(name, []).extend([] if same is None else [same])
    agree = [all(each) for each in told.values() if each]
    noisy = len(told) - len(agree)
    count, same_side = len(agree), sum(agree)
    parts = []
    if count:
        verb = "agrees" if 1 in (same_side, count) else "agree"
        parts.append(f"{same_side} of {_variations(count)} {verb}")
    if noisy:
        parts.append(f"{noisy if count else _variations(noisy)} too noisy")
    return f" ({', '.join(parts)})" if parts else ""


def _variations(count: int) -> str:
    return f"{count} variation{'s' * (count != 1)}"


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

    Sizes stand together: "0.42 / 0.57 of the claimed effect".
    """
    reasons = [
        part
        for it in row
        for part in it.verdict.reason.split("; ")
        if not _cause(it) or part.startswith(LOST_WITH)
    ]
    lost = [part.removeprefix(LOST_WITH) for part in reasons if part.startswith(LOST_WITH)]
    names = dict.fromkeys(name.strip() for part in lost for name in part.split(", "))
    reasons = [part for part in reasons if not part.startswith(LOST_WITH)]
    reasons += [f"{LOST_WITH} {', '.join(names)}"] * bool(names)
    sizes: dict[str, list[str]] = {}
    for reason in filter(None, dict.fromkeys(reasons)):
        size, of, rest = reason.partition(" of the ")
        is_size = bool(of) and size.replace(".", "").isdigit()
        sizes.setdefault(of + rest if is_size else reason, []).extend([size] * is_size)
    shown = [" / ".join(found) + words for words, found in sizes.items()]
    notes = [one.claim.note for one in row if not one.claim.untested]
    words = "; ".join(dict.fromkeys(filter(None, [*shown, *notes]))).split()
    cut = " ".join(words[:REASON_WORDS]) + "..." * (len(words) > REASON_WORDS)
    causes = dict.fromkeys(map(_cause, row))
    return "; ".join(filter(None, [*causes, cut]))
