"""Calls that come of answers of another service's replicas, known before the clock is there."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.round_robin import RoundRobin
from harness.engines.simulator import ahead
from harness.engines.simulator.fast.run_ahead import run_replicas
from harness.engines.state import Ints
from harness.interface.entities import GroupId, ServiceId
from harness.interface.load_order import LoadOrder
from harness.interface.views import ClusterView
from harness.predictors.oracle import Oracle
from harness.tests.support.applications import assert_served_as_stepped, linked
from harness.tests.support.policies import Restless
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import UnevenCosts, rule, serve, workload
from harness.workloads.workload import Workload
from systems.ssjf.policy import Ssjf


class TurnsToLoad:
    """Names groups for the first service and the first judges, then leaves it to the load."""

    reads_load: ClassVar[bool] = False

    def __init__(self) -> None:
        self._names = RoundRobin()
        self._turns = False

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> Sequence[GroupId] | LoadOrder:
        """By name while it is to."""
        if service == "m1" and self._turns:
            return LoadOrder()
        self._turns = service == "m1"
        return self._names.dispatch(requests, service, view)


@st.composite
def fed(draw: st.DrawFn) -> Workload:
    """Up to 8 documents, each a chain of calls, judged by calls of another service.

    A judge may wait for two documents; a third service has requests of its own.
    """
    documents = draw(st.integers(1, 8))
    service: list[int] = []
    pairs: list[tuple[int, int]] = []
    ends: list[int] = []
    for _ in range(documents):
        first = len(service)
        chunks, judges = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        service += [0] * chunks + [1] * judges
        pairs += [(first + i, first + i + 1) for i in range(chunks - 1)]
        last = first + chunks - 1
        both = draw(st.booleans()) and bool(ends)
        for judge in range(last + 1, last + 1 + judges):
            pairs += [(last, judge), *([(ends[-1], judge)] if both else [])]
        ends.append(last)
    service += [2] * draw(st.integers(0, 6))
    sizes = st.lists(st.integers(1, 40), min_size=len(service), max_size=len(service))
    load = workload(draw(sizes), draw(sizes), services=3)
    return linked(replace(load, service=np.array(service)), pairs)


@given(
    load=fed(),
    after_s=st.sampled_from([0.0, 0.003, 0.4]),
    knows=st.booleans(),
    seed=st.integers(0, 999),
    waits_s=st.lists(st.sampled_from([0.0113, 0.2719, 1.6449]), max_size=5),
)
@settings(deadline=None, max_examples=150)
def test_who_is_fed_ahead_is_served_as_others_are(
    load: Workload, after_s: float, knows: bool, seed: int, waits_s: list[float]
) -> None:
    assert_served_as_stepped(
        load,
        lambda fast: serve(
            load,
            # By what is predicted, where it is: those fed ahead have their places by it, too.
            Ssjf(rule=rule(), aging_tokens_per_s=0.0) if knows else None,
            Restless(seed, waits_s, 4),
            predictor=Oracle().of(load, 0) if knows else None,
            costs=UnevenCosts(blocks=14, load=0.05),
            gpus=4,
            hand_over_s=after_s,
            fast_forward=fast,
        ),
        after_s,
    )


@pytest.mark.parametrize("fast", [True, False])
def test_a_policy_names_groups_throughout_or_never(fast: bool) -> None:
    load = workload([5, 5, 5, 5], [4, 9, 4, 4], services=2)
    load = linked(replace(load, service=np.array([0, 0, 1, 1])), [(0, 2), (1, 3)])
    with pytest.raises(ValueError, match="TurnsToLoad has named groups for requests of m1 and now"):
        serve(load, dispatch=TurnsToLoad(), fast_forward=fast)


def _moments(load: Workload, monkeypatch: pytest.MonkeyPatch, predictor: Guess | None) -> int:
    """How often all replicas came to one time."""
    times = []

    def counted(*args: Any, **kwargs: Any) -> tuple[float, Ints]:
        times.append(args)
        return run_replicas(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(ahead, "run_replicas", counted)
        serve(load, gpus=3, predictor=predictor)
    return len(times)


def test_replicas_do_not_meet_at_every_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty documents with a judge each: they meet where somebody must learn of the answers."""
    outputs = [5 + i % 7 for i in range(40)] + [9] * 40
    load = workload([20] * 80, outputs, services=3)
    load = replace(load, service=np.repeat([0, 1], 40))
    judged = linked(load, [(i, i + 40) for i in range(40)])
    assert _moments(judged, monkeypatch, Guess()) > 40
    assert _moments(judged, monkeypatch, None) < 10
