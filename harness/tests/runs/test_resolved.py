"""Values put into what was resolved before are what OmegaConf would have made of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.runs.resolved import Resolved


@dataclass
class Machine:
    """Typed, so that OmegaConf makes a number of a text."""

    gpus: int = 8
    share: float = 0.9


@dataclass
class Top:
    """A machine and anything."""

    machine: Machine = field(default_factory=Machine)
    load: dict[str, Any] = field(default_factory=dict)
    seed: int = 0


TEXT = """
load:
  rate: 1.0
  model: opt
  parts: {a: {scale: 1.0, of: "${load.model}"}, b: {scale: "${load.parts.a.scale}"}}
  only: [a, b]
  nested: [{a: 0}]
  pairs: [1, 2]
  alias: "${load.parts.b}"
  told: "${load.by.${load.model}.told}"
  by: {opt: {told: 3}, gpt: {told: 4}}
"""


def config() -> DictConfig:
    merged = OmegaConf.merge(OmegaConf.structured(Top), OmegaConf.create(TEXT))
    assert isinstance(merged, DictConfig)
    return merged


def slow(axes: Mapping[str, object]) -> dict[str, Any]:
    whole = config()
    for key, value in axes.items():
        OmegaConf.update(whole, key, value, force_add=False)
    plain = OmegaConf.to_container(whole, resolve=True)
    assert isinstance(plain, dict)
    return plain


AXES = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.sampled_from([0, 7, "8"]),
        "load.rate": st.sampled_from([2.5, None, "${load.model}"]),
        "load.model": st.sampled_from(["opt", "gpt"]),
        "load.parts.a.scale": st.sampled_from([0.7, 1.3]),
        "load.parts.b.scale": st.sampled_from([0.7]),
        "load.parts.a": st.sampled_from([{"scale": 9}]),
        "load.only": st.sampled_from([["b"], []]),
        "load.nested": st.sampled_from([[{"a": 1}], "x"]),
        "load.pairs[0]": st.sampled_from([7, 8]),
        "load.pairs.1": st.sampled_from([9]),
        "load.alias.scale": st.sampled_from([3.0]),
        "load.by.gpt.told": st.sampled_from([5]),
        "machine.gpus": st.sampled_from([1, "2"]),
        "machine.share": st.sampled_from([1]),
    },
)


@settings(deadline=None)
@given(several=st.lists(AXES, min_size=1, max_size=6))
def test_it_is_what_omegaconf_makes_of_all_together(several: list[dict[str, object]]) -> None:
    resolved = Resolved(config())
    for axes in several:
        found = resolved.at(axes)
        assert found == slow(axes)
        assert type(found["machine"]["share"]) is float


@pytest.mark.parametrize("axes", [{"load.rat": 1}, {"machine.gpus": "many"}, {"machine.gpu": 3}])
def test_a_key_or_a_value_that_cannot_be_is_refused(axes: dict[str, object]) -> None:
    whole = config()
    OmegaConf.set_struct(whole, True)
    with pytest.raises((OmegaConfBaseException, AttributeError)):
        Resolved(whole).at(axes)


def test_what_refers_to_its_own_place_is_left_to_omegaconf() -> None:
    whole = OmegaConf.create("{a: 1, b: '${.a}', c: {d: 2, e: '${..a}'}}")
    assert isinstance(whole, DictConfig)
    assert Resolved(whole).at({"a": 5}) == {"a": 5, "b": 5, "c": {"d": 2, "e": 5}}
    assert Resolved(whole).at({"c.d": 5}) == {"a": 1, "b": 1, "c": {"d": 5, "e": 1}}
