import pytest

from baselines.srtf import Srtf
from harness.tests.support.predictors import Truth
from harness.tests.support.serving import FlatCosts, serve, workload


def test_a_short_newcomer_takes_a_slot_by_hand() -> None:
    """One slot, half a second a prefill, a quarter a decode.

    Request 0 (9 tokens) has prefilled by 0.5 and decoded at 0.75 when request 1 (2 tokens) comes at
    0.6: it runs from 0.75 to 1.5. Request 0 then recomputes and needs seven more tokens.
    """
    load = workload([10, 10], [9, 2], [0.0, 0.6])
    costs = FlatCosts(load=0.0)
    frame = serve(load, Srtf(max_num_seqs=1), costs=costs, predictor=Truth([9, 2])).requests
    assert frame["preemptions"].tolist() == [1, 0]
    assert frame["finished_s"].tolist() == [1.5 + 0.5 + 6 * 0.25, 1.5]
    assert frame["preempted_s"].tolist() == [0.75, 0.0]


def test_no_request_at_once_is_refused() -> None:
    with pytest.raises(ValueError, match="max_num_seqs is 0"):
        Srtf(max_num_seqs=0)
