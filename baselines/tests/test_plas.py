"""Calls of applications in queues, by the service that their application has had."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from baselines.plas import Plas
from harness.interface.decisions import Batch
from harness.interface.entities import ServiceId
from harness.interface.events import Arrived, Finished, Iterated
from harness.interface.policies import SchedulingPolicy
from harness.tests.support.applications import linked
from harness.tests.support.calls import GROUP, Call, keys
from harness.tests.support.serving import FlatCosts, rule, serve, workload

X, Y = 0, 1
QUEUE = 2.0**44


def plas(**settings: object) -> Plas:
    """Queues of 1, 2 and 4 seconds of service."""
    given: dict[str, object] = {
        "rule": rule(max_num_seqs=1),
        "service": "total",
        "quantum_s": 1.0,
        "ratio": 2.0,
        "queues": 3,
        "starves_ratio": None,
        "displaces": "pause",
    }
    return Plas(**given | settings)  # type: ignore[arg-type]


def arrive(policy: Plas, now_s: float, *calls: Call) -> None:
    for call in calls:
        policy.observe(Arrived(now_s, call.facts, GROUP))


def run(policy: Plas, until_s: float, for_s: float, *calls: Call) -> None:
    batch = Batch(ServiceId("m"), {call.facts.id: 1 for call in calls})
    policy.observe(Iterated(until_s, GROUP, batch, for_s, {}))


def places(policy: Plas, *calls: Call) -> list[tuple[float, float]]:
    """Queue of each call, and second of its entry."""
    return [(key // QUEUE, key % QUEUE / 1e6) for key in keys(policy, *calls)]


def test_queues_by_hand() -> None:
    """X's first call is demoted after a second; its second call enters the queue of 1.5 s."""
    policy, first, second, other = plas(), Call(0, app=X), Call(1, app=X), Call(2, app=Y)
    arrive(policy, 0.0, first, other)
    assert places(policy, first, other) == [(0, 0.0), (0, 0.0)]
    run(policy, 1.0, 1.0, first)
    assert places(policy, first, other) == [(1, 1.0), (0, 0.0)]
    run(policy, 1.5, 0.5, first)
    policy.observe(Finished(1.5, first.facts, 2))
    arrive(policy, 1.5, second)
    assert places(policy, second) == [(1, 1.5)]
    # The last queue has no end.
    run(policy, 12.0, 10.5, second)
    run(policy, 20.0, 8.0, second)
    assert places(policy, second) == [(2, 12.0)]


@pytest.mark.parametrize(("service", "queue"), [("total", 2), ("critical_path", 1)])
def test_parallel_calls_by_hand(service: str, queue: int) -> None:
    """Two calls of X run for 1.5 s side by side: 3 s in all, 1.5 s on the critical path."""
    policy, calls, later = plas(service=service), (Call(0, app=X), Call(1, app=X)), Call(2, app=X)
    arrive(policy, 0.0, *calls)
    run(policy, 1.5, 1.5, *calls)
    for call in calls:
        policy.observe(Finished(1.5, call.facts, 2))
    arrive(policy, 2.0, later)
    assert places(policy, later) == [(queue, 2.0)]


def test_a_starved_call_is_promoted_by_hand() -> None:
    """X has run for a second; when it has waited for two, its wait is twice its service."""
    policy, starved, other = plas(starves_ratio=2.0), Call(0, app=X), Call(1, app=Y)
    arrive(policy, 0.0, starved, other)
    run(policy, 1.0, 1.0, starved)
    run(policy, 2.9, 1.9, other)
    assert places(policy, starved) == [(1, 1.0)]
    run(policy, 3.0, 0.1, other)
    assert places(policy, starved, other) == [(0, 3.0), (1, 2.9)]
    assert policy.counts() == {"promotions": 1}


@pytest.mark.parametrize(
    ("policy", "finished_s"),
    [
        (plas(quantum_s=0.5, displaces=None), [0.75, 3.5, 2.0, 2.75]),
        (Fcfs(rule=rule(max_num_seqs=1)), [0.75, 2.75, 2.0, 3.5]),
    ],
)
def test_a_new_program_runs_before_a_served_one_by_hand(
    policy: SchedulingPolicy, finished_s: list[float]
) -> None:
    """Calls 0 and 1 are X's, one after the other; half a second a prefill, a quarter a decode.

    Call 2 runs from 0.75 to 2.0. Call 1 has come at 0.75 and call 3, of a new program, at 1.0.
    """
    load = linked(workload([10] * 4, [2, 2, 4, 2], [0.0, 0.0, 0.1, 1.0]), [(0, 1)])
    load = replace(load, app=np.array([0, 0, 1, 2]))
    served = serve(load, policy, costs=FlatCosts(load=0.0))
    assert served.requests["finished_s"].tolist() == finished_s


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"service": "mean"}, "policy.service is mean, not total or critical_path"),
        ({"quantum_s": 0.0}, "policy.quantum_s is 0.0, it must be above 0"),
        ({"queues": 0}, "policy.ratio 2.0 and policy.queues 0 must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        plas(**settings)
