"""Seconds to take a request in between two iterations, in which nothing is computed."""

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from harness.costs.iteration import work_seconds
from harness.costs.profiles import Received
from harness.engines.recorder import GpuUse, Recorder
from harness.interface.decisions import (
    Deployment,
    StaticBatching,
)
from harness.interface.entities import ServiceId, Work
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import ClusterView
from harness.tests.support.serving import (
    SERVICE,
    Everywhere,
    FlatCosts,
    UnevenCosts,
    a_group,
    rule,
    serve,
    workload,
)
from harness.tests.support.shared import Together, UnitCosts, of_services

EIGHTH = FlatCosts(load=0.0, received_s_per_request=0.125, received_more=0.5)
"""Half a second for any prefill, a quarter for any decode, an eighth to take a request in.

Each further one between the same two iterations takes half of that.
"""

both_ways = pytest.mark.parametrize("fast", [True, False])


@both_ways
def test_all_that_come_at_once_are_taken_in_before_their_first_iteration(fast: bool) -> None:
    """Three in 0.25 s, then their prompts: the GPU is busy from the start."""
    served = serve(workload([8] * 3, [1] * 3), costs=EIGHTH, fast_forward=fast)
    requests = served.requests
    assert requests["started_s"].tolist() == [0.0] * 3
    assert requests["first_token_s"].tolist() == [0.75] * 3
    assert requests["prefill_s"].tolist() == [0.75] * 3
    busy = served.gpu_frame().query(f"use == '{GpuUse.BUSY.value}'")
    assert busy[["start_s", "end_s"]].to_numpy().tolist() == [[0.0, 0.75]]


@both_ways
def test_a_run_with_every_slot_taken_goes_on_later(fast: bool) -> None:
    """One slot. r0 is taken in by 0.125 s, has a token at 0.625 s and then each quarter second.

    r1 comes at 1.1 s: the iteration until 1.125 s ends, the next takes 0.375 s. r0 is answered at
    2.75 s, r1 half a second later: it has been taken in.
    """
    load = workload([8, 8], [9, 1], [0.0, 1.1])
    recorder = Recorder(keep_iterations=True)
    policy = Fcfs(rule=rule(max_num_seqs=1))
    requests = serve(load, policy, costs=EIGHTH, fast_forward=fast, recorder=recorder).requests
    assert requests["first_token_s"].tolist() == [0.625, 3.25]
    assert requests["finished_s"].tolist() == [2.75, 3.25]
    assert requests["longest_gap_s"][0] == 0.375
    rows = recorder.iteration_frame()
    assert rows is not None
    assert rows["duration_s"].sum() == 3.25


@both_ways
def test_a_batch_of_whole_requests_begins_later(fast: bool) -> None:
    """r0, r1 take 0.1875 s, prompts 0.5 s, r0's decodes 0.5 s; r2, there since 0.3 s, is next."""
    batches = StaticBatching(max_num_seqs=2, max_wait_s=0.0, refills=False, pads_prompts=True)
    load = workload([8] * 3, [3, 1, 1], [0.0, 0.0, 0.3])
    requests = serve(load, Fcfs(rule=batches), costs=EIGHTH, fast_forward=fast).requests
    assert requests["finished_s"].tolist() == [1.1875, 1.1875, 1.8125]
    assert requests["prefill_s"].tolist() == [0.6875, 0.6875, 0.625]


@dataclass(frozen=True)
class ByService(UnitCosts):
    """Any iteration takes a second; a request of m0 a quarter, one of m1 twice as long.

    Of m1 each further one takes a quarter, too.
    """

    def received_s(self, service: ServiceId, tensor_parallel: int) -> Received:
        """By service."""
        return {"m0": Received(0.25, 0.25), "m1": Received(0.5, 0.25)}[service]


@both_ways
def test_a_request_holds_up_the_other_services_of_its_group(fast: bool) -> None:
    """r0 of m0 and r1 of m1 come at 0: r0 has tokens at 1.5 s and, without r2, at 2.5 s.

    r2 of m1 comes at 2 s, when r0's last iteration has begun: the prompts of m1 take 1.5 s.
    """
    load = of_services(workload([8] * 3, [2, 1, 1], [0.0, 0.0, 2.0], services=2), "011")
    policy, costs = Fcfs(rule=rule()), ByService(blocks=200)
    served = serve(load, policy, Together(), costs=costs, fast_forward=fast, gpus=1)
    assert served.requests["first_token_s"].tolist() == [1.5, 4.0, 4.0]
    assert served.requests["finished_s"].tolist() == [2.5, 4.0, 4.0]


class Elsewhere(Everywhere):
    """The service on GPU 0; from 1 s on, on GPU 1."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.REDEPLOY})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def place(self, view: ClusterView) -> Deployment:
        """By the clock."""
        has_moved = view.now_s >= 1.0
        return Deployment((a_group("m", int(has_moved)),), wake_s=None if has_moved else 1.0)


@both_ways
def test_a_request_that_moves_is_taken_in_again(fast: bool) -> None:
    """Tokens at 0.625, 0.875 and 1.125 s; taken in and computed again by 1.75 s, then one more."""
    load = workload([8], [5])
    requests = serve(load, placement=Elsewhere(), costs=EIGHTH, fast_forward=fast).requests
    assert requests["finished_s"].tolist() == [2.0]
    assert requests["preemptions"].tolist() == [1]


def test_a_request_that_is_preempted_is_not_taken_in_again() -> None:
    """What iterations take beyond their costs is that of each request, once."""
    rng = np.random.default_rng(3)
    prompts, outputs = rng.integers(1, 90, 30).tolist(), rng.integers(1, 60, 30).tolist()
    load = workload(prompts, outputs, np.cumsum(rng.exponential(0.05, 30)).tolist())
    costs = UnevenCosts(blocks=14, load=0.0, received_s_per_request=0.0031, received_more=1.0)
    recorder = serve(load, costs=costs, fast_forward=False, recorder=Recorder(keep_iterations=True))
    rows = recorder.iteration_frame()
    assert rows is not None
    assert recorder.requests["preemptions"].sum() > 0
    table = costs.table(SERVICE, 1)
    names = [field.name for field in fields(Work)]
    alone_s = [work_seconds(table, Work(*map(int, row))) for row in rows[names].to_numpy()]
    beyond_s = rows["duration_s"].sum() - sum(alone_s)
    assert beyond_s == pytest.approx(len(load) * costs.received_s(SERVICE, 1).first_s, rel=1e-9)
