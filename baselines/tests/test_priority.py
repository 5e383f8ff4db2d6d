from dataclasses import replace

import numpy as np
import pytest

from baselines.priority import Priority
from harness.tests.support.serving import FlatCosts, rule, serve, workload


def test_the_most_urgent_is_admitted_first_by_hand() -> None:
    """One slot. The third request is the most urgent that waits, and takes no slot from the first.

    A prompt takes 0.5 s, a further token 0.25 s: 1 s a request.
    """
    load = workload([9] * 3, [3] * 3, [0.0, 0.1, 0.2])
    load = replace(load, priority=np.array([5, 5, 0]))
    frame = serve(load, Priority(rule=rule(max_num_seqs=1)), costs=FlatCosts(load=0.0)).requests
    assert frame["finished_s"].tolist() == pytest.approx([1.0, 3.0, 2.0])
    assert frame["preemptions"].sum() == 0


@pytest.mark.parametrize("fast", [True, False])
def test_the_least_urgent_is_preempted_by_hand(fast: bool) -> None:
    """Three blocks of 16 tokens; the first to need a fourth takes that of the less urgent one."""
    load = workload([15, 15], [30, 30])
    for priority, preempted in (([1, 0], [1, 0]), ([0, 1], [0, 1]), ([0, 0], [0, 1])):
        frame = serve(
            replace(load, priority=np.array(priority)),
            Priority(rule=rule()),
            costs=FlatCosts(load=0.0, blocks=3),
            fast_forward=fast,
        ).requests
        assert frame["preemptions"].tolist() == preempted
