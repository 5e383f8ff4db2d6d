"""What a configuration may not say at its top level; test_run.py has the command's sentences."""

import math
import re
from typing import Any

import pytest

from harness.paths import ROOT
from harness.runs.config import TAKEN, VARIANTS, check, check_variant


@pytest.mark.parametrize("variant", VARIANTS)
def test_known_fidelities_pass(variant: str) -> None:
    check_variant(variant)


@pytest.mark.parametrize("variant", ["Paper", "", "program"])
def test_an_unknown_variant_is_refused(variant: str) -> None:
    with pytest.raises(ValueError, match=f"^variant={variant} is not one of paper, code$"):
        check_variant(variant)


def plain(**changes: Any) -> dict[str, Any]:
    """The least that is checked, resolved, with changes."""
    usual: dict[str, Any] = {
        "hardware": {
            "gpu_count": 1,
            "nvlink_island": 1,
            "replica_start_s": 0.0,
            "engine_start_s": None,
            "weights_bytes_per_s": None,
            "cost_draw": 0,
            "window_at_tokens": 4096,
        },
        "record": {},
        "slo": {},
        "system": {"name": "s", "dispatch": {}, "placement": {}},
        "compare": {},
        "matrix": {"seed": [0, 1], "policy": ["a", "b"]},
        "skip": [{"policy": ["a"], "seed": [1]}],
        "vary": {"policy.slots": [1]},
        "vary_at": [{"seed": [0]}],
        "variations": False,
        "workers": None,
        "seed": 0,
        "uncertainty_draws": 0,
        "warm_up_s": 0.0,
        "limits": {"max_num_seqs": None, "max_num_batched_tokens": None},
        "tracking": "none",
        "name": "n",
        "results": "results",
        "expected_minutes": 1.0,
    }
    return usual | changes


def test_objectives_are_positive_or_none() -> None:
    check(plain(slo={"ttft_s": 0.5, "scale": None}))
    for limit in (0.0, math.inf, math.nan):
        said = rf"slo.ttft_s={limit}, it must be positive, or null for none"
        with pytest.raises(ValueError, match=said):
            check(plain(slo={"ttft_s": limit}))


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
