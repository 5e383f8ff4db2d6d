"""What holds for every policy that a YAML file names. A new file is a new case."""

from collections.abc import Callable, Iterator
from itertools import count, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from harness.config.yaml_files import policy_files
from harness.interface.decisions import Decision, PriorityOrder
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView
from harness.policy_checks import (
    LOADS,
    NotOfferedError,
    adds_up,
    does_the_same_twice,
    every_check,
    maker,
    random_load,
)
from harness.tests.support.files import name_of
from harness.tests.support.serving import rule

POLICIES = policy_files()


def _passes(check: Callable[[], None]) -> None:
    """Skip what the engine does not offer."""
    try:
        check()
    except NotOfferedError as lack:
        pytest.skip(str(lack))


@pytest.mark.parametrize("kind", LOADS)
@pytest.mark.parametrize("path", POLICIES, ids=name_of)
def test_a_policy_only_looks_and_fast_forward_changes_nothing(path: Path, kind: str) -> None:
    _passes(lambda: adds_up(maker(path), LOADS[kind]()))


@pytest.mark.parametrize("path", POLICIES, ids=name_of)
def test_a_policy_does_the_same_twice(path: Path) -> None:
    _passes(lambda: does_the_same_twice(maker(path), LOADS["short KV"]()))


OF_ONE_SERVICE = "cost_aware dlpm fair_batching jitserve lcf mc_sf p_pas past_future slai"


@pytest.mark.parametrize("name", OF_ONE_SERVICE.split())
def test_a_policy_of_one_service_refuses_a_group_of_several(name: str) -> None:
    (path,) = (path for path in POLICIES if path.stem == name)
    view: Any = SimpleNamespace(group=SimpleNamespace(id="g"), services={"m0": None, "m1": None})
    with pytest.raises(ValueError, match=f"{name} serves one service, g has 2"):
        maker(path)().schedule(view)


class Turning:
    """An order that depends on a number, which is another each time it is asked for a key."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, turns: Iterator[int]) -> None:
        self._turns = turns
        self._order = PriorityOrder(self._key, rule(chunked_prefill=True))

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The same order every time."""
        return Decision(priority_order=self._order)

    def _key(self, table: RequestTable) -> Floats:
        return np.asarray(np.sin(table.prompt_tokens * (1.0 + next(self._turns))), np.float64)


def test_an_order_that_follows_more_than_the_view_is_found() -> None:
    load, numbers = random_load(1, 20, 0.01, blocks=60), count()
    with pytest.raises(AssertionError, match="the key of an order is another when asked again"):
        adds_up(lambda: Turning(count()), load)
    with pytest.raises(AssertionError):
        does_the_same_twice(lambda: Turning(repeat(next(numbers))), load)


def test_what_an_engine_lacks_is_named() -> None:
    path = next(path for path in POLICIES if path.stem == "fastserve")
    *_, (name, check) = every_check(path)
    assert name == "vLLM's scheduler runs the same batches"
    pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    with pytest.raises(NotOfferedError, match="VllmDry lacks preempted KV kept in host memory"):
        check()
