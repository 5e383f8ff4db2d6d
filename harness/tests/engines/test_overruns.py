"""Requests that outgrow what is set aside for them: who is told when, and what then is."""

from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engines.recorder import Recorder
from harness.interface.decisions import ContinuousBatching, Displaced, PriorityOrder
from harness.interface.entities import GroupId, RequestId
from harness.interface.events import Event, Overran
from harness.interface.tables import Floats, RequestTable
from harness.tests.support.loads import Load, assert_same_times, loads
from harness.tests.support.policies import RULES
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    FlatCosts,
    UnevenCosts,
    rule,
    serve,
    workload,
)
from harness.tools.benchmarks.moving_policies import LearntAllocation, Ordered


@pytest.mark.parametrize("displaces", [None, *Displaced])
@given(
    load=loads(most=16),
    batch_rule=st.sampled_from(RULES),
    blocks=st.sampled_from([17, 30, 200]),
    late_s=st.sampled_from([0.0, 0.0131, 0.1317]),
    services=st.sampled_from([1, 2]),
)
@settings(max_examples=6, deadline=None)
def test_same_overruns_and_what_is_learnt_of_them(
    displaces: Displaced | None,
    load: Load,
    batch_rule: ContinuousBatching,
    blocks: int,
    late_s: float,
    services: int,
) -> None:
    """The same are told of, at the same times; what is set aside grows for all from then on."""
    told: list[tuple[list[object], list[float]]] = []

    def served(fast: bool) -> Recorder:
        recorder = Recorder(keep_events=True)
        serve(
            workload(*load, services=services),
            LearntAllocation(batch_rule, displaces),
            costs=UnevenCosts(blocks=blocks, load=0.0),
            fast_forward=fast,
            predictor=Guess(late_s),
            recorder=recorder,
        )
        overran = [event for event in recorder.events if isinstance(event, Overran)]
        names: list[object] = [(e.request, e.group) for e in overran]
        told.append((names, [e.now_s for e in overran]))
        return recorder

    assert_same_times(served)
    (fast, fast_s), (slow, slow_s) = told
    assert fast == slow
    assert fast_s == pytest.approx(slow_s, rel=1e-9)


class OnceMore(Ordered):
    """Sets aside 20 tokens, and 64 after the first overrun."""

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Overran})

    def __init__(self) -> None:
        super().__init__(PriorityOrder(None, rule(), None, self._aside))
        self._wanted = 20.0

    def observe(self, event: Event) -> None:
        """One is enough."""
        self._wanted = 64.0

    def _aside(self, table: RequestTable) -> Floats:
        return np.full(len(table.id), self._wanted)


@pytest.mark.parametrize("fast", [True, False])
def test_who_outgrows_what_was_set_aside_has_more_of_it_by_hand(fast: bool) -> None:
    """r0 has 20 tokens of context after 0.5 + 9/4 s, and is told of with the next.

    Then all 4 blocks are set aside for it, so r1, which comes at 3.1 s, waits for its end.
    """
    recorder = Recorder(keep_events=True)
    costs = FlatCosts(blocks=4, load=0.0)
    load = workload([10, 10], [20, 1], [0.0, 3.1])
    serve(load, OnceMore(), costs=costs, fast_forward=fast, recorder=recorder)
    (overran,) = [event for event in recorder.events if isinstance(event, Overran)]
    assert overran == Overran(pytest.approx(3.0), RequestId(0), GroupId("m@0"))  # type: ignore[arg-type]
    assert recorder.requests["finished_s"].tolist() == pytest.approx([5.25, 5.75])
