"""MuxServe's orders by hand: shares of the SMs, over-subscription, quotas of KV."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pytest

from baselines.muxserve import MuxServe, adapted
from baselines.round_robin import RoundRobin
from harness.costs.iteration import IterationTable
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.entities import ServiceId, Work
from harness.interface.policies import System
from harness.tests.support.serving import cluster, rule, workload
from harness.tests.support.shared import Together, UnitCosts, of_services
from harness.workloads.workload import Workload

A, B, C = (ServiceId(name) for name in "abc")


@dataclass(frozen=True)
class ShareCosts(UnitCosts):
    """A second for any iteration on all SMs, and two on half of them."""

    def iteration_s(
        self, service: ServiceId, tensor_parallel: int, work: Work, *, gpu_share: float = 1.0
    ) -> float:
        """Seconds of one iteration."""
        return super().iteration_s(service, tensor_parallel, work) / gpu_share

    def kv_bytes(self, services: Collection[ServiceId], tensor_parallel: int) -> int:
        """Of 100 bytes a token, so that quotas of both services hold their requests."""
        return self.blocks * self.block * 1000


def served(
    load: Workload,
    prefill_share: float,
    *,
    most: float = 1.0,
    slows: bool | None = None,
    fast: bool = True,
    costs: UnitCosts | None = None,
) -> Recorder:
    """Two services on one GPU; each decodes on half of the SMs, as nothing is known of them."""
    costs = costs or ShareCosts()
    engine = Simulator(
        cluster=cluster(1),
        costs=costs,
        max_num_seqs=512,
        max_num_batched_tokens=8192,
        fast_forward=fast,
        most_gpu_share=most,
        oversubscription_slows=slows,
    )
    policy = MuxServe(rule=rule(), prefill_share=prefill_share, adapts_after_s=100.0, costs=costs)
    engine.run(load, System("test", policy, RoundRobin(), Together()), recorder := Recorder())
    return recorder


def two(second_s: float) -> Workload:
    """r0 (m0, 3 tokens) comes at 0, r1 (m1, 2 tokens) at `second_s`."""
    return of_services(workload([9, 9], [3, 2], [0.0, second_s], services=2), "01")


@pytest.mark.parametrize("fast", [True, False])
def test_a_prefill_beside_a_decode_by_hand(fast: bool) -> None:
    """Everything on half of the SMs, 2 s each.

    r0's prompt 0-2, r1's 1-3; r0's decodes 2-4 and 4-6, r1's 3-5. The GPU computes for 6 s.
    """
    found = served(two(1.0), 0.5, fast=fast)
    assert found.requests["first_token_s"].tolist() == [2.0, 3.0]
    assert found.requests["finished_s"].tolist() == [6.0, 5.0]
    busy = found.gpu_frame()
    busy = busy[busy["use"] == "busy"]
    assert (busy["end_s"] - busy["start_s"]).sum() == 6.0


@pytest.mark.parametrize("fast", [True, False])
def test_no_decode_starts_while_a_prefill_waits_by_hand(fast: bool) -> None:
    """Prompts on 0.8 of the SMs take 1.25 s: r0's 0-1.25, r1's, which came at 1, 1.25-2.5.

    Both decode side by side 2.5-4.5, r0 alone, on its half, until 6.5.
    """
    found = served(two(1.0), 0.8, fast=fast).requests
    assert found["first_token_s"].tolist() == [1.25, 2.5]
    assert found["finished_s"].tolist() == [6.5, 4.5]


@pytest.mark.parametrize(
    ("slows", "first_s", "ends_s"), [(True, 3.625, [5.85, 5.625]), (False, 3.25, [5.25, 5.25])]
)
def test_shares_above_one_by_hand(slows: bool, first_s: float, ends_s: list[float]) -> None:
    """Shares may add up to 1.3. r0 decodes from 1.25 to 3.25 when r1 comes at 2.

    r1's prompt on 0.8 starts at once and takes 1.25 s, or 1.3 times as long. So does r0's second
    decode, which starts at 3.25 beside it if that has not ended; r1's decode is beside r0's alone.
    """
    found = served(two(2.0), 0.8, most=1.3, slows=slows).requests
    assert found["first_token_s"].tolist() == [1.25, pytest.approx(first_s)]
    assert found["finished_s"].tolist() == pytest.approx(ends_s)


def test_quotas_adapt_by_hand() -> None:
    """`a` holds 95 of 100 and has prompts waiting; `b` has 95 - 45 free, `c` 95 - 85.

    It takes a tenth of what it holds: 9.5 by 50 to 10. Without prompts waiting nothing moves.
    """
    quotas, held = {A: 100.0, B: 100.0, C: 100.0}, {A: 95, B: 45, C: 85}
    found = adapted(quotas, held, [A])
    assert found[A] == pytest.approx(109.5)
    assert found[B] == pytest.approx(100 - 9.5 * 50 / 60)
    assert found[C] == pytest.approx(100 - 9.5 * 10 / 60)
    assert adapted(quotas, held, [B]) == quotas


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("most", [1.0, 1.5])
def test_both_paths_agree_and_end_where_kv_is_short(seed: int, most: float) -> None:
    rng = np.random.default_rng(seed)
    prompts, answers = rng.integers(1, 90, 24), rng.integers(1, 70, 24)
    arrival_s = np.sort(rng.uniform(0, 1.0, 24)).tolist()
    load = workload(prompts.tolist(), answers.tolist(), arrival_s, services=2)
    ends = [
        served(load, 0.6, most=most, slows=True, fast=fast, costs=Tight()).requests["finished_s"]
        for fast in (True, False)
    ]
    assert ends[0].notna().all()
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9)


@dataclass(frozen=True)
class Tight(UnitCosts):
    """KV for little more than one request; no two batches end at the same time."""

    blocks: int = 33

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """An iteration of m1 takes longer than one of m0."""
        seconds = 0.01 if service == "m0" else 0.0137
        return UnitCosts(each_s=seconds).table(service, tensor_parallel)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"most_gpu_share": 1.2}, r"most_gpu_share is 1\.2, above 1, and .*oversubscription_slows"),
        ({"most_gpu_share": 0.5}, r"most_gpu_share is 0\.5, it must be between 1 and 2"),
    ],
)
def test_shares_above_one_need_a_choice(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Simulator(
            cluster=cluster(1),
            costs=UnitCosts(),
            max_num_seqs=8,
            max_num_batched_tokens=64,
            **settings,  # type: ignore[arg-type]
        )
