"""Backends of units: pools, the least recently used, waits and idle seconds by hand."""

from typing import Any

import numpy as np
import pytest

from harness.engines.backends import Backends
from harness.engines.recorder import Recorder
from harness.interface.apps import Apps, Backend
from harness.interface.decisions import Prewarm
from harness.interface.entities import AppId, ResourceId
from harness.tests.support.prewarming import CONTAINER as OWN
from harness.tests.support.prewarming import AtArrival, with_container
from harness.tests.support.serving import FlatCosts, serve

A, B, C = (Backend(name, "gpu", 1.0) for name in "abc")


def _pool(*backends: Backend, size: float = 2.0) -> tuple[Backends, list[tuple[str, str]]]:
    """A pool of which call n needs backend n; what is started and stopped."""
    count = len(backends)
    number = np.arange(count)
    apps = Apps(
        kinds=("k",),
        kind=np.zeros(count, np.int64),
        units=("u",),
        unit=np.zeros(count, np.int64),
        instance=number,
        external_s=np.ones(count),
        backends=backends,
        backend=number,
        pools={"gpu": size, "containers": size},
    )
    log: list[tuple[str, str]] = []
    return Backends(
        apps,
        number,
        start=lambda name, _: log.append(("start", name)),
        stop=lambda name: log.append(("stop", name)),
    ), log


def test_a_pool_of_two_stops_the_least_recently_used() -> None:
    pool, log = _pool(A, B, C)
    assert not pool.take(0, 0.0)
    assert pool.ready(ResourceId("a"), 1.0) == [0]
    assert not pool.take(1, 1.0)
    assert pool.ready(ResourceId("b"), 2.0) == [1]
    assert pool.release(1, 3.0) == []
    assert pool.release(0, 4.0) == []
    assert not pool.take(2, 5.0)
    assert log == [("start", "a"), ("start", "b"), ("stop", "b"), ("start", "c")]


def test_a_call_waits_for_room_where_all_are_in_use() -> None:
    pool, log = _pool(A, B, size=1.0)
    pool.take(0, 0.0)
    pool.ready(ResourceId("a"), 1.0)
    assert not pool.take(1, 1.0)
    assert log == [("start", "a")]
    assert pool.release(0, 3.0) == []
    assert log[1:] == [("stop", "a"), ("start", "b")]
    assert pool.ready(ResourceId("b"), 4.0) == [1]
    frame = pool.frame()
    assert frame["found"].tolist() == ["cold", "cold"]
    assert frame["waited_s"].tolist() == [1.0, 3.0]
    assert frame["resource"].tolist() == ["a", "b"]
    assert frame["request"].tolist() == [0, 1]


def test_idle_seconds_of_backends_that_are_loaded_ahead() -> None:
    pool, _ = _pool(A, B)
    pool.prewarm(Prewarm(start=(ResourceId("a"), ResourceId("b"))), 0.0)
    pool.ready(ResourceId("a"), 1.0)
    pool.ready(ResourceId("b"), 1.0)
    assert pool.take(0, 4.0)
    pool.prewarm(Prewarm(stop=(ResourceId("a"), ResourceId("b"))), 6.0)
    frame = pool.frame()
    assert frame["found"].tolist() == ["warm", "unused"]
    assert frame["idle_s"].tolist() == [3.0, 5.0]
    assert frame["resource"].tolist() == ["a", "b"]
    assert frame["request"].tolist() == [0, -1]


def test_a_backend_of_one_application_ends_with_it_also_while_it_loads() -> None:
    pool, log = _pool(OWN)
    pool.prewarm(Prewarm(start=(OWN.of(AppId(0)),)), 0.0)
    pool.app_ended(AppId(0), 0.5)
    assert log[-1] == ("stop", "docker of 0")
    assert pool.ready(OWN.of(AppId(0)), 1.0) == []


def test_a_backend_that_its_pool_cannot_hold_is_refused() -> None:
    with pytest.raises(ValueError, match=r"backend a takes 1 of pool gpu, which has 0\.5"):
        _pool(A, size=0.5)


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize(("prewarm", "act_s"), [(None, 6.0), (AtArrival, 5.0)])
def test_a_container_between_two_calls_by_hand(
    fast_forward: bool, prewarm: Any, act_s: float
) -> None:
    """The engine loads for 1 s, a call takes 1 s, a container loads for 1 s and runs for 2 s."""
    recorder: Recorder = serve(
        with_container([10, 1, 10], [3, 1, 3], seconds=2.0),
        costs=FlatCosts(),
        fast_forward=fast_forward,
        prewarm=None if prewarm is None else prewarm(),
    )
    assert recorder.apps is not None
    assert recorder.backends is not None
    assert recorder.apps["finished_s"].tolist() == pytest.approx([act_s])
    assert recorder.backends["waited_s"].tolist() == pytest.approx([act_s - 5.0])
