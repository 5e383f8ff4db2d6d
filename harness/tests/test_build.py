from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from harness.config.build import build, checked

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
        (
            {"_target_": "no.such.thing"},
            "policy._target_=no.such.thing names no class of this project; where its package is "
            "yours, add --trust PACKAGE",
        ),
        (
            {"_target_": f"{HERE}.No"},
            f"policy._target_={HERE}.No names no class",
        ),
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


@dataclass
class Leaf:
    size: int
    seed: int = 0


@dataclass
class Tree:
    name: str
    leaf: Leaf
    more: Sequence[Leaf] = ()
    by_name: Mapping[str, Leaf] = field(default_factory=dict)
    sizes: Sequence[int] = ()
    about: Mapping[str, Sequence[int]] = field(default_factory=dict)
    seed: int = 0


class Broken:
    def __init__(self, *, error: str) -> None:
        if error == "value":
            raise ValueError("error is value, it must be none")
        raise {"key": KeyError, "os": FileNotFoundError}[error](error)


LEAF = {"_target_": f"{HERE}.Leaf", "size": 1}


def test_what_is_inside_is_built_first_and_gets_what_is_offered() -> None:
    """A value of the node's own wins; a value that is not asked for is ignored."""
    about: dict[str, Any] = {
        "_target_": f"{HERE}.Tree",
        "name": "oak",
        "leaf": LEAF,
        "more": [LEAF | {"size": 2}, LEAF | {"seed": 7}],
        "by_name": {"a": LEAF | {"size": 4}},
        "sizes": [1, 2],
        "about": {"b": [3]},
    }
    made = build(about, offered={"seed": 5, "cluster": object()})
    assert made == Tree(
        "oak",
        Leaf(1, 5),
        [Leaf(2, 5), Leaf(1, 7)],
        {"a": Leaf(4, 5)},
        [1, 2],
        {"b": [3]},
        5,
    )
    assert (type(made.sizes), type(made.about)) == (list, dict)
    assert made.sizes is not about["sizes"]
    assert made.about["b"] is not about["about"]["b"]


def test_a_partial_node_is_called_later() -> None:
    make = build({"_target_": f"{HERE}.Tree", "_partial_": True, "leaf": LEAF}, offered={"seed": 2})
    assert make(name="ash") == Tree("ash", Leaf(1, 2), seed=2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"more": [LEAF | {"size": "x"}]}, "tree.more[0].size='x' is not a whole number"),
        ({"by_name": {"a": LEAF | {"typo": 1}}}, "tree.by_name.a.typo=1 is not an option of Leaf"),
        ({"about": {"b": [True]}}, "tree.about.b[0]=True is not a whole number"),
        ({"_args_": [1]}, "tree._args_=[1] is not an option of Tree"),
    ],
)
def test_a_node_is_refused_before_anything_is_built(changes: dict[str, Any], said: str) -> None:
    about = {"_target_": f"{HERE}.Tree", "name": "elm", "leaf": LEAF}
    with pytest.raises(ValueError, match="tree") as raised:
        build(about | changes, path="tree")
    assert str(raised.value) == said


@pytest.mark.parametrize(
    ("error", "said"),
    [("value", "error is value, it must be none"), ("key", "'key'"), ("os", "os")],
)
def test_what_a_constructor_raises_is_a_sentence(error: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        build({"_target_": f"{HERE}.Broken", "error": error})
    assert str(raised.value) == said


def test_without_a_place_a_sentence_begins_with_the_key() -> None:
    for about, said in ((None, "the node has no _target_"), (LEAF | {"seed": 1.5}, "seed=1.5 is")):
        with pytest.raises(ValueError, match=f"^{said}"):
            build(about)
