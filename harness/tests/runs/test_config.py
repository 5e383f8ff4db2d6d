"""What a configuration may not say at its top level; test_run.py has the command's sentences."""

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from harness.config.paths import ROOT
from harness.runs.composed_cells import as_plain
from harness.runs.config import TAKEN, VARIANTS, check, check_variant
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
    with composed() as config:
        return as_plain(config)


def plain(**changes: Any) -> dict[str, Any]:
    """A configuration, resolved, with a matrix and with changes."""
    axes = {
        "matrix": {"seed": [0, 1], "policy": ["a", "b"]},
        "skip": [{"policy": ["a"], "seed": [1]}],
        "vary": {"policy.slots": [1]},
        "vary_at": [{"seed": [0]}],
    }
    return {**usual(), **axes, **changes}


def test_objectives_are_positive_or_none() -> None:
    check(plain(slo={**usual()["slo"], "ttft_s": 0.5}))
    for limit in (0.0, math.inf, math.nan):
        said = rf"slo.ttft_s={limit}, it must be positive, or null for none"
        with pytest.raises(ValueError, match=said):
            check(plain(slo={**usual()["slo"], "ttft_s": limit}))


def test_cells_that_can_be_skipped_pass() -> None:
    check(plain())
    check(plain(skip=[]))
    check(plain(skip=[{"policy": ["a"], "policy.slots": [1]}]))


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("policy", "skip holds policy, which is not axes of the matrix with lists of values"),
        ({}, "skip holds {}, which is not axes of the matrix with lists of values"),
        ({"policy": "a"}, "skip.policy=a is not a list of values"),
        ({"seed": ["1"]}, "skip.seed=['1']: the matrix has no seed=1"),
        (
            {"polcy": ["a"]},
            "No axis of the matrix is called 'polcy'; closest: policy, policy.slots.",
        ),
    ],
)
def test_a_pattern_that_is_none_is_refused(pattern: object, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        check(plain(skip=[pattern]))


def test_runs_lie_where_nothing_else_does() -> None:
    """What git tracks below results/ is named in .gitignore."""
    kept = re.findall(r"^!?/results/(\w+)/", (ROOT / ".gitignore").read_text(), re.MULTILINE)
    assert set(kept) | {"local"} == set(TAKEN)
    for name in TAKEN:
        with pytest.raises(ValueError, match=f"^name={name} is a folder of results that holds"):
            check(plain(name=name))
    for folder in ("harness", "scenarios/models", ".git", str(ROOT), "/"):
        with pytest.raises(ValueError, match="is where the project is; results=results is below"):
            check(plain(results=folder))
