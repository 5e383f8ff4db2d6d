"""A run that is cut off, one that gets nowhere, and what timers and instants mean."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.engines.recorder import GpuUse, Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Decision, Deployment
from harness.interface.entities import Group
from harness.interface.events import Event
from harness.interface.policies import Capability, SchedulingPolicy, System
from harness.interface.views import ClusterView, GroupView
from harness.runs.figures import inference_s
from harness.runs.gpu_time import gpu_figures
from harness.runs.latencies import request_figures
from harness.tests.support.policies import Scripted, SteadyFcfs
from harness.tests.support.serving import (
    FlatCosts,
    LinearCosts,
    a_group,
    cluster,
    rule,
    serve,
    workload,
)
from harness.workloads.workload import Workload


@dataclass
class Timed:
    """A placement that says what it is told to, and keeps when it was asked."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.REDEPLOY})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()
    says: Callable[[float], Deployment]
    asked_s: list[float] = field(default_factory=list)

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """As told."""
        self.asked_s.append(view.now_s)
        return self.says(view.now_s)


M0, M1 = a_group("m0", 0), a_group("m1", 1)


def _without_m1(now_s: float) -> Deployment:
    return Deployment((M0,), wake_s=now_s + 1.0)


def _to_and_fro(now_s: float) -> Deployment:
    """Groups of a service that nobody asks any more, one after the other."""
    return Deployment((a_group("m0", int(now_s) % 2),), wake_s=now_s + 1.0)


@pytest.mark.parametrize(
    ("says", "load_s"), [(_without_m1, 0.3), (_to_and_fro, 0.3), (_to_and_fro, 2.5)]
)
def test_a_run_that_gets_nowhere_is_refused(
    says: Callable[[float], Deployment], load_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service is left out, or groups go again before they have loaded."""
    monkeypatch.setattr("harness.engines.ask.MOST_WAKES", 300)
    load = workload([9, 9], [3, 3], services=2)
    sentence = r"requests wait for ever: {.*'m1': 1} unfinished and 301 wake-ups in a row, the last"
    with pytest.raises(ValueError, match=sentence):
        serve(load, placement=Timed(says), costs=LinearCosts(load=load_s))


def _cut(load: Workload, policy: SchedulingPolicy, horizon_s: float, *, fast: bool) -> Recorder:
    recorder = Recorder()
    Simulator(
        cluster=cluster(2),
        costs=FlatCosts(blocks=64, load=1.0),
        max_num_seqs=4,
        max_num_batched_tokens=256,
        fast_forward=fast,
        horizon_s=horizon_s,
    ).run(load, System("test", policy, RoundRobin(), Timed(_without_m1)), recorder)
    return recorder


POLICIES: dict[str, Callable[[], SchedulingPolicy]] = {
    "order": lambda: Fcfs(rule=rule(max_num_seqs=4)),
    "steady": lambda: SteadyFcfs(rotates=False),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("fast", [True, False])
def test_what_is_unfinished_at_the_horizon_is_counted_so(policy: str, fast: bool) -> None:
    """Loaded at 1 s, a prompt in half a second, then a token each quarter: at 3.1 s it is cut off.

    The second service has no group; the last request would have come later.
    """
    load = workload([9, 9, 9, 9], [4, 2, 50, 3], [0.0, 0.0, 0.0, 9.0], services=2)
    recorder = _cut(load, POLICIES[policy](), 3.1, fast=fast)
    assert recorder.cut_off_s == 3.1
    frame = recorder.requests
    assert frame["finished_s"].notna().tolist() == [True, False, False, False]
    assert frame["output_tokens"].tolist() == [4, 0, 7, 0]
    assert inference_s(frame, recorder.cut_off_s) == 3.1
    figures = request_figures(frame, horizon_s=3.1)
    assert (figures["requests"], figures["unfinished"]) == (4, 3)
    finished_s = frame["finished_s"][0]
    assert figures["jct_s_mean"] == pytest.approx((finished_s + 3.1 + 3.1) / 3)
    used = gpu_figures(recorder.gpu_frame(), gpus=2, horizon_s=3.1)
    assert used["gpu_busy_s"] == pytest.approx(2.1)
    assert used["gpu_idle_s"] == pytest.approx(3.1)


@pytest.mark.parametrize("horizon_s", [0.0, -1.0, float("nan")])
def test_a_horizon_before_the_beginning_is_refused(horizon_s: float) -> None:
    with pytest.raises(ValueError, match=r"engine.horizon_s is .*, it must be above 0"):
        _cut(workload([9], [4]), POLICIES["order"](), horizon_s, fast=True)


def test_a_placement_is_asked_when_it_said_last() -> None:
    """When a service is drained at 1.5 s it says 3 s instead of 5 s."""
    wakes_s = iter([5.0, 3.0, None])

    def says(now_s: float) -> Deployment:
        return Deployment((M0, M1), wake_s=next(wakes_s, None))

    load = workload([9, 9], [3, 60], services=2)
    placement = Timed(says)
    recorder = serve(load, placement=placement, costs=FlatCosts(load=0.5))
    assert recorder.requests["finished_s"].max() > 6.0
    assert placement.asked_s == [0.0, 1.5, 3.0]


def test_a_wake_up_in_the_past_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Timed: wake_s 0.0 s is not after now, 0.0 s"):
        serve(workload([9], [3]), placement=Timed(lambda now_s: Deployment((), wake_s=now_s)))


class Patient(Scripted):
    """Waits until second 2, then runs all that is there; wakes up at every tenth before."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []

    def schedule(self, view: GroupView) -> Decision:
        """All or nothing."""
        self.asked_s.append(view.now_s)
        if view.now_s < 2.0:
            return Decision(wake_s=2.0)
        return SteadyFcfs(rotates=False).schedule(view)


def test_a_group_that_stops_now_has_stopped_before_others_are_asked() -> None:
    """At 2 s one of two groups goes: the other computes the requests of both in one batch."""
    both: tuple[Group, ...] = (a_group("m", 0), a_group("m", 1))

    def says(now_s: float) -> Deployment:
        return Deployment(both, wake_s=2.0) if now_s < 2.0 else Deployment(both[:1])

    load = workload([9, 9, 9, 9], [3, 3, 3, 3])
    recorder = serve(load, Patient(), Timed(says), costs=FlatCosts(load=0.0))
    assert recorder.requests["started_s"].tolist() == [2.0] * 4
    busy = recorder.gpu_frame().query(f"use == '{GpuUse.BUSY.value}'")
    assert set(busy["gpu"]) == {0}
