"""Requests are dealt in turn, and the turn is remembered."""

from collections import Counter

from baselines.fcfs import Fcfs
from harness.tests.support.serving import (
    Everywhere,
    FlatCosts,
    LinearCosts,
    rule,
    serve,
    workload,
)


def test_each_service_has_its_own_turn_among_its_own_groups() -> None:
    """m0 has three groups, m1 one; six requests of each in turn."""
    places = Everywhere(("m0", (0,)), ("m1", (1,)), ("m0", (2,)), ("m0", (3,)))
    for fast in (True, False):
        recorder = serve(
            workload([9] * 12, [1] * 12, [float(i) for i in range(12)], services=2),
            Fcfs(rule=rule(max_num_seqs=1)),
            places,
            costs=LinearCosts(load=0.0),
            gpus=4,
            fast_forward=fast,
        )
        busy = recorder.gpu_frame().query("use == 'busy'")
        assert Counter(busy["gpu"]) == {0: 2, 1: 6, 2: 2, 3: 2}


def test_in_a_run_every_second_request_goes_to_the_second_group() -> None:
    """Two groups, one request at a time each, 0.5 + 0.25 s: r0 and r1 end together, then r2."""
    frame = serve(
        workload([4, 4, 4], [2, 2, 2]),
        Fcfs(rule=rule(max_num_seqs=1)),
        Everywhere(("m", (0,)), ("m", (1,))),
        costs=FlatCosts(),
    ).requests
    assert frame["finished_s"].tolist() == [1.75, 1.75, 2.5]
