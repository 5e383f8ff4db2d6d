import pytest

from baselines.multires import MultiRes
from harness.tests.support.predictors import Truth
from harness.tests.support.serving import FlatCosts, serve, workload


def multires(padding: float = 0.0) -> MultiRes:
    return MultiRes(max_num_batched_tokens=100, max_num_seqs=8, padding=padding)


def test_the_nearest_demand_joins_by_hand() -> None:
    """Forward size and KV are 100; demands (60, 70), (40, 90) and (25, 30) are .50, .61, 1.03 off.

    Request 0 joins first. Of the 40 and 30 that are left request 2 takes 25 and 30: with a decode
    of 0.25 s after 0.5 s it ends at 1.5, request 0 at 2.75. Request 1 then has 50 tokens to itself.
    """
    costs = FlatCosts(blocks=100, block=1, load=0.0)
    load = workload([60, 40, 25], [10, 50, 5], max_context_tokens=200)
    frame = serve(load, multires(), costs=costs, predictor=Truth([10, 50, 5])).requests
    assert frame["finished_s"].tolist() == [2.75, 2.75 + 0.5 + 49 * 0.25, 1.5]
    assert frame["preemptions"].sum() == 0


def test_answers_beyond_their_predictions_are_given_whole() -> None:
    costs = FlatCosts(blocks=60, block=1, load=0.0)
    load = workload([20, 20], [12, 12], max_context_tokens=100)
    frame = serve(load, multires(), costs=costs, predictor=Truth([2, 2])).requests
    assert frame["finished_s"].notna().all()
    assert frame["preemptions"].sum() == 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ((0, 1, 0.0), "max_num_batched_tokens is 0, it must be at least 1"),
        ((1, 0, 0.0), "max_num_seqs is 0, it must be at least 1"),
        ((1, 1, -2.0), r"padding is -2\.0, it must be at least 0"),
    ],
)
def test_numbers_that_are_too_small_are_refused(
    settings: tuple[int, int, float], sentence: str
) -> None:
    max_num_batched_tokens, max_num_seqs, padding = settings
    with pytest.raises(ValueError, match=sentence):
        MultiRes(
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            padding=padding,
        )


def test_an_allocation_beyond_all_kv_is_refused() -> None:
    costs = FlatCosts(blocks=50, block=1, load=0.0)
    sentence = r"r0 needs 94 blocks of KV for its prompt and answer, 94 tokens, and 50 are there"
    with pytest.raises(ValueError, match=sentence):
        serve(workload([60], [34]), multires(), costs=costs, predictor=Truth([34]))
