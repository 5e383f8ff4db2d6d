import pytest

from baselines.orca import Orca
from harness.tests.support.serving import FlatCosts, rule, serve, workload


def orca(longest: str = "context") -> Orca:
    return Orca(rule=rule(chunked_prefill=True), longest=longest)


def test_kv_of_the_longest_context_admits_two_of_three_by_hand() -> None:
    """Four blocks of 16 tokens hold two contexts of 32; a prefill takes 0.5 s, a decode 0.25 s.

    Requests 0 and 1 prefill by 0.5 and decode three times; request 2 then has 0.5 + 3 x 0.25.
    """
    costs = FlatCosts(blocks=4, block=16, load=0.0)
    load = workload([8] * 3, [4] * 3, [0.0] * 3, 1, max_context_tokens=32)
    frame = serve(load, orca(), costs=costs).requests
    assert frame["finished_s"].tolist() == [1.25, 1.25, 2.5]
    assert frame["preemptions"].sum() == 0


def test_kv_of_the_limit_admits_all_by_hand() -> None:
    """A prompt of 8 tokens and a limit of 9 take two blocks; contexts of 64 would take four."""
    costs = FlatCosts(blocks=6, block=16, load=0.0)
    load = workload([8] * 3, [4] * 3, [0.0] * 3, 1, max_context_tokens=64)
    assert serve(load, orca("limit"), costs=costs).requests["finished_s"].tolist() == [1.25] * 3


def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match="longest is prompt, it must be context or limit"):
        orca("prompt")
