"""Seconds of every request by what it did, and KV and requests of every iteration."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness.engines.recorder import Recorder
from harness.engines.state import LOG_COLUMNS
from harness.interface.decisions import Decision, Displaced, PriorityOrder, StaticBatching
from harness.interface.entities import RequestId
from harness.interface.events import Event, Iterated
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView
from harness.tests.support.loads import Load, loads
from harness.tests.support.policies import RULES, Paused, Reserving, Srpt, SteadyFcfs
from harness.tests.support.serving import LinearCosts, serve, workload
from harness.tools.benchmarks.moving_policies import Ordered, attained_quanta, queue_of_five

STATIC = StaticBatching(max_num_seqs=4, max_wait_s=0.05, refills=False, pads_prompts=False)
POLICIES: dict[str, Callable[[], SchedulingPolicy]] = {
    "whole prompts": partial(Fcfs, rule=RULES[0]),
    "chunks": partial(Fcfs, rule=RULES[4]),
    "static": lambda: Fcfs(rule=STATIC),
    "pauses": lambda: Paused(max_num_seqs=4),
    "reserves": lambda: Reserving(max_num_seqs=5),
    "preempts": lambda: Srpt(max_num_seqs=3),
    "swaps": lambda: Ordered(PriorityOrder(attained_quanta, RULES[1], Displaced.SWAP)),
    "swaps chunks": lambda: Ordered(PriorityOrder(queue_of_five, RULES[3], Displaced.SWAP)),
    "steady": lambda: SteadyFcfs(rotates=True),
}
USE = list(LOG_COLUMNS[LOG_COLUMNS.index("held_tokens") :])
Seconds = defaultdict[RequestId, float]


def _none() -> Seconds:
    return defaultdict(float)


@dataclass
class Witness:
    """Lets a policy decide every iteration; adds up what requests did since it was asked last."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated})

    inner: SchedulingPolicy
    waiting: Seconds = field(default_factory=_none)
    running: Seconds = field(default_factory=_none)
    paused: Seconds = field(default_factory=_none)
    preempted: Seconds = field(default_factory=_none)
    asked_s: float = 0.0
    batch: frozenset[RequestId] = frozenset()

    def observe(self, event: Event) -> None:
        """Who was in the batch has run."""
        assert isinstance(event, Iterated)
        self.batch = frozenset(event.batch.tokens)
        for request in self.batch:
            self.running[request] += event.duration_s

    def schedule(self, view: GroupView) -> Decision:
        """Whoever was not has waited, paused with its KV, or was preempted."""
        for name, request in view.requests.items():
            if name in self.batch:
                continue
            since_s = max(self.asked_s, request.facts.arrival_s)
            begun = self.running[name] > 0
            state = self.paused if request.kv_tokens else self.preempted if begun else self.waiting
            state[name] += view.now_s - since_s
        self.asked_s, self.batch = view.now_s, frozenset()
        return self.inner.schedule(view)

    def frame(self, count: int) -> pd.DataFrame:
        """The columns of a run's requests."""
        names = [RequestId(i) for i in range(count)]
        return pd.DataFrame(
            {
                "waiting_s": [self.waiting[i] for i in names],
                "gpu_s": [self.running[i] for i in names],
                "paused_s": [self.paused[i] for i in names],
                "preempted_s": [self.preempted[i] for i in names],
            }
        )


def _served(load: Load, policy: SchedulingPolicy, blocks: int, *, fast: bool) -> Recorder:
    return serve(
        workload(*load),
        policy,
        costs=LinearCosts(blocks=blocks, load=0.25),
        fast_forward=fast,
        gpus=1,
        recorder=Recorder(keep_iterations=True),
        max_num_seqs=8,
        tokens=300,
    )


@pytest.mark.parametrize("name", POLICIES)
@given(load=loads(24, 60), blocks=st.sampled_from([12, 17, 200]))
@settings(max_examples=5, deadline=None)
def test_seconds_add_up_to_the_completion_time(name: str, load: Load, blocks: int) -> None:
    """As a witness counts them who is asked at every iteration; fast-forward changes none."""
    witness = Witness(POLICIES[name]())
    frames = [
        _served(load, witness, blocks, fast=False).requests,
        _served(load, POLICIES[name](), blocks, fast=True).requests,
    ]
    seen = witness.frame(len(load[0]))
    for frame in frames:
        np.testing.assert_allclose(frame[list(seen)], seen, rtol=1e-9, atol=1e-9)
        jct_s = frame["finished_s"] - frame["arrival_s"]
        np.testing.assert_allclose(seen.sum(axis=1), jct_s, rtol=1e-9)


@pytest.mark.parametrize("name", POLICIES)
@given(load=loads(24, 60), blocks=st.sampled_from([12, 17, 200]))
@settings(max_examples=5, deadline=None)
def test_kv_and_requests_of_every_iteration(name: str, load: Load, blocks: int) -> None:
    """Compiled runs begin with what the iteration in the open has at that time."""
    on, off = (
        _served(load, POLICIES[name](), blocks, fast=fast).iteration_frame()
        for fast in (True, False)
    )
    assert on is not None
    assert off is not None
    assert on["iterations"].sum() == off["iterations"].sum()
    places = np.searchsorted(off["start_s"].to_numpy() + 1e-9, on["start_s"])
    same = off.iloc[places]
    np.testing.assert_allclose(same["start_s"], on["start_s"], rtol=1e-9)
    np.testing.assert_array_equal(same[USE], on[USE])
    capacity = blocks * LinearCosts().block
    assert (off["held_tokens"] + off["free_tokens"] <= capacity).all()
    assert (off["free_tokens"] >= 0).all()
    if name == "reserves":
        assert (off["promised_tokens"] >= off["held_tokens"]).all()
        assert (off["promised_tokens"] + off["free_tokens"] <= capacity).all()
    together = off[["waiting_requests", "paused_requests", "prefill_requests", "decode_requests"]]
    assert (together.sum(axis=1) <= len(load[0])).all()
    assert together.sum(axis=1).max() >= 1
