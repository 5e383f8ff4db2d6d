"""Densities and groups by hand: half a second for a prompt, a quarter for a decode."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.jitserve import JitServe, window
from harness.tests.support.batches import watched
from harness.tests.support.predictors import Truth
from harness.tests.support.serving import FlatCosts, rule, serve, workload
from harness.workloads.workload import Workload

COSTS = FlatCosts(load=0.0, blocks=400)


def jitserve(slots: int = 1, **settings: object) -> JitServe:
    """One slot; what is late is worth less in proportion."""
    given: dict[str, object] = {
        "rule": rule(chunked_prefill=True, max_num_seqs=slots, tokens=2000),
        "ttft_s": 1.0,
        "deadline_s": 10.0,
        "penalty": 1.0,
        "every": 50,
        "top": 1,
        "swaps": 3,
    }
    return JitServe(**given | settings)  # type: ignore[arg-type]


def load_of(prompts: list[int], outputs: list[int], come_s: list[float]) -> Workload:
    """Answers may be long."""
    load = workload(prompts, outputs, come_s)
    return replace(load, max_output_tokens=np.full(len(prompts), 999))


def firsts_s(load: Workload, predicted: list[int], policy: JitServe) -> list[float]:
    """When each request has its first token."""
    served = serve(load, policy, costs=COSTS, predictor=Truth(predicted))
    found: list[float] = served.requests["first_token_s"].tolist()
    return found


@pytest.mark.parametrize(
    ("prompt", "finished_s"),
    [
        # 5000 / 10 s and 500 / 1 s are equal: the one of which less remains.
        (1000, [1.0, 0.5]),
        # 5010 / 10 s.
        (1010, [0.5, 1.0]),
    ],
)
def test_the_densest_is_admitted_first_by_hand(prompt: int, finished_s: list[float]) -> None:
    """500 and 50 predicted tokens, each worth 8, of 0.02 s; 100 prompt tokens of the second.

    Both would end in time.
    """
    load = replace(load_of([prompt, 100], [1, 1], [0.0, 0.0]), deadline_s=np.full(2, 10.0))
    assert firsts_s(load, [500, 50], jitserve()) == finished_s


@pytest.mark.parametrize(
    ("penalty", "firsts"),
    [
        # 5400 x 10 / 10.4 / 10 s is 519, 500 / 1 s is less.
        (1.0, [0.5, 5.75, 6.25]),
        # 5400 x (10 / 10.4)^100 / 10 s is 11.
        (100.0, [0.5, 6.25, 5.75]),
    ],
)
def test_what_is_late_is_worth_less_by_hand(penalty: float, firsts: list[float]) -> None:
    """Request 0 has the slot until 5.25 s; request 1 is looked at when it has waited 0.4 s."""
    load = load_of([5, 1400, 100], [20, 1, 1], [0.0, 0.1, 5.1])
    load = replace(load, deadline_s=np.array([np.nan, 10.1, 15.1]))
    assert firsts_s(load, [20, 500, 50], jitserve(penalty=penalty)) == firsts


@pytest.mark.parametrize(
    ("apps", "firsts"),
    [
        # 600 / 1 s, 410 / 1 s, and 510 / 1 s of the third.
        ([0, 1, 2], [0.5, 1.5, 1.0]),
        # 1010 / 2 s of both calls.
        ([0, 0, 1], [1.0, 1.5, 0.5]),
    ],
)
def test_calls_of_an_application_count_together_by_hand(
    apps: list[int], firsts: list[float]
) -> None:
    load = load_of([200, 10, 110], [1, 1, 1], [0.0] * 3)
    load = replace(load, app=np.array(apps), deadline_s=np.full(3, 10.0))
    assert firsts_s(load, [50] * 3, jitserve()) == firsts


@pytest.mark.parametrize("swaps", [1, 0])
def test_another_length_gives_way_by_hand(swaps: int) -> None:
    """Four iterations of request 0 and 1 take 1.25 s, 0.3125 s each, when request 2 waits.

    Request 0: (100 + 8 x 4 + 8 x 26) / 8.125 s is 41.8. Request 1 would end after 18.75 s:
    (110 + 8 x 4 + 8 x 56 x 10 / 18.75) / 17.5 s is 21.8. Request 2: (40 + 8 x 2) / 0.625 s is
    89.6. Requests 2 and 0, of 40 and 104 tokens, are the group, request 1 has 114.
    """
    load = load_of([100, 110, 40], [30, 30, 2], [0.0, 0.0, 0.6])
    seen = watched(jitserve(2, every=4, swaps=swaps))
    serve(load, seen, costs=COSTS, fast_forward=False, predictor=Truth([30, 60, 2]))
    steps = [tokens for _, tokens in seen.steps]
    assert steps[:4] == [{0: 100, 1: 110}, *[{0: 1, 1: 1}] * 3]
    gives_way = [{0: 1, 2: 40}, {0: 1, 2: 1}, {0: 1, 1: 114}]
    assert steps[4:7] == (gives_way if swaps else [{0: 1, 1: 1}] * 3)


def test_the_densest_window_by_hand() -> None:
    assert window([5.0, 1.0, 4.0, 4.0, 4.0], 3) == 2
    assert window([5.0, 4.0, 4.0, 1.0], 3) == 0
    assert window([5.0, 1.0], 3) == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ttft_s": 0.0}, "policy.ttft_s is 0.0, it must be above 0"),
        ({"every": 0}, "policy.every is 0, it must be at least 1"),
        ({"swaps": -1}, "policy.swaps is -1, it must be at least 0"),
        ({"rule": rule()}, "policy.rule must have chunked_prefill"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        jitserve(**settings)  # type: ignore[arg-type]
