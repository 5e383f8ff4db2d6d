"""What a claims file may say, and that ours say it."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from harness.claims.findings import Agreement
from harness.claims.judge import judge
from harness.claims.reading import claims_of, read_claims
from harness.paths import ROOT
from harness.tests.support.claims import claim, toy_check, words

REGISTRIES = ROOT / "results" / "claims"
OPEN = {"key": "policy.rule.max_num_seqs", "values": [512, 256], "source": "not stated"}

READING = {"key": "reading.it", "values": ["s", "a"], "source": "not stated"}


def test_a_check_takes_the_claims_figure_unless_it_has_its_own() -> None:
    one = {"rule": "range", "scenario": "toy", "columns": ["jct_s_mean"]}
    first, second = claim(check=[one, one | {"paper": 3}]).checks
    assert (first.band.low, first.band.high) == (1.1, 2.4)
    assert (second.band.low, second.band.high) == (3, 3)


def test_a_check_is_made_of_named_blocks() -> None:
    """A later block's words go before an earlier one's, and the check's own before all."""
    blocks = {
        "a": {"rule": "range", "columns": ["jct_s_p99"], "step": 1},
        "b": {"columns": ["load_s"]},
    }
    check = {"use": ["a", "b"], "scenario": "toy", "step": 2, "code": {"use": "b", "step": 3}}
    (found,) = claims_of({"blocks": blocks, "claims": [words(check=check)]})
    (only,) = found.checks
    assert (only.columns, only.step) == (["load_s"], 2)
    (code,) = found.of("code").checks
    assert (code.columns, code.step) == (["load_s"], 3)


def test_what_a_paper_leaves_open_is_read() -> None:
    (opened,) = claim(open=[OPEN]).open
    assert (opened.key, opened.values, opened.source) == tuple(OPEN.values())


WITH = "p.fig.x: "
TREND = toy_check(rule="trend", against="config.seed", expect="falling")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"metric": "s"}, "metric=s: No word of a claim is called 'metric'"),
        ({"where": None}, "where is missing"),
        ({"open": None}, "open is missing beside check"),
        ({"quote": None}, "quote is missing beside check"),
        ({"quote": 3}, "quote=3 is not a text"),
        ({"setting": {"(400": None}}, "setting={'.400': None} is not a text"),
        ({"kind": "sped"}, "kind=sped is none of speedup"),
        ({"check": None}, "one of check, input, not_testable is needed, not 0"),
        ({"input": "fed in"}, "one of check, input, not_testable is needed, not 2"),
        ({"check": {"use": "fig7"}}, "use=fig7: No block is called 'fig7'"),
        ({"check": "fig7"}, "check=fig7 is not words of a check"),
        ({"check": toy_check(colums=["s"])}, "colums=.* closest: columns"),
        ({"check": toy_check(rule="mean")}, "rule=mean is none of range, figure"),
        ({"check": toy_check(tolerance="a")}, "check: tolerance='a': it must be a valid number"),
        ({"check": toy_check(columns=["jct_mean"])}, "No figure of a run .*closest: jct_s_mean"),
        ({"check": toy_check(columns=["load_s", "load_s"])}, "columns=.* has load_s twice"),
        ({"check": toy_check(settings={"config.seed": {"each": [2, 2.0]}})}, ".* has 2 twice"),
        ({"check": toy_check(code={"code": {"step": 1}})}, "code=.* has a code of its own"),
        ({"check": toy_check(scenario="../toy")}, "scenario=../toy is no name of a folder below"),
        ({"check": toy_check(where={"a": math.nan})}, "check.where.a=nan is not a finite number"),
        ({"check": toy_check(baselines=[{"a": {"sum": []}}])}, "a={'sum': .* is neither a value"),
        ({"paper": [1.0, math.inf]}, r"paper\[1\]=inf is not a finite number"),
        ({"paper": {"a": math.nan}, "check": None, "input": "i"}, "paper.a=nan is not a finite"),
        ({"check": toy_check(columns="s")}, "check: columns='s': it must be a valid array"),
        ({"check": toy_check(baselines=[])}, "quantity=speedup needs baselines"),
        ({"check": []}, r"check=\[\] is not words of a check"),
        ({"check": toy_check(step=float("nan"))}, "check.step=nan is not a finite number"),
        ({"check": toy_check(columns=[5])}, r"check: columns\[0\]=5"),
        ({"check": toy_check(where="x")}, "check: where='x'"),
        ({"check": toy_check(settings=[])}, r"settings=\[\] has no setting"),
        ({"check": toy_check(settings={"c": {"eahc": [1]}})}, "settings.c={'eahc': .* is neither"),
        ({"check": toy_check(settings={"c": {}})}, "settings.c={} is neither"),
        ({"check": toy_check(settings={"c": {"each": []}})}, ".*is not a list of single values"),
        ({"check": toy_check(settings={"c": {"each": [[1]]}})}, ".*is not a list of single values"),
        ({"check": toy_check(settings={"c": {"between": ["a", "b"]}})}, ".*not .smallest, largest"),
        ({"check": toy_check(settings={"c": {"between": [2, 1]}})}, ".*not .smallest, largest"),
        ({"check": toy_check(settings=[{"c": [1]}])}, r"c=\[1\] is no single value"),
        ({"check": toy_check(at={"config.sed": 1})}, "No column of the settings is called 'config"),
        ({"check": toy_check(at={"config.seed": [1]})}, r"config.seed=\[1\] is no single value"),
        ({"check": TREND | {"against": "config.sed"}}, "No column of the settings is called 'co"),
        ({"check": TREND | {"settings": [{"config.seed": "a"}]}}, "against=config.seed: a is no"),
        ({"check": TREND | {"settings": {"config.seed": {"each": ["a"]}}}}, "against=.*: a is no"),
        ({"check": toy_check(scenario="", table="t")}, "No table is called 't'"),
        ({"check": toy_check() | {5: 5}}, "5=5: No word of a check is called '5'"),
        ({"check": toy_check(system={"c": {"smu": [1]}})}, "c={'smu': .* is neither a value"),
        ({"check": toy_check(derive={"c": "os:getcwd"})}, "derive.c=os:getcwd is no function"),
        ({"check": {"use": [["a"]]}}, r"use=\['a'\]: No block"),
        ({"open": [OPEN | {"key": 5}]}, "open.key=5 is not a text"),
        ({"check": toy_check(table="t")}, "scenario=toy, table=t: one of them is needed"),
        ({"check": toy_check(paper="far")}, "check: paper.float='far': it must be a valid number"),
        ({"check": toy_check(paper=[2, 1])}, r"paper=\[2.0, 1.0\] is not \[smallest, largest\]"),
        ({"check": toy_check(rule="bound")}, "rule=bound needs take"),
        ({"check": toy_check(code={"rule": "rnge"})}, "rule=rnge is none of"),
        ({"open": OPEN}, "open={.*} is not a list"),
        ({"open": [OPEN | {"value": 1}]}, "value=1: No word of an open choice"),
        ({"open": [{"key": "a", "values": [1]}]}, "open.a has no source"),
        ({"open": [OPEN | {"values": []}]}, r".*values=\[\] is not a list of values"),
        ({"open": [OPEN | {"values": [1, 1]}]}, r".*values=\[1, 1\] has one twice"),
        ({"open": [OPEN | {"values": [{"a": 1}]}]}, ".*holds what is no single value"),
        ({"open": [OPEN | {"source": ""}]}, ".*source= is not a text"),
        ({"open": [OPEN, OPEN]}, "open.policy.rule.max_num_seqs is there twice"),
        ({"open": [OPEN | {"key": "config.a"}]}, ".*without config."),
        ({"open": [OPEN | {"key": "system.name"}]}, "open.system.name decides nothing"),
        ({"open": [OPEN | {"key": "reading.a"}]}, "open.reading.a: a reading.* of each further"),
        ({"open": [OPEN | {"checks": {256: {"step": 1}}}]}, ".*: a reading.* of each further"),
        ({"open": [READING | {"checks": {"b": {"step": 1}}}]}, ".*: a reading.* of each further"),
        ({"open": [READING | {"checks": {"a": {"rule": "rnge"}}}]}, "rule=rnge is none of"),
        ({"open": [READING | {"checks": {"a": {}}}]}, "open.reading.it: a changes nothing of any"),
        ({"open": [READING | {"checks": {"a": {"colums": ["s"]}}}]}, ".*closest: columns"),
    ],
)
def test_a_wrong_word_is_one_sentence(parts: dict[str, Any], said: str) -> None:
    usual = {"check": toy_check()} | parts
    with pytest.raises(ValueError, match=f"^{WITH}{said}"):
        claim(**usual)


def test_a_word_is_a_text() -> None:
    with pytest.raises(ValueError, match="5=5: No word of a claim is called '5'"):
        claims_of({"claims": [{**words(check=toy_check()), 5: 5}]})


def test_no_effect_cannot_pass_as_figures_within_a_range() -> None:
    """`within` asks nothing to differ, so it is for figures that nothing is compared with."""
    with pytest.raises(ValueError, match="no effect would pass for a small one"):
        claim(check=toy_check(rule="within"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("claims: 3", "claims is missing, a list"),
        ("claims: []\nnames: {}", "names={}: No key of the file"),
        ("blocks: {a: {use: b}}\nclaims: []", "blocks.a uses b, but a block uses no other"),
        ("claims: [(400\n", "line 2: did not find expected"),
        ("blocks: 0\nclaims: []", "blocks=0 is not blocks by name"),
        ("blocks: {a: {step: .inf}}\nclaims: []", "blocks.a.step=inf is not a finite number"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=rf"p\.yaml:? {said}"):
        read_claims(path)
    with pytest.raises(ValueError, match="there are no claims at"):
        read_claims(tmp_path / "q.yaml")


@pytest.mark.parametrize("codes", [{"a": "a"}, {"a": "b", "b": "a"}])
def test_blocks_whose_code_leads_back_to_them_are_refused(codes: dict[str, str]) -> None:
    blocks = {name: toy_check(code={"use": other}) for name, other in codes.items()}
    with pytest.raises(ValueError, match=r"x: code={'use': '\w'} has a code of its own$"):
        claims_of({"blocks": blocks, "claims": [words(check={"use": "a"})]})


def test_a_claim_is_there_once() -> None:
    with pytest.raises(ValueError, match=r"p\.fig\.x is there twice"):
        claims_of({"claims": [words(), words()]})


def test_the_registries_are_complete() -> None:
    listed = [one.id for path in REGISTRIES.glob("*.yaml") for one in read_claims(path)]
    expected = (Path(__file__).parent / "claim_ids.txt").read_text().split()
    assert sorted(expected) == sorted(listed)


def test_no_published_verdict_lacks_runs_because_several_fit() -> None:
    """A check that does not tell runs apart would be *not run* for ever."""
    files = sorted(REGISTRIES.glob("*_verdicts*.json"))
    assert files
    for file in files:
        assert "runs fit" not in file.read_text(encoding="utf-8"), file.name


@pytest.mark.parametrize("path", sorted(REGISTRIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_registry_has_checks_that_can_be_applied(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not any(type(token).__name__ == "AnchorToken" for token in yaml.scan(text))
    for one in read_claims(path):
        assert one.id.startswith(f"{path.stem}.")
        for check in (*one.checks, *one.of("code").checks):
            rows = pd.DataFrame({"code": ["c"], "started": ["t"]})
            found = judge(check, rows)
            assert (found.agreement == Agreement.NOT_RUN) == (not check.table), one.id
            if check.rule == "trend":
                assert check.against in check.settings
            else:
                assert check.step > 0
