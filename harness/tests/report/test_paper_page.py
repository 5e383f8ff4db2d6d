"""A paper's page and its table for a terminal, by hand."""

import io
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from harness.claims.effects import Kind
from harness.claims.judge import Judged
from harness.claims.paper import Claim, FigureSpec, Paper
from harness.claims.verdicts import Verdict, Word
from harness.report import paper_page


def judged(id: str, verdict: Verdict, *, kind: Kind = Kind.REDUCTION, **facts: Any) -> Judged:
    given: dict[str, Any] = {"says": f"claim {id}", "paper": 0.345, "unit": "%"} | facts
    claim = Claim(id=id, figure="fig1", where="Fig. 1", quote="", **given)
    return Judged(claim, verdict, kind=kind)


SAVED = Verdict(Word.HOLDS, 0.4211, 0.39, 0.45, 1.22, 1.13, 1.3, seeds=10)


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
    assert paper_page.number(value, unit) == text


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
    assert paper_page.printed(judged("a", SAVED, **facts)) == text


def test_ours_is_a_number_with_interval_a_span_or_a_count() -> None:
    def ours(one: Judged) -> str:
        return paper_page.ours_of(one, one.verdict, interval=True)

    assert ours(judged("a", SAVED)) == "42.1% [39.0, 45.0]"
    one_seed = replace(SAVED, low=-float("inf"), high=float("inf"))
    assert ours(judged("a", one_seed)) == "42.1%"
    span = Verdict(Word.HOLDS, 1.5, 1.4, 1.6, span=(1.08, 2.06))
    assert ours(judged("a", span, kind=Kind.RANGE, unit="x")) == "1.08-2.06x"
    fact = Verdict(Word.HOLDS, 0.9, 0.6, 0.98, seeds=10)
    assert ours(judged("a", fact, kind=Kind.FACT)) == "9 of 10 seeds"
    assert ours(judged("a", Verdict(Word.UNTESTED))) == "-"


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
    assert len(paper_page.reason_of(second).split()) == 20
    text = _rendered(a_group())
    assert "34.5 / 39.6%" in text
    assert "42.1%" in text
    assert "holds / partly" in text


def test_a_group_without_brackets_is_followed_by_its_claims() -> None:
    row = [judged(name, SAVED, says=f"over {name}", group="speedup") for name in ("Max", "Min")]
    assert paper_page.words_of(row) == "speedup (over Max / over Min)"


def test_a_note_follows_the_reason() -> None:
    partly = replace(SAVED, word=Word.PARTLY, reason="0.55 of the claimed effect")
    row = [judged("a", partly, note="at load 8"), judged("b", SAVED, note="at load 8")]
    assert paper_page.reason_of(row) == "0.55 of the claimed effect; at load 8"


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


def test_the_authors_program_has_a_column_where_it_differs() -> None:
    near = replace(SAVED, ours=0.40)
    far = replace(SAVED, ours=0.2, word=Word.PARTLY)
    one = judged("a", SAVED)
    told = {"model=b": SAVED, "model=c": replace(SAVED, is_noisy=True)}
    same = paper_page._table([replace(one, code=near, variations=told)])
    assert "authors' program" not in same
    assert "| holds (1/2) |" in same
    both = paper_page._table([replace(one, code=far), judged("b", SAVED)])
    assert "| claim | paper | ours | authors' program | verdict | reason |" in both
    assert "| 20.0%: partly | holds |" in both
    assert "| 42.1% [39.0, 45.0] |  | holds |" in both
