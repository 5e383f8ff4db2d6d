"""When the clock of a run starts: before the first deployment loads, or after."""

import pytest

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.engines.recorder import GpuUse, Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.policies import PlacementPolicy, System
from harness.tests.support.policies import Moving
from harness.tests.support.serving import Everywhere, FlatCosts, cluster, rule, workload


def _run(placement: PlacementPolicy, *, loads_first: bool, services: int = 1) -> Recorder:
    recorder = Recorder()
    Simulator(
        cluster=cluster(2),
        costs=FlatCosts(load=0.5),
        max_num_seqs=8,
        max_num_batched_tokens=256,
        loads_first=loads_first,
    ).run(
        workload([9] * 3, [4] * 3, [0.0] * 3, services=services),
        System("test", Fcfs(rule=rule()), RoundRobin(), placement),
        recorder,
    )
    return recorder


@pytest.mark.parametrize(("loads_first", "first_s"), [(False, 1.0), (True, 0.5)])
def test_the_clock_starts_with_loading_or_after(loads_first: bool, first_s: float) -> None:
    recorder = _run(Everywhere(("m", (0,))), loads_first=loads_first)
    assert recorder.requests["first_token_s"].tolist() == [first_s] * 3
    gpu = recorder.gpu_frame()
    loading = gpu[gpu["use"] == GpuUse.LOADING.value]
    assert (loading["end_s"] - loading["start_s"]).sum() == (0.0 if loads_first else 0.5)


def test_what_is_loaded_later_takes_its_time() -> None:
    """Two services at a time on two GPUs; the third is loaded while the clock runs."""
    recorder = _run(Moving(), loads_first=True, services=3)
    gpu = recorder.gpu_frame()
    loading = gpu[gpu["use"] == GpuUse.LOADING.value]
    assert len(loading)
    assert (loading["start_s"] > 0).all()
    assert recorder.requests["first_token_s"].min() == 0.5
