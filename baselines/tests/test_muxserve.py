"""MuxServe's orders by hand: shares of the SMs, over-subscription, quotas of KV."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from baselines.muxserve import MuxServe, Use, adapted, caps
from baselines.round_robin import RoundRobin
from harness.costs.iteration import IterationTable
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.entities import ServiceId, Work
from harness.interface.policies import PlacementPolicy, System
from harness.planning.forecast import Window
from harness.planning.sm_shares import ServiceDemand
from harness.runs.building import window_of
from harness.tests.support.serving import Everywhere, cluster, rule, workload
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
    history: Window | None = None,
    adapts_after_s: float = 100.0,
    placement: PlacementPolicy | None = None,
) -> Recorder:
    """Two services on one GPU; each decodes on half of the SMs where nothing is known of them."""
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
    policy = MuxServe(
        rule=rule(),
        prefill_share=prefill_share,
        adapts_after_s=adapts_after_s,
        costs=costs,
        history=history,
    )
    system = System("test", policy, RoundRobin(), placement or Together())
    engine.run(load, system, recorder := Recorder())
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


def test_a_cap_by_hand() -> None:
    """m0 has a quarter of 1,056,000 bytes: 8 blocks of 32 tokens, two requests of 64 + 64 tokens.

    So much is in the history, a request a second, for which 0.3 of the SMs do. The third request
    begins when the first two end, after a prefill of 2 s and three decodes of 1 / 0.3 s.
    """
    history = window_of(workload([64, 64], [64, 64], [0.0, 1.0], services=2))
    load = of_services(workload([9, 9, 9], [4, 4, 4], services=2), "000")
    found = served(load, 0.5, history=history, costs=ShareCosts(blocks=66)).requests
    assert found["first_token_s"].tolist() == pytest.approx([2.0, 2.0, 14.0])


def test_a_service_alone_keeps_its_shares_by_hand() -> None:
    """A prompt on 0.8 of the SMs takes 1.25 s, two decodes on the least share, 0.3, 1 / 0.3 s each.

    Where SMs may be given twice a prompt begins beside decodes of its own service: the second one,
    which comes at 2 s, ends at 3.25 s.
    """
    history = window_of(workload([64, 64], [8, 8], [0.0, 99.0], services=2))
    load = of_services(workload([9, 9], [3, 1], [0.0, 2.0], services=2), "00")
    alone = partial(served, load, 0.8, history=history, placement=Everywhere(("m0", (0,))))
    found = alone().requests
    first_s = 1.25 + 1 / 0.3
    assert found["first_token_s"].tolist() == pytest.approx([1.25, first_s + 1.25])
    assert found["finished_s"][0] == pytest.approx(first_s + 1.25 + 1 / 0.3)
    found = alone(most=1.2, slows=False).requests
    assert found["first_token_s"].tolist() == pytest.approx([1.25, 3.25])
    assert found["finished_s"][0] == pytest.approx(first_s + 1 / 0.3)


def test_caps_by_hand() -> None:
    """Requests of 161 + 337 tokens take 15 blocks. `a` asks for 3 a second, `b` for one.

    Of 1,200,000 parts `a` gets 3 x 1,024 of 4,672: 789,041, in which are 770 of its blocks of 1,024
    and 51 requests; `b` 410,958, 256 of its blocks of 1,600, and 17 requests.
    """
    known = {A: ServiceDemand(3.0, 161, 337), B: ServiceDemand(1.0, 161, 337)}
    assert caps(1_200_000, {A: 1024, B: 1600}, known) == {A: 51, B: 17}
    assert caps(1600, {A: 1024, B: 1600}, known) == {A: 1, B: 1}


def test_caps_adapt_by_hand() -> None:
    """`a` decodes 19 of 20 and has 30 requests; `b` has int(9.5 - 2) = 7 of 3 free, `c` 4 of 2.

    It takes a tenth of its 19 decodes, one request of 4: int(4 x 21 / 29) = 2 of `b`, which had 30,
    and int(4 x 8 / 29) = 1 of `c`. First `b` has 9 requests and leaves 1, then `c` 5 and 1 more.
    `a` has 83, of which 3 are no request of 4: with the 2 left over they are, and 1 is left. If `a`
    has 20 requests nothing moves; of 9 in no cap, `b` and `c` get a request each, then `a`.
    """
    of_a, of_b = Use(20, 19.0, 30, 10, 4), Use(10, 2.0, 2, 0, 3)
    of_c = Use(6, 1.4, 1, 0, 2)
    assert adapted({A: of_a, B: of_b, C: of_c}, 0) == ({A: 21, B: 9, C: 5}, 1)
    few = replace(of_a, present=20)
    assert adapted({A: few, B: of_b, C: of_c}, 0) == ({A: 20, B: 10, C: 6}, 0)
    assert adapted({A: few, B: of_b, C: of_c}, 9) == ({A: 21, B: 11, C: 7}, 0)
    assert adapted({A: of_a}, 0) == ({A: 20}, 0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("most", [1.0, 1.5])
def test_both_paths_agree_and_end_where_kv_is_short(seed: int, most: float) -> None:
    rng = np.random.default_rng(seed)
    prompts, answers = rng.integers(1, 90, 24), rng.integers(1, 70, 24)
    arrival_s = np.sort(rng.uniform(0, 1.0, 24)).tolist()
    load = workload(prompts.tolist(), answers.tolist(), arrival_s, services=2)
    serves = partial(served, load, 0.6, most=most, slows=True, costs=Tight())
    found = [
        serves(history=window_of(load), adapts_after_s=0.3, fast=fast).requests
        for fast in (True, False)
    ]
    assert found[0]["finished_s"].notna().all()
    assert found[0]["preemptions"].any()
    np.testing.assert_allclose(found[0]["finished_s"], found[1]["finished_s"], rtol=1e-9)


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
