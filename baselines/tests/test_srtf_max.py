import pytest

from baselines.srtf_max import SrtfMax
from harness.tests.support.predictors import Truth
from harness.tests.support.serving import FlatCosts, rule, serve, workload


def srtf_max(displaces: str = "recompute") -> SrtfMax:
    return SrtfMax(rule=rule(chunked_prefill=True), displaces=displaces)


def test_a_short_newcomer_takes_the_place_by_hand() -> None:
    """KV holds one context of 32; a prefill takes 0.5 s, a decode 0.25 s.

    Request 0 (9 tokens) has prefilled by 0.5 and decoded at 0.75 when request 1 (2 tokens) of 0.6
    takes its place until 1.5. Request 0 is computed again in 0.5 and needs six more tokens.
    """
    costs = FlatCosts(blocks=2, block=16, load=0.0)
    load = workload([10, 10], [9, 2], [0.0, 0.6], max_context_tokens=32)
    frame = serve(load, srtf_max(), costs=costs, predictor=Truth([9, 2])).requests
    assert frame["preemptions"].tolist() == [1, 0]
    assert frame["finished_s"].tolist() == [1.5 + 0.5 + 6 * 0.25, 1.5]


def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match="'wait' is not a valid Displaced"):
        srtf_max("wait")
