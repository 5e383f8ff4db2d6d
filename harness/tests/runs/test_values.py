from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pytest

from harness.runs.values import checked

HERE = __name__


class Rule(Protocol):
    def apply(self) -> None:
        """Something to do."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    most: int
    share: float = 0.5


class Strict:
    def apply(self) -> None:
        """Nothing."""


class Policy:
    def __init__(
        self,
        *,
        rule: Rule,
        limits: Limits,
        sizes: Sequence[int] = (),
        fast: bool = False,
        title: str | None = None,
        seed: int,
    ) -> None:
        """Keep nothing."""


def node(**changes: object) -> dict[str, object]:
    """A correct node, with changes; `...` takes a key out."""
    right: dict[str, object] = {
        "_target_": f"{HERE}.Policy",
        "rule": {"_target_": f"{HERE}.Strict"},
        "limits": {"_target_": f"{HERE}.Limits", "most": 4},
        "sizes": [1, 2],
        "fast": True,
        "title": None,
    }
    return {key: value for key, value in (right | changes).items() if value is not ...}


def test_a_node_that_suits_its_constructor_gives_the_class() -> None:
    assert checked("policy", node(), ("seed",)) is Policy


def test_a_whole_number_stands_for_a_fraction() -> None:
    limits = {"_target_": f"{HERE}.Limits", "most": 4, "share": 1}
    assert checked("limits", limits) is Limits


def test_private_keys_are_left_to_the_builder() -> None:
    assert checked("policy", node(_partial_=True), ("seed",)) is Policy


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fast": 1}, "policy.fast=1 is not true or false"),
        ({"fast": "yes"}, "policy.fast='yes' is not true or false"),
        ({"title": 5}, "policy.title=5 is not str | None"),
        ({"seed": True}, "policy.seed=True is not a whole number"),
        ({"seed": 1.5}, "policy.seed=1.5 is not a whole number"),
        ({"sizes": 3}, "policy.sizes=3 is not a list, each a whole number"),
        ({"sizes": [1, "a"]}, "policy.sizes[1]='a' is not a whole number"),
        ({"limits": 5}, "policy.limits=5 is not Limits"),
        ({"rule": "strict"}, "policy.rule='strict' is not Rule"),
        ({"other": 1}, "policy.other=1 is not an option of Policy"),
        ({"limits": ...}, "policy.limits is missing, Policy needs it"),
        ({"limits": {"_target_": f"{HERE}.Strict"}}, "policy.limits is a Strict, not Limits"),
        (
            {"limits": {"_target_": f"{HERE}.Limits", "most": "x"}},
            "policy.limits.most='x' is not a whole number",
        ),
        (
            {"limits": {"_target_": f"{HERE}.Limits"}},
            "policy.limits.most is missing, Limits needs it",
        ),
        (
            {"limits": {"_target_": f"{HERE}.Limits", "most": 1, "typo": 2}},
            "policy.limits.typo=2 is not an option of Limits",
        ),
        (
            {"limits": {"_target_": f"{HERE}.Limits", "most": 1, "share": float("nan")}},
            "policy.limits.share=nan is not a finite number",
        ),
        ({"_target_": "no.such.thing"}, "policy._target_=no.such.thing names no class"),
        ({"_target_": f"{HERE}.HERE"}, f"policy._target_={HERE}.HERE names no class"),
        ({"_target_": ...}, "policy has no _target_"),
    ],
)
def test_what_does_not_suit_is_one_sentence(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match="policy") as raised:
        checked("policy", node(**changes), ("seed",))
    assert str(raised.value) == said


def test_what_the_caller_does_not_offer_is_missing() -> None:
    with pytest.raises(ValueError, match=r"policy\.seed is missing, Policy needs it"):
        checked("policy", node())


def test_a_plain_value_is_no_node() -> None:
    with pytest.raises(ValueError, match="workload has no _target_"):
        checked("workload", 5)
