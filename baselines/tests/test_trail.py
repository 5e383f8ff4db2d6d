"""Shortest predicted remainder first, with preemption in the first part of an answer only."""

import pytest

from baselines.trail import Trail
from harness.tests.support.predictors import Truth
from harness.tests.support.serving import FlatCosts, rule, serve, workload

LENGTHS = [10, 2]


@pytest.mark.parametrize(
    ("c", "arrival_s", "preemptions", "finished_s"),
    [
        # Request 0 has 2 of 10 tokens at 0.75: request 1 runs to 1.5, and 0 is then recomputed.
        (0.5, 0.6, [1, 0], [1.5 + 0.5 + 7 * 0.25, 1.5]),
        # It has 5 of 10 tokens at 1.5, so that request 1 waits for its end.
        (0.5, 1.4, [0, 0], [2.75, 3.5]),
        # With 0.6 it may still be preempted then.
        (0.6, 1.4, [1, 0], [2.25 + 0.5 + 4 * 0.25, 2.25]),
        # With 0 none is preempted for another.
        (0.0, 0.6, [0, 0], [2.75, 3.5]),
    ],
)
def test_a_request_is_preempted_early_only_by_hand(
    c: float, arrival_s: float, preemptions: list[int], finished_s: list[float]
) -> None:
    """One slot, half a second a prefill, a quarter a decode."""
    load = workload([10, 10], LENGTHS, [0.0, arrival_s])
    policy = Trail(rule=rule(max_num_seqs=1), c=c)
    frame = serve(load, policy, costs=FlatCosts(load=0.0), predictor=Truth(LENGTHS)).requests
    assert frame["preemptions"].tolist() == preemptions
    assert frame["finished_s"].tolist() == pytest.approx(finished_s)


def test_a_negative_share_is_refused() -> None:
    with pytest.raises(ValueError, match=r"policy\.c is -1, it must be at least 0"):
        Trail(rule=rule(), c=-1)
