"""Decodes at their last schedulable time, prompts before and after it."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.slai import Slai
from harness.tests.support.serving import FlatCosts, serve, workload


def slai(**settings: object) -> Slai:
    """Iterations of ten tokens."""
    given: dict[str, object] = {
        "max_num_seqs": 8,
        "max_num_batched_tokens": 10,
        "max_decodes": 8,
        "tbt_s": 1.0,
        "relaxed_tbt_s": 1.0,
        "offset": 0.0,
        "offset_when_full": 0.0,
        "full_from": 1.0,
        "shortest_first": True,
        "strict_first": False,
    }
    return Slai(**given | settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "finished_s"),
    [
        # It may wait until 1.5, when both prompts are computed; three decodes follow.
        ({"tbt_s": 1.0}, [2.25, 1.0, 1.5]),
        # It may wait until 0.9, and decodes at 1.0 beside 9 tokens of the last prompt. After that
        # it may wait until 2.15, but the last token of the prompt leaves room for it.
        ({"tbt_s": 0.4}, [2.75, 1.0, 2.5]),
        # Two mean iterations, of 0.5 s, 0.625 s and 0.667 s, leave it no time to wait.
        ({"offset": 2.0}, [2.75, 2.0, 2.75]),
        ({"offset_when_full": 2.0, "full_from": 0.0}, [2.75, 2.0, 2.75]),
        # One decode in an iteration makes no difference for one request.
        ({"max_decodes": 1}, [2.25, 1.0, 1.5]),
    ],
)
def test_a_decode_waits_for_its_last_time_by_hand(
    settings: dict[str, object], finished_s: list[float]
) -> None:
    """Request 0 has a token at 0.5, when two more with prompts of ten tokens are there.

    Half a second a prefill, a quarter a decode, both in an iteration that has both.
    """
    load = workload([10] * 3, [4, 1, 1], [0.0, 0.1, 0.1])
    served = serve(load, slai(**settings), costs=FlatCosts(load=0.0))
    assert served.requests["finished_s"].tolist() == pytest.approx(finished_s)


@pytest.mark.parametrize(
    ("settings", "finished_s"),
    [
        ({}, [0.5, 2.0, 1.0, 1.5]),
        ({"shortest_first": False}, [0.5, 1.0, 1.5, 2.0]),
        ({"strict_first": True}, [0.5, 2.0, 1.5, 1.0]),
    ],
)
def test_waiting_prompts_in_order_by_hand(
    settings: dict[str, object], finished_s: list[float]
) -> None:
    """Prompts of 20, 10 and 12 tokens come while the first is computed; the third is strict."""
    load = replace(
        workload([20, 20, 10, 12], [1] * 4, [0.0, 0.1, 0.1, 0.1]), priority=np.array([0, 1, 1, 0])
    )
    policy = slai(max_num_batched_tokens=20, max_num_seqs=1, **settings)
    served = serve(load, policy, costs=FlatCosts(load=0.0))
    assert served.requests["finished_s"].tolist() == finished_s


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"max_num_batched_tokens": 0},
            "policy.max_num_batched_tokens is 0, it must be at least 1",
        ),
        ({"tbt_s": -1.0}, "policy.tbt_s is -1.0, it must be at least 0"),
        ({"full_from": 2.0}, "policy.full_from is 2.0, it must be from 0 to 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        slai(**settings)
