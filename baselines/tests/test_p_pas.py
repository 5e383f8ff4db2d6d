"""Batches under the two budgets, by hand: one request decodes when prompts come."""

import pytest

from baselines.fcfs import Fcfs
from baselines.p_pas import PPas
from harness.policy_checks import assert_same
from harness.tests.support.batches import watched
from harness.tests.support.serving import FlatCosts, rule, serve, workload


def p_pas(**settings: object) -> PPas:
    """Budgets of 20 tokens, and of 6 under pressure."""
    given: dict[str, object] = {
        "rule": rule(chunked_prefill=True, tokens=20),
        "least_prompts": 2,
        "cap_tokens": 6,
        "caps_decodes": False,
        "lone_prompt_tokens": None,
    }
    return PPas(**given | settings)  # type: ignore[arg-type]


def batches(policy: PPas, prompts: list[int], outputs: list[int]) -> list[dict[int, int]]:
    """Request 0 is computed until 0.5 s; the others come at 0.1 s."""
    load = workload(prompts, outputs, [0.0] + [0.1] * (len(prompts) - 1))
    seen = watched(policy)
    serve(load, seen, costs=FlatCosts(load=0.0), fast_forward=False)
    return [tokens for _, tokens in seen.steps]


def test_the_cap_holds_while_prompts_compete_by_hand() -> None:
    """Prompts of 25 and 10 tokens beside a decode: 6 tokens of them in an iteration.

    When one token of the first is missing, both still count. When 5 of the second are missing it
    is alone, and all of it is computed.
    """
    found = batches(p_pas(), [4, 25, 10], [9, 1, 1])
    capped = [{0: 1, 1: 6}] * 4
    assert found[:7] == [{0: 4}, *capped, {0: 1, 1: 1, 2: 5}, {0: 1, 2: 5}]


def test_decodes_count_under_the_cap_of_the_later_patch_by_hand() -> None:
    found = batches(p_pas(caps_decodes=True), [4, 25, 10], [9, 1, 1])
    assert found[:7] == [{0: 4}, *[{0: 1, 1: 5}] * 5, {0: 1, 2: 10}]


def test_a_single_prompt_is_not_capped_by_hand() -> None:
    assert batches(p_pas(), [4, 25], [9, 1])[1:3] == [{0: 1, 1: 19}, {0: 1, 1: 6}]


def test_prompts_are_not_capped_where_none_decodes_by_hand() -> None:
    """The answer of request 0 has one token."""
    assert batches(p_pas(), [4, 25, 10], [1, 1, 1])[1:] == [{1: 20}, {1: 5, 2: 10}]


def test_a_long_prompt_alone_is_pressure_of_the_later_patch_by_hand() -> None:
    """Two decodes; the third request is a running prompt that misses 12 tokens, then 6 and none."""
    load = workload([4, 4, 30], [9, 9, 1], [0.0, 0.0, 0.1])
    seen = watched(p_pas(lone_prompt_tokens=12))
    serve(load, seen, costs=FlatCosts(load=0.0), fast_forward=False)
    tokens = [step.get(2, 0) for _, step in seen.steps]
    assert tokens[:4] == [0, 18, 6, 6]


def test_without_pressure_it_is_vllm() -> None:
    """A cap as large as the budget; KV is short."""
    load = workload([30, 20, 40, 25, 9], [30, 40, 20, 30, 30], [0.0, 0.1, 0.2, 0.3, 0.4])
    chunks = rule(chunked_prefill=True, tokens=20)
    policies = (Fcfs(rule=chunks), p_pas(cap_tokens=20))
    steps = []
    for policy in policies:
        seen = watched(policy)
        served = serve(load, seen, costs=FlatCosts(load=0.0, blocks=8), fast_forward=False)
        steps.append(seen.steps)
        assert served.requests["preemptions"].sum() > 0
    assert_same(*steps)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"least_prompts": 0}, "policy.least_prompts is 0, it must be at least 1"),
        ({"cap_tokens": 0}, "policy.cap_tokens is 0, it must be at least 1"),
        ({"lone_prompt_tokens": 0}, "policy.lone_prompt_tokens is 0, it must be at least 1"),
        ({"rule": rule()}, "policy.rule must have chunked_prefill"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        p_pas(**settings)
