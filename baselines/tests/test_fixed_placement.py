"""Every service gets its groups once, on consecutive GPUs."""

import pytest

from baselines.fcfs import Fcfs
from baselines.fixed_placement import FixedPlacement
from harness.tests.support.serving import LinearCosts, rule, serve, workload


def _placed(services: int, gpus: int, *, dp: int, tp: int) -> dict[str, list[int]]:
    """GPUs on which each service loaded, in a run with so many services."""
    costs = LinearCosts()
    placement = FixedPlacement(data_parallel=dp, tensor_parallel=tp, costs=costs)
    load = workload([5] * 12, [4] * 12, services=services)
    recorder = serve(load, Fcfs(rule=rule()), placement, costs=costs, gpus=gpus)
    loading = recorder.gpu_frame().query("use == 'loading'")
    loading = loading.assign(service=loading["group"].str.split("@").str[0])
    return {str(s): sorted(rows["gpu"]) for s, rows in loading.groupby("service")}


def test_two_copies_of_each_of_two_services() -> None:
    assert _placed(2, 4, dp=2, tp=1) == {"m0": [0, 1], "m1": [2, 3]}


def test_tensor_parallel_groups_stay_on_their_nvlink_pair() -> None:
    assert _placed(2, 4, dp=1, tp=2) == {"m0": [0, 1], "m1": [2, 3]}
    assert _placed(1, 8, dp=2, tp=4) == {"m": [0, 1, 2, 3, 4, 5, 6, 7]}


def test_too_few_gpus() -> None:
    with pytest.raises(ValueError, match="6 GPUs wanted, the cluster has 4"):
        _placed(3, 4, dp=2, tp=1)
