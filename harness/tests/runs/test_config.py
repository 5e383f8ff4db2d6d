"""What a configuration may not say at its top level; test_run.py has the command's sentences."""

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from harness.config.paths import ROOT
from harness.runs.config import TAKEN, VARIANTS, check_variant, configuration
from harness.tests.support.configured import composed


@pytest.mark.parametrize("variant", VARIANTS)
def test_known_fidelities_pass(variant: str) -> None:
    check_variant(variant)


@pytest.mark.parametrize("variant", ["Paper", "", "program"])
def test_an_unknown_variant_is_refused(variant: str) -> None:
    with pytest.raises(ValueError, match=f"^variant={variant} is not one of paper, code$"):
        check_variant(variant)


@cache
def usual() -> Mapping[str, Any]:
    """What the command has without a word."""
    with composed() as composer:
        return composer.whole().model_dump()


def plain(**changes: Any) -> dict[str, Any]:
    """A configuration, resolved, with a matrix and with changes."""
    axes = {
        "matrix": {"seed": [0, 1], "policy": ["a", "b"]},
        "vary": {"policy.slots": [1]},
        "vary_at": [{"seed": [0]}, {"policy": ["a"], "policy.slots": [1]}],
    }
    return {**usual(), **axes, **changes}


def test_objectives_are_positive_or_none() -> None:
    configuration(plain(slo={**usual()["slo"], "ttft_s": 0.5}))
    for limit, must in ((0.0, "positive, or null for none"), (math.inf, "a finite number")):
        said = f"slo.ttft_s={limit}: it must be {must}"
        with pytest.raises(ValueError, match=said):
            configuration(plain(slo={**usual()["slo"], "ttft_s": limit}))


PAIR = {"policy": "a", "system": "x"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([], "matrix.cases=[] is not a list of values"),
        (
            ["policy"],
            "matrix.cases holds policy, which is not axes with a value or a list of values",
        ),
        ([{}], "matrix.cases holds {}, which is not axes with a value or a list of values"),
        (
            [{"policy": []}],
            "matrix.cases holds {'policy': []}, which is not axes with a value or a list of values",
        ),
        (
            [PAIR, {"policy": "b"}],
            "matrix.cases: not every case has system, and the matrix has none",
        ),
        ([{**PAIR, "seed": 3}], "matrix.seed=[0, 1]: every case has its own seed"),
        ([{"policy": ["a", "a"]}], "matrix.cases: policy=a, seed=0 is there twice"),
        (
            [PAIR, {"system": "x", "policy": "a", "seed": [1, 2]}],
            "matrix.cases: policy=a, seed=1, system=x is there twice",
        ),
        (
            [{"name": ["a", "b"]}],
            "name cannot differ from cell to cell: no result depends on it",
        ),
    ],
)
def test_cases_that_are_none_are_refused(changes: list[object], said: str) -> None:
    good = {"seed": [0, 1], "cases": [PAIR, {"policy": "b", "system": "y", "seed": 0}]}
    configuration(plain(matrix=good))
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        configuration(plain(matrix={**good, "cases": changes}))


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("policy", "vary_at holds policy, which is not axes of the matrix with lists of values"),
        ({}, "vary_at holds {}, which is not axes of the matrix with lists of values"),
        ({"policy": "a"}, "vary_at.policy=a is not a list of values"),
        ({"seed": ["1"]}, "vary_at.seed=['1']: no cell has seed=1"),
        ({"policy.slots": [2]}, "vary_at.policy.slots=[2]: no cell has policy.slots=2"),
        (
            {"polcy": ["a"]},
            "No axis of the matrix is called 'polcy'; closest: policy, policy.slots.",
        ),
    ],
)
def test_a_pattern_that_is_none_is_refused(pattern: object, said: str) -> None:
    configuration(plain())
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        configuration(plain(vary_at=[pattern]))


def test_runs_lie_where_nothing_else_does() -> None:
    """What git tracks below results/ is named in .gitignore."""
    kept = re.findall(r"^!?/results/(\w+)/", (ROOT / ".gitignore").read_text(), re.MULTILINE)
    assert set(kept) | {"local"} == set(TAKEN)
    for name in TAKEN:
        with pytest.raises(ValueError, match=f"^name={name} is a folder of results that holds"):
            configuration(plain(name=name))
    for folder in ("harness", "scenarios/models", ".git", str(ROOT), "/"):
        with pytest.raises(ValueError, match="is where the project is; results=results is below"):
            configuration(plain(results=folder))
