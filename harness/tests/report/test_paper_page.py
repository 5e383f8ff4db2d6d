"""A paper's page and its table for a terminal, by hand."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.claims.effects import Kind, absolute, ratio
from harness.claims.judge import Judged, JudgedFact
from harness.claims.paper import Claim, Fact, FigureSpec, Paper
from harness.claims.texts import number
from harness.claims.verdicts import LOST_WITH, Verdict, Word
from harness.report import paper_page


def judged(id: str, verdict: Verdict, **facts: Any) -> Judged:
    given: dict[str, Any] = {"says": f"claim {id}", "paper": 0.345, "unit": "%"} | facts
    return Judged(Claim(id=id, figure="fig1", where="Fig. 1", quote="", **given), verdict)


SAVED = Verdict(Word.HOLDS, 0.4211, 0.39, 0.45, 1.22, 1.13, 1.3, seeds=10, kind=Kind.REDUCTION)
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
    first, second = paper_page.claim_frame(a_group(), 3).to_dict("records")
    assert first["claim"] == "JCT saved (none / dynamic)"
    assert first["paper"] == "34.5 / 39.6%"
    assert first["ours"] == "42.1% [39.0, 45.0]"
    assert first["verdict"] == "holds / partly"
    assert second["claim"] == "claim b"
    assert len(second["why"].split()) == 20


def test_a_group_without_brackets_is_followed_by_its_claims() -> None:
    row = [judged(name, SAVED, says=f"over {name}", group="speedup") for name in ("Max", "Min")]
    (words,) = paper_page.claim_frame(row, 3)["claim"]
    assert words == "speedup (over Max / over Min)"


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
    (said,) = paper_page.claim_frame(row, 3)["variations"]
    assert said == text


def test_sizes_stand_together_before_lost_variations_and_notes() -> None:
    row = [
        judged("a", replace(LOST, reason=f"{size} of the claim; {LOST_WITH} {names}"), note="at 8")
        for size, names in (("0.42", "b, c"), ("0.57", "c, d"))
    ]
    assert paper_page.why_of(row) == f"0.42 / 0.57 of the claim; {LOST_WITH} b, c, d; at 8"


def printed_for_terminal(claims: list[Judged], facts: list[JudgedFact]) -> str:
    """What a terminal of 120 columns shows."""
    out = io.StringIO()
    for shown in paper_page.for_terminal(claims, facts):
        Console(file=out, width=120).print(shown)
    return out.getvalue()


def test_a_terminal_of_120_columns_shows_all_words() -> None:
    claims = [*a_group(), judged("d", SAVED, says="word " * 15)]
    text = printed_for_terminal(claims, full_paper()[2])
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("word") == 15
    assert "fig. 1, 4 GPUs" in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert printed_for_terminal([], []).split()[:5] == ["claim", "paper", "ours", "verdict", "why"]


def full_paper() -> tuple[Paper, list[Judged], list[JudgedFact]]:
    """A paper with every part of a page."""

    def fact(says: str, **given: Any) -> Fact:
        return Fact(says=says, measure=absolute, **given)  # type: ignore[arg-type]

    seconds = Verdict(Word.UNTESTED, 92.0, 90.0, 94.0, kind=Kind.ABSOLUTE)
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
        "# P\n\nP et al., 2024. [All pages]",
        "> **It saves time.**\n>\n> **1 hold, 0 partly, 0 fail, 0 untested.** *Simulated*.\n",
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
        "## Chosen by us\n\n* the model\n",
        "## The authors' own program\n\nIt was run.\n",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
    assert "p_missing" not in page


def test_a_page_has_no_part_that_its_paper_lacks_and_counts_claims(tmp_path: Path) -> None:
    paper = Paper(name="p", title="P", citation="", figures=(), headline=lambda by_id: "")
    page = paper_page.page_of(paper, a_group(), basis="*Simulated*", results=tmp_path)
    assert "> **1 hold, 1 partly, 0 fail, 1 untested.** *Simulated*.\n" in page
    assert "\n## " not in page
    assert "authors' program" not in page


def test_facts_of_a_group_share_a_row() -> None:
    def judged_fact(says: str, paper: float, ours: float, *, is_load: bool = False) -> JudgedFact:
        words = {"says": says, "group": "mean prompt (a / b)", "note": "cut"}
        fact = Fact(measure=absolute, paper=paper, **words)  # type: ignore[arg-type]
        found = Verdict(Word.UNTESTED, ours, ours - 1, ours + 1, kind=Kind.ABSOLUTE)
        return JudgedFact(fact, found, is_load, kept=abs(ours / paper - 1) < 0.25)

    found = paper_page.fact_frames([judged_fact("a", 19.0, 20.0), judged_fact("b", 90.0, 50.0)])
    assert found["facts"].to_numpy().tolist() == [
        ["mean prompt (a / b)", "", "19 / 90", "20.0 / 50.0", "kept / not kept: cut"],
    ]
    loads = [judged_fact("a", 1.0, 0.7, is_load=True), judged_fact("b", 1.0, 1.4, is_load=True)]
    for shown, remark in ((loads, ", overloaded above 1"), (loads[1:], ", overloaded")):
        assert paper_page.fact_frames(shown)["loads"]["load"][0].endswith(remark)


def test_the_authors_program_has_a_column_where_it_differs() -> None:
    near = replace(SAVED, ours=0.40)
    far = replace(SAVED, ours=0.2, word=Word.PARTLY)
    one = judged("a", SAVED)
    told = {"model=b": SAVED, "model=c": NOISY}
    same = paper_page.claim_frame([replace(one, code=near, variations=told)], 3)
    assert "authors' program" not in same
    both = paper_page.claim_frame([replace(one, code=far), judged("b", SAVED)], 3)
    assert both["authors' program"].tolist() == ["20.0%: partly", ""]
