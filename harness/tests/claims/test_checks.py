"""What a claims file may say, and that ours say it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from harness.claims.checks import read_checks, read_claims
from harness.claims.judge import judge
from harness.claims.verdicts import Verdict
from harness.runs.record import ROOT
from harness.tests.support.claims import claim

REGISTRIES = ROOT / "results" / "claims"


def test_a_wrong_check_is_refused() -> None:
    with pytest.raises(ValueError, match=r"p\.fig\.x: a check has no colums"):
        read_checks(claim(check={"rule": "range", "colums": ["s"]}))
    wrong = claim(check={"rule": "rnge", "scenario": "toy", "columns": ["s"]})
    with pytest.raises(
        ValueError, match="rule is one of range, mean, within, bound, trend, not rnge"
    ):
        read_checks(wrong)
    with pytest.raises(ValueError, match="there are no claims at"):
        read_claims(Path("nowhere.yaml"))


def test_a_check_takes_the_claims_figure_unless_it_has_its_own() -> None:
    one = {"rule": "range", "scenario": "toy", "columns": ["s"]}
    first, second = read_checks(claim(check=[one, one | {"paper": 3}]))
    assert (first.band.low, first.band.high) == (1.1, 2.4)
    assert (second.band.low, second.band.high) == (3, 3)
    (shape,) = read_checks(claim(kind="shape", paper="falls", check=one))
    with pytest.raises(ValueError, match="needs a figure of the paper"):
        _ = shape.band


def test_the_registries_are_complete() -> None:
    listed = [one["id"] for path in REGISTRIES.glob("*.yaml") for one in read_claims(path)]
    assert len(listed) == len(set(listed))
    expected = (Path(__file__).parent / "claim_ids.txt").read_text().split()
    assert sorted(expected) == sorted(listed)


@pytest.mark.parametrize("path", sorted(REGISTRIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_registry_states_facts_and_checks_that_can_be_applied(path: Path) -> None:
    for one in read_claims(path):
        assert {"id", "where", "metric", "kind", "paper"} <= set(one), one["id"]
        assert one["id"].startswith(f"{path.stem}.")
        given = read_checks(one)
        for found in (*given, *(replace(each, **each.code) for each in given)):
            rows = pd.DataFrame({"code": ["c"], "started": ["t"]})
            assert (judge(found, rows).verdict == Verdict.NOT_RUN) == (not found.table)
            assert bool(found.table) != bool(found.scenario)
            assert (found.quantity == "value") == (not found.baselines)
            if found.rule == "trend":
                assert found.against in found.settings
            else:
                assert found.band.low <= found.band.high
                assert found.step > 0
            if found.rule == "bound":
                named = found.settings
                columns = named if isinstance(named, Mapping) else named[0]
                assert set(found.at) <= set(columns)
                assert found.take
                assert found.side
