"""A paper's page and its table for a terminal, by hand."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.claims.effects import EffectKind, absolute, ratio
from harness.claims.judge import counts
from harness.claims.paper import Claim, Fact, FigureSpec, Judged, JudgedFact, Paper
from harness.claims.texts import number, with_texts
from harness.claims.verdicts import Verdict, Word
from harness.report import paper_page


def judged(id: str, verdict: Verdict, **facts: Any) -> Judged:
    given: dict[str, Any] = {"says": f"claim {id}", "paper": 0.345, "unit": "%"} | facts
    return Judged(Claim(id=id, figure="fig1", where="Fig. 1", quote="", **given), verdict)


SAVED = Verdict(
    Word.HOLDS, 0.4211, 0.39, 0.45, 1.22, 1.13, 1.3, seeds=10, kind=EffectKind.REDUCTION
)
LOST = replace(SAVED, word=Word.FAILS)
NOISY = Verdict(Word.UNTESTED, is_noisy=True)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.4211, "%", "42.1"),
        (0.0002, "%", "0.02"),
        (0.0514, "%", "5.1"),
        (1.079, "x", "1.08"),
        (92.04, " s", "92.0"),
        (1765.8, " s", "1,766"),
        (-0.0, "", "0.00"),
        (0.0076, " s", "0.0076"),
    ],
)
def test_a_number_has_about_three_digits(value: float, unit: str, text: str) -> None:
    assert number(value, unit) == text


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"paper": 0.332}, "33.2%"),
        ({"paper": (1.0, 2.4), "unit": "x"}, "1.0-2.4x"),
        ({"paper": 92.0, "unit": " s"}, "92 s"),
        ({"paper": float("nan"), "printed": "falls"}, "falls"),
        ({"paper": float("nan")}, "-"),
    ],
)
def test_what_the_paper_prints_has_its_unit(facts: Mapping[str, Any], text: str) -> None:
    assert paper_page.printed_of(judged("a", SAVED, **facts)).text == text


def a_group() -> list[Judged]:
    partly = replace(SAVED, word=Word.PARTLY, reason="0.55 of the claimed effect")
    return [
        judged("a", SAVED, group="JCT saved (none / dynamic)"),
        judged("b", Verdict(Word.UNTESTED, reason="needs data: " + "long " * 30), unit=""),
        judged("c", partly, group="JCT saved (none / dynamic)", paper=0.396),
    ]


def test_a_group_shares_a_row_and_one_word_stands_where_all_agree() -> None:
    first, second = paper_page.rows_of(a_group())
    assert [one.claim.id for one in first] == ["a", "c"]
    assert paper_page.words_of(first) == "JCT saved (none / dynamic)"
    assert len(paper_page.why_of(second).split()) == 20
    text = _rendered(a_group())
    assert "34.5 / 39.6%" in text
    assert "42.1%" in text
    assert "holds / partly" in text


def test_a_group_without_brackets_is_followed_by_its_claims() -> None:
    row = [judged(name, SAVED, says=f"over {name}", group="speedup") for name in ("Max", "Min")]
    assert paper_page.words_of(row) == "speedup (over Max / over Min)"


def test_counts_are_of_claims_not_of_rows() -> None:
    """Two of the three share a row, in which all agree."""
    row = [judged(name, SAVED, group="JCT saved (none / all)") for name in "ab"]
    assert len(paper_page.rows_of(row)) == 1
    assert paper_page.counts_text(counts([*row, judged("c", LOST)])) == (
        "2 hold, 0 partly, 1 fail, 0 untested"
    )


def test_a_cause_stands_in_place_of_the_reason() -> None:
    partly = replace(SAVED, word=Word.PARTLY, reason="0.55 of the claimed effect")
    cause = "the queue of the baseline is empty " * 5
    row = [judged("a", partly, why=cause), judged("b", partly, why=cause), judged("c", partly)]
    assert paper_page.why_of(row) == f"{cause.strip()}; 0.55 of the claimed effect"


@pytest.mark.parametrize(
    ("verdicts", "variations", "text"),
    [
        ([SAVED], {"a": SAVED, "b": LOST, "c": NOISY}, " (1 of 2 variations agrees, 1 too noisy)"),
        ([LOST], {"a": LOST, "b": LOST, "c": SAVED}, " (2 of 3 variations agree)"),
        ([SAVED], {"a": NOISY}, " (1 variation too noisy)"),
        ([NOISY], {"a": SAVED}, ""),
        ([SAVED], {}, ""),
        # with both of a row
        ([SAVED, LOST], {"a": SAVED, "b": NOISY}, " (0 of 1 variation agrees, 1 too noisy)"),
    ],
)
def test_variations_agree_that_are_on_the_side_of_the_reference(
    verdicts: list[Verdict], variations: Mapping[str, Verdict], text: str
) -> None:
    row = [replace(judged("a", one), variations=variations) for one in verdicts]
    assert paper_page._agreement(row) == text


def test_a_note_follows_the_reason() -> None:
    partly = replace(SAVED, word=Word.PARTLY, reason="0.55 of the claimed effect")
    row = [judged("a", partly, note="at load 8"), judged("b", SAVED, note="at load 8")]
    assert paper_page.why_of(row) == "0.55 of the claimed effect; at load 8"


def _rendered(rows: list[Judged], width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(paper_page.table_of(rows))
    return out.getvalue()


def test_a_terminal_of_120_columns_shows_all_words() -> None:
    text = _rendered([*a_group(), judged("d", SAVED, says="word " * 15)])
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("word") == 15
    assert "\N{HORIZONTAL ELLIPSIS}" not in text


def test_the_page_begins_with_headline_and_counts() -> None:
    paper = Paper(
        name="p",
        title="P",
        citation="P et al., 2024",
        figures=(FigureSpec(name="fig1", shows="JCT"),),
        headline=lambda by_id: f"**Shorter waits: yes.** {by_id['a'].verdict.ours:.0%}.",
        chosen=("the model",),
    )
    page = paper_page.page_of(paper, a_group(), basis="*Simulated*")
    assert page.startswith("# P\n\nP et al., 2024.")
    quoted = [line for line in page.splitlines() if line.startswith(">")]
    assert quoted == [
        "> **Shorter waits: yes.** 42%.",
        ">",
        "> **1 hold, 1 partly, 0 fail, 1 untested.** *Simulated*.",
    ]
    assert "../figures/p_forest.png" in page
    assert "## Chosen by us\n\n* the model\n" in page
    assert "authors' program" not in page


def full_paper() -> tuple[Paper, list[Judged], list[JudgedFact]]:
    """A paper with every part of a page."""

    def fact(says: str, **given: Any) -> Fact:
        return Fact(says=says, measure=absolute, **given)  # type: ignore[arg-type]

    seconds = Verdict(Word.UNTESTED, 92.0, 90.0, 94.0, kind=EffectKind.ABSOLUTE)
    kept = fact("mean time", where="Fig. 3", paper=80.0, unit=" s")
    broken = fact("P99 at most", paper=50.0, unit=" s", note="{a} of it")
    beside, load = fact("mean wait", unit=" s"), fact("fig. 1, 4 GPUs")
    paper = Paper(
        name="p",
        title="P",
        citation="P et al., 2024",
        figures=(FigureSpec(name="fig1", shows="JCT"),),
        headline=lambda by_id: "**It saves time.**",
        chosen=("the model",),
        program="It was run.",
        facts=(kept, broken, beside),
        loads=(load,),
        load_is="A load of 1 keeps the baseline busy.",
        causes={"The queue is empty": "The baseline waits {a@code} of the time."},
        controls={"Twice the load": "It saves {a}."},
        measured=("p_real", "p_missing"),
    )
    one = replace(judged("a", SAVED), code=replace(SAVED, ours=0.2, word=Word.PARTLY))
    paper.claim("a", figure="fig1", where="", says="", quote="")(ratio)  # type: ignore[arg-type]
    paper.claims["a"] = replace(one.claim, code=("x",), effect=paper.claims["a"].effect)
    facts = [
        JudgedFact(kept, seconds, kept=True, code=seconds, code_kept=False),
        JudgedFact(broken, seconds, kept=False),
        JudgedFact(beside, seconds),
        JudgedFact(load, Verdict(Word.UNTESTED, 1.2), is_load=True),
    ]
    return paper, [one], facts


def test_the_parts_of_a_page_are_in_order(tmp_path: Path) -> None:
    paper, claims, facts = full_paper()
    content = {"engine": "vLLM", "machine": {"cpu": "c", "cores": 2}}
    row = {"system": "a", "figure": "JCT", "measured": 2.0, "simulated": 1.0, "error": -0.5}
    path = tmp_path / "fidelity_runs" / "p_real.json"
    path.parent.mkdir()
    path.write_text(json.dumps(content | {"rows": [row | {"seeds": 3}]}))
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "p_fig1.png").touch()
    page = paper_page.page_of(paper, claims, facts, basis="*Simulated*", results=tmp_path)
    parts = [
        "> **It saves time.**",
        "## Facts kept",
        "| fact | where | printed | ours | authors' program | kept |",
        "| mean time | Fig. 3 | 80 s | 92.0 s [90.0, 94.0] | 92.0 s: not kept | kept |",
        "| P99 at most |  | 50 s | 92.0 s [90.0, 94.0] | - | not kept: 42.1% of it |",
        "| figure | ours |",
        "| mean wait | 92.0 s [90.0, 94.0] |",
        "## Load over capacity\n\nA load of 1 keeps the baseline busy.",
        "| fig. 1, 4 GPUs | 1.20, overloaded |",
        "p_forest.png",
        "| claim | paper | ours | authors' program | verdict | why |",
        "## Why it fails here\n\n**The queue is empty.** The baseline waits 20.0% of the time.",
        "## Positive control\n\n**Twice the load.** It saves 42.1%.",
        "## Figures\n\n**fig1**: JCT",
        "## Real vLLM\n\n`p_real`, vLLM ([more](real-vllm.md)); 3 seeds.",
        "## Chosen by us",
        "## The authors' own program",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert "p_missing" not in page


def test_a_terminal_shows_facts_and_loads() -> None:
    paper, claims, facts = full_paper()
    out = io.StringIO()
    for shown in paper_page.facts_for_terminal(with_texts(paper, claims, facts)[1]):
        Console(file=out, width=120).print(shown)
    assert "not kept: 42.1% of it" in out.getvalue()
    assert "fig. 1, 4 GPUs" in out.getvalue()
    assert paper_page.facts_for_terminal([]) == []


def test_facts_of_a_group_share_a_row() -> None:
    def judged_fact(says: str, paper: float, ours: float, *, is_load: bool = False) -> JudgedFact:
        words = {"says": says, "group": "mean prompt (a / b)", "note": "cut"}
        fact = Fact(measure=absolute, paper=paper, **words)  # type: ignore[arg-type]
        found = Verdict(Word.UNTESTED, ours, ours - 1, ours + 1, kind=EffectKind.ABSOLUTE)
        return JudgedFact(fact, found, is_load, kept=abs(ours / paper - 1) < 0.25)

    _, lines = paper_page.fact_table([judged_fact("a", 19.0, 20.0), judged_fact("b", 90.0, 50.0)])
    assert lines == [
        ["mean prompt (a / b)", "", "19 / 90", "20.0 / 50.0", "kept / not kept: cut"],
    ]
    loads = [judged_fact("a", 1.0, 0.7, is_load=True), judged_fact("b", 1.0, 1.4, is_load=True)]
    for shown, remark in ((loads, ", overloaded above 1"), (loads[1:], ", overloaded")):
        assert paper_page.load_table(shown)[1][0][1].endswith(remark)


def test_the_authors_program_has_a_column_where_it_differs() -> None:
    near = replace(SAVED, ours=0.40)
    far = replace(SAVED, ours=0.2, word=Word.PARTLY)
    one = judged("a", SAVED)
    told = {"model=b": SAVED, "model=c": NOISY}
    same = paper_page._table([replace(one, code=near, variations=told)])
    assert "authors' program" not in same
    assert "| holds (1 of 1 variation agrees, 1 too noisy) |" in same
    both = paper_page._table([replace(one, code=far), judged("b", SAVED)])
    assert "| claim | paper | ours | authors' program | verdict | why |" in both
    assert "| 20.0%: partly | holds |" in both
    assert "| 42.1% [39.0, 45.0] |  | holds |" in both
