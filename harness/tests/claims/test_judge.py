"""Claims judged by cells written by hand: reference, variations, the authors' program."""

import csv
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.claims.effects import (
    Cells,
    ClaimError,
    Effect,
    absolute,
    at_most,
    over_settings,
    ratio,
    reduction,
)
from harness.claims.judge import Judged, Source, check, judge, judge_facts, probes
from harness.claims.paper import Fact, FigureSpec, Paper, load_paper
from harness.claims.tables import COLUMNS, read_csv, read_facts, write_csv, write_facts
from harness.claims.verdicts import Verdict, Word
from harness.runs.cell_lists import ScenarioCells
from harness.tests.support.claims import cells_of

FASTER = "chatglm_scaling"
CODE = f"{FASTER} variant=code"
AXES = ("gpu_count", "requests", "seed")
ONE, EIGHT = {"gpu_count": 1}, {"gpu_count": 8}
S = "inference_s"


def frame(speedups: Mapping[int, float], seeds: int = 3, gpus: tuple[int, ...] = (1, 8)) -> Cells:
    """Runs in which one GPU takes 100 s and eight are faster by this, by number of requests."""
    rows = [
        (count, requests, seed, 100.0 / (speedup if count == 8 else 1.0))
        for count in gpus
        for requests, speedup in speedups.items()
        for seed in range(seeds)
    ]
    return cells_of(AXES, *rows, figure=S)


class Written(Source):
    """Cells that are handed over instead of read."""

    def __init__(self, sensitivity: bool = True, **cells: Any) -> None:
        super().__init__(Path("/nowhere"), sensitivity=sensitivity)
        self._cells = {CODE if run == "code" else run: it for run, it in cells.items()}

    def of(self, run: str) -> ScenarioCells:
        reference, variations, *missing = self._cells.get(run, (pd.DataFrame(), {}))
        return ScenarioCells(AXES, reference, variations, *missing)


def made_up(*, figure: str = "f", column: str = S, paper: float = 2.0, **given: Any) -> Paper:
    """A paper with one claim: eight GPUs are twice as fast as one."""
    where = {"of": ONE, "over": EIGHT, "average_over": ["requests"]} | given
    it = Paper(
        name="p",
        title="",
        citation="",
        figures=(FigureSpec(name="f", shows="", scenarios=(FASTER,), code=(CODE,)),),
        headline=lambda _: "",
        variations={"policy.slots=8": "eight slots"},
        code_axes={"gpus": "gpu_count"},
        code_names={"gpu_count": {"one": 1, "eight": 8}},
    )

    @it.claim("speed", figure=figure, where="", says="", quote="", paper=paper)
    def _(cells: Cells) -> Effect:
        return ratio(cells, column, **where)

    return it


def judged_by(source: Source, paper: Paper) -> Judged:
    (found,) = judge(paper, paper.claims.values(), source)
    return found


BOTH = {1000: 2.0, 10000: 2.0}


def test_the_reference_decides() -> None:
    found = judged_by(Written(chatglm_scaling=(frame(BOTH), {})), made_up())
    assert (found.verdict.word, found.verdict.ours, found.verdict.seeds) == (Word.HOLDS, 2.0, 3)
    assert (found.variations, found.code) == ({}, None)


def test_a_variation_takes_the_place_of_the_cells_that_it_has() -> None:
    """Eight GPUs are run again at 1000 requests with two seeds; the rest is the reference's."""
    varied = frame({1000: 0.5}, seeds=2, gpus=(8,))
    found = judged_by(
        Written(chatglm_scaling=(frame(BOTH), {"policy.slots=8": varied, "other=1": frame(BOTH)})),
        made_up(),
    )
    assert found.variations.keys() == {"eight slots", "other=1"}
    lost = found.variations["eight slots"]
    # (100 + 100) / (200 + 50)
    assert lost.ours == pytest.approx(0.8)
    assert (lost.seeds, lost.word) == (2, Word.FAILS)
    assert (found.verdict.word, found.verdict.ours) == (Word.PARTLY, 2.0)
    assert found.verdict.reason == "lost or reversed with eight slots"
    assert not any(one.is_noisy for one in found.variations.values())


def test_a_variation_of_the_workload_is_not_mixed_with_the_reference() -> None:
    """Where one GPU was not run with it, the claim is not judged in it."""
    varied = frame({1000: 0.5, 10000: 0.5}, gpus=(8,))
    both = frame({1000: 3.0, 10000: 3.0})
    found = judged_by(
        Written(chatglm_scaling=(frame(BOTH), {"workload=large": varied, "workload.rate=2": both})),
        made_up(),
    )
    assert found.variations.keys() == {"workload.rate=2"}
    assert found.variations["workload.rate=2"].ours == pytest.approx(3.0)


def test_variations_count_only_where_asked_for_and_where_they_have_run() -> None:
    turned = {"policy.slots=8": frame({1000: 0.5, 10000: 0.5})}
    plain = Written(
        sensitivity=False, chatglm_scaling=(frame(BOTH), turned), code=(frame(BOTH), {})
    )
    found = judged_by(plain, made_up())
    assert (found.verdict.word, found.variations, found.code) == (Word.HOLDS, {}, None)
    nothing = Written(chatglm_scaling=(frame(BOTH), {"policy.slots=8": pd.DataFrame()}))
    assert judged_by(nothing, made_up()).variations == {}


def test_a_variation_with_one_seed_is_counted_and_decides_nothing() -> None:
    turned = {"policy.slots=8": frame({1000: 0.5, 10000: 0.5}, seeds=1)}
    found = judged_by(Written(chatglm_scaling=(frame(BOTH), turned)), made_up())
    assert (found.verdict.word, found.variations["eight slots"].is_noisy) == (Word.HOLDS, True)


def test_the_program_of_the_authors_is_read_under_the_names_of_the_reference() -> None:
    program = frame({1000: 3.0, 10000: 3.0}).rename(columns={"gpu_count": "gpus"})
    program["gpus"] = program["gpus"].map({1: "one", 8: "eight"})
    found = judged_by(Written(chatglm_scaling=(frame(BOTH), {}), code=(program, {})), made_up())
    assert found.code is not None
    assert found.code.ours == pytest.approx(3.0)
    assert found.code.word is Word.PARTLY
    assert (found.verdict.word, found.verdict.ours) == (Word.HOLDS, 2.0)


def test_cells_of_several_scenarios_are_told_apart_by_name() -> None:
    paper = made_up(of=ONE | {"scenario": "routing"}, over=EIGHT | {"scenario": FASTER})
    mixed = replace(paper.claims["speed"], scenarios=(FASTER, "routing"))
    varied = {"policy.slots=8": frame({1000: 4.0, 10000: 4.0}, seeds=2)}
    source = Written(chatglm_scaling=(frame(BOTH), varied), routing=(frame(BOTH), {}))
    (found,) = judge(paper, [mixed], source)
    assert found.verdict.ours == pytest.approx(2.0)
    assert found.variations["eight slots"].ours == pytest.approx(4.0)


def test_a_claim_over_settings_has_a_verdict_of_each() -> None:
    paper = made_up()

    @paper.claim("range", figure="f", where="", says="", quote="", paper=(1.1, 2.4))
    def _(cells: Cells) -> Effect:
        return over_settings(cells, S, of=ONE, over=EIGHT, settings=["requests"])

    source = Written(chatglm_scaling=(frame({1000: 1.2, 10000: 2.4}), {}))
    found = judge(paper, paper.claims.values(), source)[1]
    assert {name: it.ours for name, it in found.settings.items()} == pytest.approx(
        {"1000": 1.2, "10000": 2.4}
    )
    assert found.verdict.word is Word.HOLDS


def test_what_is_not_tested_says_why() -> None:
    paper = made_up()
    facts = {"figure": "f", "where": "", "says": "", "quote": ""}
    one = paper.untested("u", because="fed in", note="start-up seconds", **facts)
    (found,) = judge(paper, [one], Written())
    assert (found.verdict.word, found.verdict.reason) == (Word.UNTESTED, "fed in: start-up seconds")
    with pytest.raises(ValueError, match="v: too hard is not one of needs data, needs hardware"):
        paper.untested("v", because="too hard", note="", **facts)
    with pytest.raises(ValueError, match="p has two claims u"):
        paper.untested("u", because="fed in", note="", **facts)


# Bad input


def test_missing_runs_name_the_command_that_makes_them() -> None:
    with pytest.raises(ClaimError) as raised:
        judged_by(Written(), made_up())
    assert str(raised.value) == (
        "no runs of chatglm_scaling: python harness/run.py +scenario=chatglm_scaling"
    )


def test_some_missing_runs_are_no_verdict() -> None:
    source = Written(chatglm_scaling=(frame(BOTH), {}, 3))
    with pytest.raises(ClaimError, match=r"^runs of chatglm_scaling are missing \(3\): "):
        judged_by(source, made_up())


def test_cells_that_a_claim_cannot_use_name_the_claim() -> None:
    source = Written(chatglm_scaling=(frame(BOTH, gpus=(1,)), {}))
    with pytest.raises(ClaimError, match=r"^p speed: no cell has gpu_count=8; there are 1$"):
        judged_by(source, made_up())


def test_a_paper_whose_names_are_there_passes() -> None:
    check(made_up())
    found = probes([FASTER])
    assert len(found) == 2 * 2 * 10
    assert found.drop_duplicates(list(AXES)).shape == found.shape
    assert (found[S] == 1).all()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"over": {"gpu_cont": 8}}, "p speed: No axis is called 'gpu_cont'; closest: gpu_count"),
        ({"over": {"gpu_count": 4}}, "p speed: no cell has gpu_count=4; there are 1, 8"),
        ({"average_over": ["request"]}, "p speed: No axis is called 'request'; closest: requests"),
        ({"average_over": []}, "p speed: 20 cells have the same seed at .*; name more axes"),
        ({"column": "inferense_s"}, "p speed: No figure is called 'inferense_s'; closest: infer"),
        ({"paper": 1.0}, "p speed: the printed number of a claim of kind ratio cannot be 1"),
        ({"paper": float("nan")}, "p speed: the printed number .* cannot be nan"),
    ],
)
def test_what_a_claim_names_and_is_not_there_is_one_sentence(
    given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}") as raised:
        check(made_up(**given))
    assert "\n" not in str(raised.value)


def a_fact(**given: Any) -> Fact:
    """One GPU takes 100 s."""
    facts: dict[str, Any] = {"says": "seconds of one GPU", "scenarios": (FASTER,), "paper": 100.0}
    facts["measure"] = lambda cells: absolute(cells, S, ONE, average_over=["requests"])
    return Fact(**facts | given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"scenarios": ("chatglm_scalin",)}, "No scenario is called 'chatglm_scalin'"),
        ({"measure": lambda cells: absolute(cells, S, ONE)}, "p seconds of one GPU: 20 cells"),
        (
            {
                "measure": lambda cells: reduction(
                    cells, S, of=ONE, over=EIGHT, average_over=["requests"]
                )
            },
            "p seconds of one GPU: a fact is absolute, ratio, at most, at least, not reduction",
        ),
    ],
)
def test_facts_are_checked_before_anything_runs(given: dict[str, Any], sentence: str) -> None:
    paper = made_up()
    for paper.facts, paper.loads in (((a_fact(**given),), ()), ((), (a_fact(**given),))):
        with pytest.raises(ValueError, match=f"^{sentence}"):
            check(paper)
    paper.facts = paper.loads = (a_fact(code=(CODE,)),)
    check(paper)


def test_a_ceiling_is_a_value() -> None:
    paper = made_up()
    wrong = replace(paper.claims["speed"], ceiling=paper.claims["speed"].effect)
    paper.claims["speed"] = wrong
    with pytest.raises(ClaimError, match=r"^p speed: a ceiling is absolute, not ratio$"):
        check(paper)


@pytest.mark.parametrize("part", ["scenarios", "code", "also"])
def test_a_figure_of_an_unknown_scenario_is_one_sentence(part: str) -> None:
    spec = FigureSpec(name="f", shows="", **{part: ("chatglm_scalin variant=code",)})  # type: ignore[arg-type]
    paper = Paper(name="p", title="", citation="", figures=(spec,), headline=lambda _: "")
    with pytest.raises(ValueError, match="No scenario is called 'chatglm_scalin'; closest: chatg"):
        check(paper)


def test_a_claim_of_an_unknown_figure_and_an_unknown_paper_are_one_sentence() -> None:
    with pytest.raises(ValueError, match="No figure of p is called 'g'; known: f"):
        made_up(figure="g")
    with pytest.raises(ValueError, match="No paper is called 'no_such_paper'"):
        load_paper("no_such_paper")


# The CSV file


def test_the_csv_file_has_a_row_per_claim_and_setting(tmp_path: Path) -> None:
    source = Written(
        chatglm_scaling=(frame(BOTH), {"policy.slots=8": frame({1000: 0.5, 10000: 0.5})}),
        code=(frame({1000: 3.0, 10000: 3.0}), {}),
    )
    path = tmp_path / "new" / "p.csv"
    one = judged_by(source, made_up())
    by_setting = Judged(one.claim, one.verdict, settings={"1000, 1": Verdict(Word.FAILS, 1.23456)})
    write_csv(path, [one, by_setting])
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == COLUMNS
    read = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    assert [row["setting"] for row in read] == [
        *("reference", "eight slots", "code"),
        *("reference", "at 1000, 1"),
    ]
    first, *_, last = read
    assert [first[name] for name in ("claim", "paper", "ours")] == ["speed", "2", "2"]
    assert [first[name] for name in ("share", "verdict", "seeds")] == ["1", "partly", "3"]
    assert first["reason"] == "lost or reversed with eight slots"
    assert [row["verdict"] for row in read[1:3]] == ["fails", "partly"]
    assert (last["ours"], last["low"], last["share"]) == ("1.23456", "", "")


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    """With six digits; only the text of an effect is not in the file."""
    paper = made_up()

    @paper.claim("range", figure="f", where="", says="", quote="", paper=(1.1, 2.4))
    def _(cells: Cells) -> Effect:
        return over_settings(cells, S, of=ONE, over=EIGHT, settings=["requests"])

    most = partial(absolute, figure=S, at=ONE, average_over=["requests"])
    paper.claims["speed"] = replace(paper.claims["speed"], ceiling=most)
    paper.untested("u", because="fed in", note="", figure="f", where="", says="", quote="")
    varied = {"policy.slots=8": frame({1000: 0.5, 10000: 2.0}, seeds=1)}
    source = Written(
        chatglm_scaling=(frame({1000: 1.5, 10000: 2.0}), varied), code=(frame(BOTH), {})
    )
    judged = judge(paper, paper.claims.values(), source)
    write_csv(tmp_path / "p.csv", judged)
    read = read_csv(tmp_path / "p.csv", paper)
    assert [one.claim for one in read] == [one.claim for one in judged]
    for one, other in zip(read, judged, strict=True):
        assert one.verdicts.keys() == other.verdicts.keys()
        for found, was in zip(one.verdicts.values(), other.verdicts.values(), strict=True):
            names = ("word", "seeds", "reason", "is_noisy", "kind")
            assert all(getattr(found, name) == getattr(was, name) for name in names)
            for name in ("ours", "low", "high", "share", "share_low", "share_high"):
                expected = pytest.approx(getattr(was, name), rel=1e-5, nan_ok=True)
                assert getattr(found, name) == expected
            assert (found.span or ()) == pytest.approx(was.span or (), rel=1e-5)
    assert read[0].verdicts.keys() == {"reference", "eight slots", "code", "ceiling"}
    paper.claims.pop("u")
    with pytest.raises(ValueError, match=r"p\.csv and the claims of p differ in u"):
        read_csv(tmp_path / "p.csv", paper)


# Ceilings and facts


@pytest.mark.parametrize(("most", "word"), [(1.4, Word.FAILS), (2.5, Word.PARTLY)])
def test_a_claim_beyond_its_ceiling_fails(most: float, word: Word) -> None:
    """Ours is 1.5 of the printed 2; `most` is what one GPU could reach."""
    paper = made_up()
    ceiling = partial(absolute, figure="most", at=ONE, average_over=["requests"])
    paper.claims["speed"] = replace(paper.claims["speed"], ceiling=ceiling)
    cells = frame({1000: 1.5, 10000: 1.5}).assign(most=most)
    found = judged_by(Written(chatglm_scaling=(cells, {})), paper)
    assert found.verdict.word is word
    assert found.ceiling is not None
    assert found.ceiling.ours == pytest.approx(most)
    assert (found.verdict.reason == "beyond the ceiling of 1.40x") is (word is Word.FAILS)


def test_facts_are_kept_here_and_by_the_program(tmp_path: Path) -> None:
    paper = made_up()
    value = a_fact(paper=110.0, code=(CODE,))
    bound = a_fact(
        says="at most",
        paper=90.0,
        measure=lambda cells: at_most(cells, S, ONE, settings=["requests"]),
    )
    load = a_fact(says="load", paper=float("nan"))
    paper.facts, paper.loads = (value, bound), (load,)
    program = frame(BOTH).assign(**{S: 200.0})
    source = Written(chatglm_scaling=(frame(BOTH), {}), code=(program, {}))
    found = judge_facts(paper, paper.facts_of(paper.figures), source, strict=True)
    # 100 s are 9% below 110 s and above 90 s
    assert [(one.ours.ours, one.kept, one.is_load) for one in found] == [
        *((100.0, True, False), (100.0, False, False)),
        (100.0, None, True),
    ]
    assert found[0].code is not None
    assert (found[0].code.ours, found[0].code_kept) == (200.0, False)
    write_facts(tmp_path / "facts" / "p.csv", found)
    read = read_facts(tmp_path / "facts" / "p.csv", paper)
    for one, other in zip(read, found, strict=True):
        assert (one.fact, one.kept, one.is_load) == (other.fact, other.kept, other.is_load)
        assert (one.ours.ours, one.code_kept) == (other.ours.ours, other.code_kept)
    assert read_facts(tmp_path / "none.csv", paper) == []


def test_facts_without_runs_are_left_out_unless_all_is_published() -> None:
    paper = made_up()
    paper.facts = (a_fact(), a_fact(says="elsewhere", scenarios=("routing",)))
    source = Written(chatglm_scaling=(frame(BOTH), {}))
    facts = paper.facts_of(paper.figures)
    assert [one.fact.says for one in judge_facts(paper, facts, source, strict=False)] == [
        "seconds of one GPU"
    ]
    with pytest.raises(ClaimError, match=r"^no runs of routing"):
        judge_facts(paper, facts, source, strict=True)
