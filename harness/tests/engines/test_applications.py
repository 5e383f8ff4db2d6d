"""Applications with units outside any LLM: times, events, and what policies see of them."""

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engines.recorder import Recorder
from harness.interface.decisions import Deployment, Displaced
from harness.interface.events import (
    AppArrived,
    AppFinished,
    Arrived,
    Event,
    Finished,
    UnitFinished,
    UnitStarted,
)
from harness.interface.views import ClusterView
from harness.tests.support.learning import learning, scattered
from harness.tests.support.outside import LLM_S, applied, random_applications
from harness.tests.support.policies import RULES
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    SERVICE,
    Everywhere,
    FlatCosts,
    UnevenCosts,
    serve,
    workload,
)


class Foreseeing(Guess):
    """Predicts calls before they come, so that they may come without being asked about."""

    foresees = True


UNITS: list[type[Event]] = [AppArrived, UnitStarted, UnitFinished, AppFinished]

TOLD = [
    ("AppArrived", 0.0),
    ("UnitStarted", 0.0),
    ("Arrived", 0.0),
    ("Finished", 1.0),
    ("UnitFinished", 1.0),
    ("UnitStarted", 1.0),
    ("UnitFinished", 2.0),
    ("UnitStarted", 2.0),
    ("UnitFinished", 4.0),
    ("UnitStarted", 4.0),
    ("Arrived", 4.0),
    ("Finished", 5.0),
    ("UnitFinished", 5.0),
    ("AppFinished", 5.0),
]


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("keeps", [True, False])
def test_two_units_outside_between_two_calls_by_hand(fast_forward: bool, keeps: bool) -> None:
    """Half a second for a prompt, a quarter for each of two tokens more; 1 and 2 s outside."""
    load = applied(
        workload([10, 1, 1, 10], [3, 1, 1, 3]),
        [(0, 1), (1, 2), (2, 3)],
        app=[0] * 4,
        external_s=[LLM_S, 1.0, 2.0, LLM_S],
    )
    recorder = serve(
        load,
        costs=FlatCosts(load=0.0),
        fast_forward=fast_forward,
        recorder=Recorder(keep_events=keeps),
    )
    assert recorder.requests["finished_s"].tolist() == [1.0, 5.0]
    assert recorder.apps is not None
    assert recorder.units is not None
    assert recorder.apps[["arrived_s", "finished_s"]].to_numpy().tolist() == [[0.0, 5.0]]
    assert recorder.units["started_s"].tolist() == [0.0, 1.0, 2.0, 4.0]
    assert recorder.units["outside"].tolist() == [False, True, True, False]
    told = [(type(event).__name__, event.now_s) for event in recorder.events]
    assert told == (TOLD if keeps else [])


@given(
    seed=st.integers(0, 10**6),
    kinds=st.frozensets(st.sampled_from([*UNITS, *UNITS, Finished, Arrived])),
    renewal=st.sampled_from([{}, {"renews": True}, {"renews": True, "renew_s": 0.0713}]),
    displaces=st.sampled_from([None, *Displaced]),
    blocks=st.sampled_from([10, 200]),
    after_s=st.sampled_from([0.0, 0.003]),
    key=st.sampled_from([None, scattered]),
    predictor=st.sampled_from([Guess(), Foreseeing(0.0), Foreseeing(0.0)]),
)
@settings(max_examples=20, deadline=None)
def test_compiled_as_stepped_whatever_is_learnt(
    seed: int,
    kinds: frozenset[type[Event]],
    renewal: dict[str, Any],
    displaces: Displaced | None,
    blocks: int,
    after_s: float,
    key: Any,
    predictor: Guess,
) -> None:
    load = random_applications(seed)
    seen = []
    for fast in (True, False):
        policy = learning(kinds, key=key, rule=RULES[3], displaces=displaces, **renewal)
        recorder = serve(
            load,
            policy,
            costs=UnevenCosts(blocks=blocks, load=0.0),
            fast_forward=fast,
            hand_over_s=after_s,
            predictor=predictor,
        )
        seen.append((recorder, policy))
    (fast_run, fast_policy), (slow_run, slow_policy) = seen
    for name in ("requests", "apps", "units"):
        pd.testing.assert_frame_equal(
            getattr(fast_run, name), getattr(slow_run, name), rtol=1e-9, obj=name
        )
    heard = [
        [
            (type(event), event.app, getattr(event, "unit", ""), getattr(event, "calls", ()))
            for event in policy.heard
            if isinstance(event, AppArrived | UnitStarted | UnitFinished | AppFinished)
        ]
        for policy in (fast_policy, slow_policy)
    ]
    assert heard[0] == heard[1]


class Looking(Everywhere):
    """Looks every 0.1 s at what is known of calls to come."""

    def __init__(self) -> None:
        super().__init__(("m", (0,)))
        self.seen: list[tuple[int, int, set[str]]] = []

    def place(self, view: ClusterView) -> Deployment:
        """The same groups."""
        calls = sum(len(view.to_come(service)) for service in view.services)
        names = {*view.services, *view.backlog, *view.unfinished(SERVICE).services}
        self.seen.append((len(view.edges), calls, set(names)))
        return replace(super().place(view), wake_s=view.now_s + 0.1)


def test_policies_see_only_what_has_come() -> None:
    placement = Looking()
    serve(random_applications(1, services=1), placement=placement)
    assert len(placement.seen) > 10
    assert all(seen == (0, 0, {SERVICE}) for seen in placement.seen)
