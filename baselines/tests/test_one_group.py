"""All services are in one group."""

from baselines.fcfs import Fcfs
from baselines.one_group import OneGroup
from harness.tests.support.serving import LinearCosts, rule, serve, workload


def test_both_services_load_on_the_same_gpus_once() -> None:
    costs = LinearCosts()
    placement = OneGroup(tensor_parallel=2, costs=costs)
    load = workload([5] * 4, [4, 40, 4, 40], services=2)
    recorder = serve(load, Fcfs(rule=rule()), placement, costs=costs, gpus=4)
    loading = recorder.gpu_frame().query("use == 'loading'")
    assert loading["gpu"].tolist() == [0, 1]
    assert loading["group"].nunique() == 1
    assert recorder.requests["finished_s"].notna().all()
