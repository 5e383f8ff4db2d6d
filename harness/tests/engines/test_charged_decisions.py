"""What deciding takes: recorded whoever fills the batch, and on the clock if that is asked for."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.core.draft import Draft
from harness.core.fill import fill
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Decision, PriorityOrder, StaticBatching
from harness.interface.policies import SchedulingPolicy, System
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView
from harness.tests.support.policies import Scripted, SteadyFcfs, some_load
from harness.tests.support.serving import (
    Everywhere,
    FlatCosts,
    LinearCosts,
    cluster,
    rule,
    workload,
)
from harness.workloads.workload import Workload

STATIC = StaticBatching(max_num_seqs=4, max_wait_s=0.0, refills=False, pads_prompts=False)
POLICIES: dict[str, Callable[[], SchedulingPolicy]] = {
    "order": lambda: Fcfs(rule=rule(max_num_seqs=4)),
    "chunked": lambda: Fcfs(rule=rule(chunked_prefill=True, max_num_seqs=4, tokens=16)),
    "steady": lambda: SteadyFcfs(rotates=False),
    "static": lambda: Fcfs(rule=STATIC),
}


def _charged(
    load: Workload,
    policy: SchedulingPolicy,
    charge: str | float,
    *,
    fast: bool = True,
    costs: LinearCosts | None = None,
) -> Recorder:
    recorder = Recorder()
    Simulator(
        cluster=cluster(1),
        costs=costs or FlatCosts(load=0.0),
        max_num_seqs=8,
        max_num_batched_tokens=256,
        fast_forward=fast,
        charge_decisions=charge,
    ).run(load, System("test", policy, RoundRobin(), Everywhere(("m", (0,)))), recorder)
    return recorder


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("policy", "first_s", "end_s"),
    [("order", 0.6, 1.65), ("steady", 0.6, 1.65), ("static", 1.35, 1.35)],
)
def test_so_many_seconds_for_every_iteration(
    policy: str, first_s: float, end_s: float, fast: bool
) -> None:
    """A prompt of half a second, three tokens of a quarter more; a whole batch is decided once."""
    recorder = _charged(workload([9], [4]), POLICIES[policy](), 0.1, fast=fast)
    assert recorder.requests["first_token_s"][0] == pytest.approx(first_s)
    assert recorder.requests["finished_s"][0] == pytest.approx(end_s)


@pytest.mark.parametrize("policy", POLICIES)
@given(seed=st.integers(0, 999), charge=st.sampled_from([0.0017, 0.11]))
@settings(max_examples=10, deadline=None)
def test_fast_forward_changes_nothing(policy: str, seed: int, charge: float) -> None:
    load, costs = some_load(seed, count=25, services=1), LinearCosts(blocks=30)
    on, off = (
        _charged(load, POLICIES[policy](), charge, fast=fast, costs=costs).requests
        for fast in (True, False)
    )
    np.testing.assert_array_equal(on["preemptions"], off["preemptions"])
    times = ["started_s", "first_token_s", "finished_s", "gpu_s", "prefill_s"]
    np.testing.assert_allclose(on[times], off[times], rtol=1e-9)


KEY_S = 0.25


class SlowKey(Scripted):
    """An order whose key takes its time; no other time passes."""

    now_s = 0.0

    def schedule(self, view: GroupView) -> Decision:
        """At once."""
        return Decision(priority_order=PriorityOrder(self._key, rule(max_num_seqs=4)))

    def _key(self, table: RequestTable) -> Floats:
        self.now_s += KEY_S
        return table.arrival_s


def test_measured_seconds_pass_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four iterations in the open; the key of the request takes its time before the first."""
    policy = SlowKey()
    for module in ("ask", "simulator.orders", "simulator.stepping"):
        monkeypatch.setattr(f"harness.engines.{module}.perf_counter", lambda: policy.now_s)
    assert _charged(workload([9], [4]), policy, "none").requests["finished_s"][0] == 1.25
    charged = _charged(workload([9], [4]), policy, "measured")
    assert charged.decision_s["schedule"] == [KEY_S, 0.0, 0.0, 0.0]
    assert charged.requests["finished_s"][0] == 1.25 + KEY_S


class Drafted(Scripted):
    """The order `chunked`, filled by the policy itself; steady while all run."""

    def schedule(self, view: GroupView) -> Decision:
        """By arrival, which is by id."""
        draft, chunks = Draft(view), rule(chunked_prefill=True, max_num_seqs=4, tokens=16)
        order = [view.requests[name] for name in sorted(view.requests)]
        fill(draft, order, PriorityOrder(None, chunks))
        return draft.decision(steady=draft.runs_all)


def test_a_timed_policy_is_asked_at_every_iteration_however_it_is_written() -> None:
    load, costs = some_load(3, count=25, services=1), LinearCosts(blocks=30)
    policies = (POLICIES["chunked"], Drafted)
    order, draft = (_charged(load, policy(), "timed", costs=costs) for policy in policies)
    assert order.timed_iterations == draft.timed_iterations > 100
    asked = [len(recorder.decision_s["schedule"]) for recorder in (order, draft)]
    assert asked == [order.timed_iterations] * 2
    untimed = [_charged(load, policy(), "none", costs=costs) for policy in policies]
    assert all(len(recorder.decision_s["schedule"]) < asked[0] for recorder in untimed)
    assert [recorder.timed_iterations for recorder in untimed] == [0, 0]
    for recorder in (draft, *untimed):
        pd.testing.assert_frame_equal(recorder.requests, order.requests, rtol=1e-9)


@pytest.mark.parametrize("charge", ["some", -0.1, float("nan"), float("inf")])
def test_what_deciding_may_cost(charge: str | float) -> None:
    sentence = r"engine.charge_decisions is .*, it must be none, timed, measured, or seconds"
    with pytest.raises(ValueError, match=sentence):
        _charged(workload([9], [4]), POLICIES["order"](), charge)
