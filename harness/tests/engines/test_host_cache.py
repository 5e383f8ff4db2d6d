"""Adapters and contexts in host memory: a cache of two by hand, and both paths alike."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.epwq import Epwq
from baselines.fcfs import Fcfs
from baselines.parrot import Parrot
from harness.engines.recorder import Recorder
from harness.engines.simulator.cached_contents import CachedContents
from harness.interface.apps import Apps, HostCache
from harness.interface.decisions import Displaced, Prewarm
from harness.interface.entities import ResourceId, Work
from harness.interface.events import AppArrived, Event, UnitFinished, UnitStarted
from harness.interface.views import ClusterView
from harness.tests.support.learning import learning, scattered
from harness.tests.support.outside import LLM_S, applied, random_applications
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import FlatCosts, LinearCosts, rule, serve, workload
from harness.workloads.workload import Workload

WHOLE = rule(chunked_prefill=False)
NO_QUEUE = np.zeros(0, np.int64)


def _cache(*, grows: bool, calls: int = 4, load_s: float = 1.0, copy_s: float = 0.0) -> Any:
    """A cache of two contents of size 1 (contexts: of 2 tokens); call n reads content n."""
    number = np.arange(calls)
    facts = HostCache(
        names=tuple(map(ResourceId, "abcdef"[:calls])),
        content=number,
        size=np.zeros(calls) if grows else np.ones(calls),
        reads=np.ones(calls, np.int64),
        capacity=2.0,
        load_s=load_s,
        copy_s=copy_s,
        grows=grows,
    )
    apps = Apps(
        kinds=("k",),
        kind=np.zeros(calls, np.int64),
        units=("u",),
        unit=0 * number,
        instance=number,
        external_s=np.full(calls, np.nan),
        host_cache=facts,
    )
    return CachedContents.of(apps, number)


def _read_s(cache: Any, call: int, now_s: float) -> float:
    return float(cache.read({call: 10}, Work(1, 10, 10, 100.0), now_s)[1])


def test_the_least_recently_used_adapter_makes_room() -> None:
    cache = _cache(grows=False)
    assert [_read_s(cache, call, 10.0 * call) for call in (0, 1)] == [1.0, 1.0]
    assert _read_s(cache, 0, 20.0) == 0.0  # a is now used later than b
    assert _read_s(cache, 2, 30.0) == 1.0  # b makes room
    assert _read_s(cache, 0, 40.0) == 0.0
    assert _read_s(cache, 1, 50.0) == 1.0
    frame = cache.frame()
    assert frame["found"].tolist() == ["cold", "cold", "cold"]
    assert frame["resource"].tolist() == ["a", "b", "c"]
    assert frame["request"].tolist() == [0, 1, 2]
    assert frame["tokens"].tolist() == [0, 0, 0]


def test_what_the_queue_wants_stays_and_is_loaded_one_after_the_other() -> None:
    cache = _cache(grows=False)
    queue = np.array([2, 0, 1])
    assert cache.want((), queue, 0.0) == ("c", 1.0)
    assert cache.want((), queue, 0.5) is None  # one at a time
    assert cache.want((), queue, 1.0) == ("a", 2.0)
    assert cache.want((), queue, 2.0) is None  # b does not fit beside them
    assert _read_s(cache, 3, 3.0) == 1.0  # d is read, and evicts what is wanted least: a
    assert _read_s(cache, 2, 5.0) == 0.0
    assert cache.want((), np.array([2, 0]), 6.0) == ("a", 7.0)  # d, not wanted, makes room
    assert _read_s(cache, 0, 6.5) == 0.5  # waits for what is on its way
    assert cache.frame()["found"].tolist() == ["loading", "warm", "cold"]


def test_names_come_before_the_queue() -> None:
    cache = _cache(grows=False)
    assert cache.want((ResourceId("d"),), np.array([0]), 0.0) == ("d", 1.0)
    assert cache.want((ResourceId("d"),), np.array([0]), 1.0) == ("a", 2.0)
    with pytest.raises(ValueError, match="a policy wants z, which no call of this workload reads"):
        cache.want((ResourceId("z"),), NO_QUEUE, 2.0)


def test_contexts_that_are_loaded_ahead_fill_a_share_of_host_memory() -> None:
    """Of two tokens: the first of the queue fills half. Of adapters all may be loaded ahead."""
    for grows, loaded in ((True, None), (False, ("b", 2.0))):
        cache = _cache(grows=grows)
        cache.held.contents["size"] = 1.0
        assert cache.want((), np.array([0, 1]), 0.0, 0.5) == ("a", 1.0)
        assert cache.want((), np.array([0, 1]), 1.0, 0.5) == loaded


def test_a_context_that_is_not_in_memory_is_computed() -> None:
    """Two tokens fit: the context of the call that was answered last is there, if it is that short.

    Of a prompt of 10 tokens 1 is not computed: 9 tokens, which attend to 10^2 - 1^2.
    """
    cache = _cache(grows=True, copy_s=0.25)
    whole = Work(1, 10, 10, 100.0)
    assert cache.read({0: 10}, whole, 0.0) == (whole, 0.0)
    cache.store(0, 2, 1.0)
    assert cache.read({0: 10}, whole, 2.0) == (Work(1, 9, 9, 99.0), 0.25)
    cache.store(1, 1, 3.0)  # evicts the two tokens of the first
    assert cache.read({0: 10}, whole, 4.0) == (whole, 0.0)
    cache.store(2, 3, 5.0)  # is too long
    assert cache.want((), np.array([0]), 6.0) == ("a", 8.0)  # 2 tokens from disk
    assert cache.read({2: 10, 0: 10}, Work(2, 20, 20, 200.0), 8.0)[0].prefill_tokens == 19


def test_a_context_that_has_just_been_computed_displaces_what_the_queue_wants() -> None:
    """Two tokens fit: a and b, which calls in the queue read. c evicts b, the later of them.

    d then evicts c, which no call in the queue reads.
    """
    cache = _cache(grows=True)
    for call in (0, 1):
        cache.store(call, 1, 0.0)
    assert cache.want((), np.array([0, 1]), 1.0) is None
    cache.store(2, 1, 2.0)
    assert cache.held.contents["ready_s"].tolist() == [0.0, np.inf, 2.0, np.inf]
    cache.store(3, 1, 3.0)
    assert cache.held.contents["ready_s"].tolist() == [0.0, np.inf, np.inf, 3.0]


def test_the_tokens_that_a_call_finds_are_kept_of_its_first_begin() -> None:
    """Call a is preempted and begins again, when its context is there; b finds its own at once."""
    cache = _cache(grows=True)
    assert _read_s(cache, 0, 0.0) == 0.0
    for call in (0, 1):
        cache.store(call, 1, 1.0)
    assert [_read_s(cache, call, 2.0) for call in (0, 1)] == [0.0, 0.0]
    frame = cache.frame()
    assert frame["found"].tolist() == ["cold", "warm"]
    assert frame["tokens"].tolist() == [0, 1]


def _with_cache(load: Workload, *, capacity: float, grows: bool) -> Workload:
    """Contexts, or two applications for each adapter."""
    assert load.apps is not None
    count = len(load.apps.kind)
    contents = count if grows else (count + 1) // 2
    is_llm = ~load.apps.outside
    reads = np.where(is_llm, load.prompt_tokens // 2 if grows else 1, 0)
    cache = HostCache(
        names=tuple(ResourceId(f"content {number}") for number in range(contents)),
        content=np.arange(count) % contents,
        size=np.zeros(contents) if grows else np.ones(contents),
        reads=reads,
        capacity=capacity,
        load_s=0.001 if grows else 0.07,
        copy_s=0.0001 if grows else 0.01,
        grows=grows,
    )
    return replace(load, apps=replace(load.apps, host_cache=cache))


class Ahead:
    """Wants the contents of the applications that came first, before those of the queue."""

    subscribes = frozenset({AppArrived, UnitStarted, UnitFinished})

    def __init__(self) -> None:
        self._first: list[ResourceId] = []

    def observe(self, event: Event) -> None:
        """Note what applications read."""
        if isinstance(event, AppArrived) and event.content is not None:
            self._first.append(event.content)

    def prewarm(self, view: ClusterView) -> Prewarm:
        """Two of them, then the queue."""
        return Prewarm(wanted=tuple(self._first[:2]), wants_queue=True)


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    grows=st.booleans(),
    capacity=st.floats(0.5, 6.0),
    prewarm=st.sampled_from([None, partial(Epwq, contexts_share=0.3), Ahead]),
    displaces=st.sampled_from([None, Displaced.RECOMPUTE]),
)
def test_compiled_as_stepped(
    seed: int, grows: bool, capacity: float, prewarm: Any, displaces: Any
) -> None:
    load = _with_cache(
        random_applications(seed, count=40, services=1),
        capacity=capacity * 40 if grows else float(int(capacity) + 1),
        grows=grows,
    )
    runs = [
        serve(
            load,
            learning(frozenset(), key=scattered, rule=WHOLE, displaces=displaces),
            costs=LinearCosts(blocks=60),
            predictor=Guess(),
            fast_forward=fast_forward,
            prewarm=None if prewarm is None else prewarm(),
        )
        for fast_forward in (True, False)
    ]
    fast, slow = runs
    for name in ("requests", "backends"):
        pd.testing.assert_frame_equal(getattr(fast, name), getattr(slow, name), rtol=1e-9)


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize(("reads", "act_s"), [(0, 1.75), (1, 3.25)])
def test_an_adapter_is_waited_for_by_hand(fast_forward: bool, reads: int, act_s: float) -> None:
    """Two calls take 1 and 0.75 s. The first loads for 1 s, and each copies for 0.25 s."""
    load = applied(workload([10, 10], [3, 2]), [(0, 1)], app=[0, 0], external_s=[LLM_S, LLM_S])
    assert load.apps is not None
    cache = HostCache(
        names=(ResourceId("adapter 0"),),
        content=np.zeros(1, np.int64),
        size=np.ones(1),
        reads=np.full(2, reads),
        capacity=1.0,
        load_s=1.0,
        copy_s=0.25,
        grows=False,
    )
    load = replace(load, apps=replace(load.apps, host_cache=cache))
    recorder: Recorder = serve(
        load, Fcfs(rule=WHOLE), costs=FlatCosts(load=0.0), fast_forward=fast_forward
    )
    assert recorder.apps is not None
    assert recorder.apps["finished_s"].tolist() == pytest.approx([act_s])


@pytest.mark.parametrize("fast_forward", [True, False])
def test_the_adapter_of_a_call_that_runs_stays_by_hand(fast_forward: bool) -> None:
    """One slot, room for one adapter: two calls of the first application, one of another.

    The first call loads its adapter and runs for 2 s, in which that of the second application,
    which comes after 1.5 s, could be loaded. It stays, and the next call finds it.
    """
    load = applied(
        workload([10, 10, 10], [8, 8, 8], [0.0, 0.0, 1.5]),
        [(0, 1)],
        app=[0, 0, 1],
        external_s=[LLM_S] * 3,
    )
    assert load.apps is not None
    cache = HostCache(
        names=(ResourceId("adapter 0"), ResourceId("adapter 1")),
        content=np.arange(2),
        size=np.ones(2),
        reads=np.ones(3, np.int64),
        capacity=1.0,
        load_s=1.0,
        copy_s=0.0,
        grows=False,
    )
    recorder = serve(
        replace(load, apps=replace(load.apps, host_cache=cache)),
        Parrot(rule=rule(chunked_prefill=False, max_num_seqs=1), order="arrival", displaces=None),
        costs=FlatCosts(load=0.0),
        fast_forward=fast_forward,
        prewarm=Epwq(contexts_share=0.3),
    )
    assert recorder.backends is not None
    assert recorder.backends["found"].tolist() == ["cold", "loading", "warm"]
    assert recorder.backends["app"].tolist() == [0, 1, 0]


def test_prompts_that_are_cut_are_refused() -> None:
    load = _with_cache(random_applications(1, count=6, services=1), capacity=9.0, grows=True)
    for fast_forward in (True, False):
        with pytest.raises(ValueError, match=r"policy\.rule\.chunked_prefill=false"):
            serve(load, Fcfs(rule=rule(chunked_prefill=True)), fast_forward=fast_forward)
