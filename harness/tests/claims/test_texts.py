"""Numbers as pages print them, and texts with numbers in them, by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.claims.effects import ClaimError, EffectKind, absolute, ratio
from harness.claims.paper import Fact, FigureSpec, Judged, JudgedFact, Paper
from harness.claims.texts import Shown, check_texts, filled, joined, ours_of, printed, with_texts
from harness.claims.verdicts import Verdict, Word

SAVED = Verdict(
    Word.HOLDS, 0.4211, 0.39, 0.45, 1.22, 1.13, 1.3, seeds=10, kind=EffectKind.REDUCTION
)
LONGER = Verdict(Word.FAILS, -0.78, -0.83, -0.72, kind=EffectKind.REDUCTION)
POINTS = Verdict(Word.PARTLY, 0.123, 0.1, 0.146, kind=EffectKind.DIFFERENCE)


@pytest.mark.parametrize(
    ("found", "unit", "text"),
    [
        (SAVED, "%", "42.1% [39.0, 45.0]"),
        (LONGER, "%", "takes 1.78 times as long [1.72, 1.83]"),
        (POINTS, "x", "12.3 points [10.0, 14.6]"),
        (replace(LONGER, low=-float("inf"), high=float("inf")), "%", "takes 1.78 times as long"),
        (
            Verdict(Word.HOLDS, 1.5, 1.4, 1.6, span=(1.08, 2.06), kind=EffectKind.RANGE),
            "x",
            "1.08-2.06x",
        ),
        (Verdict(Word.HOLDS, 0.9, 0.6, 1.0, seeds=10, kind=EffectKind.FACT), "x", "9 of 10 seeds"),
        (Verdict(Word.UNTESTED), "x", "-"),
    ],
)
def test_ours_has_unit_and_interval(found: Verdict, unit: str, text: str) -> None:
    assert ours_of(found, unit).text == text


def test_the_ceiling_stands_beside_what_is_printed() -> None:
    most = Verdict(Word.UNTESTED, 0.35, kind=EffectKind.ABSOLUTE)
    assert printed(0.585, "", "%", most).text == "58.5% (ceiling 35.0%)"


@pytest.mark.parametrize(
    ("verdicts", "short", "text"),
    [
        ((SAVED, replace(SAVED, ours=0.1)), True, "42.1 / 10.0%"),
        ((SAVED, SAVED), True, "42.1%"),
        ((SAVED, replace(LONGER, ours=-0.06)), True, "42.1% / takes 1.06 times as long"),
        ((LONGER, replace(LONGER, ours=-0.06)), True, "takes 1.78 / 1.06 times as long"),
        (
            (LONGER, replace(LONGER, ours=-0.06, low=-0.1, high=0.01)),
            False,
            "takes 1.78 [1.72, 1.83] / 1.06 [0.99, 1.10] times as long",
        ),
    ],
)
def test_numbers_of_a_row_are_joined(verdicts: Sequence[Verdict], short: bool, text: str) -> None:
    assert joined([ours_of(one, "%") for one in verdicts], short=short) == text
    assert joined([Shown("holds"), Shown("fails")]) == "holds / fails"


def a_paper(**given: Any) -> Paper:
    """A claim that is tested with a program of its authors, one that is not, a fact and a load."""
    facts = [Fact(says=says, measure=absolute, unit=" s") for says in ("mean time", "offered")]  # type: ignore[arg-type]
    paper = Paper(
        name="p",
        title="",
        citation="",
        figures=(),
        headline=lambda _: "",
        facts=(facts[0],),
        loads=(facts[1],),
        variations={"engine.speed=2": "a faster engine"},
        **given,
    )
    shared = {"figure": "f", "where": "", "says": "", "quote": "", "unit": "%"}
    paper.figures = (FigureSpec(name="f", shows="", code=("x",)),)
    paper.claim("f.saved", **shared)(ratio)  # type: ignore[arg-type]
    paper.untested("f.untested", because="fed in", note="{f.saved} of it", **shared)
    return paper


def results(paper: Paper) -> tuple[list[Judged], list[JudgedFact]]:
    one, untested = paper.claims.values()
    variations = {"a faster engine": LONGER}
    judged = Judged(one, SAVED, variations, replace(SAVED, ours=0.2), {"3000": SAVED})
    reason = f"fed in: {untested.note}"
    seconds = Verdict(Word.UNTESTED, 92.0, kind=EffectKind.ABSOLUTE)
    return (
        [judged, Judged(untested, Verdict(Word.UNTESTED, reason=reason))],
        [JudgedFact(paper.facts[0], seconds)],
    )


def test_a_text_has_the_numbers_of_the_last_run() -> None:
    paper = a_paper()
    judged, facts = results(paper)
    by_id = {one.claim.id: one for one in judged}
    text = (
        "{f.saved}, {f.saved@a faster engine}, {f.saved@code}, {f.saved@at 3000}, "
        "{fact: mean time}, {fact: offered}, {fact: mean time@code}"
    )
    assert filled(text, paper, by_id, facts) == (
        "42.1%, takes 1.78 times as long, 20.0%, 42.1%, 92.0 s, not run, not run"
    )
    assert filled("{f.saved}", paper, {}, ()) == "not run"
    filled_claims, _ = with_texts(paper, judged, facts)
    assert filled_claims[1].verdict.reason == "fed in: 42.1% of it"
    assert with_texts(paper, filled_claims, facts)[0] == filled_claims


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{f.svaed}", "there is no claim f.svaed"),
        ("{f.untested}", "f.untested is not tested and has no number"),
        ("{f.saved@a fast engine}", "f.saved has no setting 'a fast engine'"),
        ("{f.saved@ceiling}", "f.saved has no setting 'ceiling'"),
        ("{fact: mean tmie}", "there is no fact 'mean tmie'"),
    ],
)
def test_an_unknown_name_in_a_text_is_one_sentence_before_anything_runs(
    text: str, sentence: str
) -> None:
    check_texts(a_paper())
    for paper in (a_paper(causes={"a": text}), a_paper(controls={"a": text})):
        with pytest.raises(ClaimError) as raised:
            check_texts(paper)
        assert str(raised.value) == f"p {text!r}...: {sentence}"


@pytest.mark.parametrize("words", ["code", "at 3000"])
def test_a_variation_has_a_name_of_its_own(words: str) -> None:
    paper = a_paper()
    paper.variations = {"engine.speed=2": words}
    with pytest.raises(ClaimError, match=f"a variation cannot be called '{words}'"):
        check_texts(paper)


def test_a_setting_that_a_claim_does_not_have_is_refused_with_its_runs() -> None:
    paper = a_paper()
    judged, facts = results(paper)
    with pytest.raises(ClaimError, match=r"f\.saved has no setting 'at 300'"):
        filled("{f.saved@at 300}", paper, {one.claim.id: one for one in judged}, facts)
