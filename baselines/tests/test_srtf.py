from baselines.srtf import Srtf
from harness.tests.support.predictors import Truth
from harness.tests.support.serving import FlatCosts, rule, serve, workload


def served(load: tuple[list[int], list[int], list[float]], **about: int) -> list[list[float]]:
    """Preemptions, ends and seconds preempted; half a second a prefill, a quarter a decode."""
    slots, blocks = about.get("slots", 8), about.get("blocks", 64)
    policy = Srtf(rule=rule(chunked_prefill=True, max_num_seqs=slots))
    costs = FlatCosts(blocks=blocks, load=0.0)
    frame = serve(workload(*load), policy, costs=costs, predictor=Truth(load[1])).requests
    return [frame[it].tolist() for it in ("preemptions", "finished_s", "preempted_s")]


def test_a_short_newcomer_takes_a_slot_by_hand() -> None:
    """One slot. Request 0 (9 tokens) has prefilled by 0.5 and decoded at 0.75.

    Request 1 (2 tokens) has come at 0.6: it runs from 0.75 to 1.5. Request 0 then recomputes and
    needs seven more tokens.
    """
    preemptions, finished_s, preempted_s = served(([10, 10], [9, 2], [0.0, 0.6]), slots=1)
    assert preemptions == [1, 0]
    assert finished_s == [1.5 + 0.5 + 6 * 0.25, 1.5]
    assert preempted_s == [0.75, 0.0]


def test_who_has_no_kv_for_its_whole_context_holds_back_those_behind_by_hand() -> None:
    """KV for four blocks of 16 tokens; request 0 (9 tokens) holds one until 0.75.

    Then requests 1 (2 tokens, three blocks) and 2 (5 tokens, two blocks), both of 0.6, come before
    it. Request 1 runs until 1.5, request 2 does not fit beside it, and request 0 behind that loses
    its slot. From 1.5 on both are computed in half a second, which gives each a token: request 2
    needs four decodes, request 0, of its third token then, six.
    """
    load = ([10, 40, 20], [9, 2, 5], [0.0, 0.6, 0.6])
    preemptions, finished_s, preempted_s = served(load, blocks=4)
    assert preemptions == [1, 0, 0]
    assert finished_s == [2.0 + 6 * 0.25, 1.5, 2.0 + 4 * 0.25]
    assert preempted_s == [0.75, 0.0, 0.0]
