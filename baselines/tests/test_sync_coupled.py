from dataclasses import replace

import pytest

from baselines.sync_coupled import SyncCoupled
from harness.tests.support.predictors import Truth
from harness.tests.support.serving import FlatCosts, rule, serve, workload


def sync(
    allocates: str, padding: float = 0.0, tokens: int = 100, bucket_tokens: int = 1
) -> SyncCoupled:
    return SyncCoupled(
        rule=rule(chunked_prefill=True, tokens=tokens),
        allocates=allocates,
        padding=padding,
        bucket_tokens=bucket_tokens,
    )


def test_groups_take_turns_by_hand() -> None:
    """KV is 100; prompt and answer of requests 0 to 3 take 30, 40, 40 and 30, answers 10 and 20.

    Requests 0 and 2 of 10 tokens are a group and leave 30, too few for request 1. Request 3 of 1.0
    would fit, but request 1 waits: both start when the group has ended, at 0.5 + 9 x 0.25 = 2.75.
    """
    costs, answers = FlatCosts(blocks=100, block=1, load=0.0), [10, 20, 10, 10]
    load = workload([20, 20, 30, 20], answers, [0.0, 0.0, 0.0, 1.0])
    recorder = serve(load, sync("exact"), costs=costs, predictor=Truth(answers))
    ends_s = recorder.requests["finished_s"].tolist()
    assert ends_s == [2.75, 2.75 + 0.5 + 19 * 0.25, 2.75, 2.75 + 0.5 + 9 * 0.25]
    assert recorder.requests["preemptions"].sum() == 0
    assert recorder.counts["groups"] == 3
    assert recorder.counts["requests_in_groups_of_2"] == 2


def test_blocks_take_in_more_and_preempt_by_hand() -> None:
    """KV is 80: prompts take 70, three decodes 9, so that the fourth has no room at 1.25.

    Request 1, placed last, gives way with 4 tokens. It waits for the group of requests 0 and 2 to
    end at 2.75, has its fifth token at 3.25 and needs 15 more.
    """
    costs, answers = FlatCosts(blocks=80, block=1, load=0.0), [10, 20, 10]
    load = workload([20, 20, 30], answers)
    recorder = serve(load, sync("blocks"), costs=costs, predictor=Truth(answers))
    assert recorder.requests["finished_s"].tolist() == [2.75, 3.25 + 15 * 0.25, 2.75]
    assert recorder.requests["preemptions"].tolist() == [0, 1, 0]
    assert recorder.counts["preempted"] == 1


def test_prompts_beyond_the_forward_size_follow_in_their_group() -> None:
    """Three prompts of 20 at 40 an iteration: the third one is an iteration behind.

    It is computed beside two decodes, in 0.5 + 0.25 s.
    """
    costs, answers = FlatCosts(blocks=200, block=1, load=0.0), [4, 4, 4]
    load = workload([20, 20, 20], answers)
    recorder = serve(load, sync("exact", tokens=40), costs=costs, predictor=Truth(answers))
    assert recorder.requests["finished_s"].tolist() == [1.75, 1.75, 2.0]
    assert recorder.counts["groups"] == 1


def test_answers_beyond_their_predictions_are_given_whole() -> None:
    costs = FlatCosts(blocks=60, block=1, load=0.0)
    load = workload([20, 20], [12, 12], max_context_tokens=100)
    frame = serve(load, sync("exact"), costs=costs, predictor=Truth([2, 2])).requests
    assert frame["finished_s"].notna().all()
    assert frame["preemptions"].sum() == 1


def test_an_allocation_beyond_the_kv_is_refused() -> None:
    costs = FlatCosts(blocks=52, block=1, load=0.0)
    load = workload([20], [30])
    with pytest.raises(ValueError, match="r0 needs 55 blocks of KV for 55 tokens, 52 are there"):
        serve(load, sync("exact", padding=1.0), costs=costs, predictor=Truth([40]))


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"policy\.allocates is pages, it must be exact or blocks"):
        sync("pages")
    with pytest.raises(ValueError, match=r"policy.padding is -2\.0, it must be at least 0"):
        sync("exact", padding=-2.0)
    whole = replace(rule(), chunked_prefill=False)
    with pytest.raises(ValueError, match=r"policy\.rule must have chunked_prefill"):
        SyncCoupled(rule=whole, allocates="exact", padding=0.0, bucket_tokens=1)
