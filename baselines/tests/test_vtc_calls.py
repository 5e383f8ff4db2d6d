"""Counters of applications: given for each call that ran, taken by the calls of stages."""

import pytest

from baselines.vtc_calls import VtcCalls
from harness.interface.entities import AppId, GroupId
from harness.interface.events import AppFinished, Arrived, Finished, Moved, UnitStarted
from harness.tests.support.calls import GROUP, Call, keys
from harness.tests.support.serving import rule

A, B = AppId(0), AppId(1)


def vtc_calls() -> VtcCalls:
    return VtcCalls(rule=rule(), displaces=None, renew_s=0.3)


def start(policy: VtcCalls, *calls: Call, unit: str = "unit", is_outside: bool = False) -> None:
    """These calls of an application are a stage that begins."""
    ids, prompts = (
        tuple(call.facts.id for call in calls),
        tuple(call.prompt_tokens for call in calls),
    )
    policy.observe(UnitStarted(0.0, calls[0].facts.app, unit, ids, prompts, is_outside))
    if not is_outside:
        arrive(policy, *calls)


def arrive(policy: VtcCalls, *calls: Call) -> None:
    for call in calls:
        policy.observe(Arrived(0.0, call.facts, GROUP))


def calls_of(a: tuple[int, int, int], b: int, *, prompt_tokens: int = 10) -> tuple[Call, ...]:
    """A's three calls and B's, with so many tokens generated each."""
    of_a = (Call(number, app=A, generated=tokens) for number, tokens in enumerate(a))
    return *of_a, Call(3, app=B, prompt_tokens=prompt_tokens, generated=b)


def of_each(policy: VtcCalls, *calls: Call) -> list[float]:
    """The counters of A and B."""
    found = keys(policy, *calls)
    return [found[0], found[-1]]


@pytest.mark.parametrize("prompt_tokens", [1, 9000])
def test_counters_by_hand(prompt_tokens: int) -> None:
    """A has 3 calls, B 1; two of A run, then one of each, then a prompt of B of any length.

    The first iteration takes 2 x 3/4 from A, which gets 2, and 2 x 1/4 from B. The second takes as
    much and gives 1 to each. The third takes 3/4 and 1/4, and gives 1 to B.
    """
    policy = vtc_calls()
    calls = calls_of((0, 0, 0), 0, prompt_tokens=prompt_tokens)
    start(policy, *calls[:3])
    start(policy, calls[3])
    assert of_each(policy, *calls) == [0.0, 0.0]
    assert of_each(policy, *calls_of((1, 1, 0), 0)) == [0.5, -0.5]
    assert of_each(policy, *calls_of((2, 1, 0), 1)) == [0.0, 0.0]
    assert of_each(policy, *calls_of((2, 1, 0), 2)) == [-0.75, 0.75]
    assert of_each(policy, *calls_of((2, 1, 0), 2)) == [-0.75, 0.75]


def test_ended_calls_count_until_their_stage_is_over_by_hand() -> None:
    """B runs 4 times, of which A pays 3. A's first two calls end after one token each: 2 - 1.5.

    A still pays 3 of 4 of the next 4 of B. Its third call ends, and B alone pays for itself.
    """
    policy = vtc_calls()
    calls = calls_of((0, 0, 0), 0)
    start(policy, *calls[:3])
    start(policy, calls[3])
    assert of_each(policy, *calls_of((0, 0, 0), 4)) == [-3.0, 3.0]
    for call in calls[:2]:
        policy.observe(Finished(1.0, call.facts, 1))
    assert keys(policy, calls[2], calls_of((0, 0, 0), 4)[3]) == [-2.5, 2.5]
    assert keys(policy, calls[2], calls_of((0, 0, 0), 8)[3]) == [-5.5, 5.5]
    policy.observe(Finished(2.0, calls[2].facts, 4))  # 4 - 3 for A, -1 for B
    assert keys(policy, calls_of((0, 0, 0), 8)[3]) == [4.5]
    assert keys(policy, calls_of((0, 0, 0), 20)[3]) == [4.5]
    start(policy, Call(4, app=A), unit="next")
    assert keys(policy, Call(4, app=A)) == [-4.5]


def test_an_application_that_is_over_leaves_nothing() -> None:
    policy = vtc_calls()
    call, other = Call(0, app=A), Call(1, app=B)
    start(policy, call)
    start(policy, other)
    policy.observe(Finished(1.0, call.facts, 8))
    policy.observe(AppFinished(1.0, A))
    assert keys(policy, other) == [-4.0]
    start(policy, Call(2, app=A))
    assert keys(policy, Call(2, app=A)) == [0.0]


def test_calls_outside_any_llm_do_not_count() -> None:
    """A's three calls outside pay nothing for B, which pays for itself."""
    policy = vtc_calls()
    calls = calls_of((0, 0, 0), 0)
    start(policy, *calls[:3], is_outside=True)
    start(policy, calls[3])
    assert keys(policy, calls_of((0, 0, 0), 7)[3]) == [0.0]


def test_units_that_overlap_are_one_stage() -> None:
    """A has 2 and 1 calls in two units, as 3 in one: it pays 3/4 for B."""
    policy = vtc_calls()
    calls = calls_of((0, 0, 0), 0)
    start(policy, *calls[:2])
    start(policy, calls[2], unit="beside")
    start(policy, calls[3])
    assert of_each(policy, *calls_of((0, 0, 0), 4)) == [-3.0, 3.0]


def test_calls_of_no_unit_are_stages_of_their_own() -> None:
    """Three calls, each its own application; the first runs 3 times and pays 1 of 3."""
    policy = vtc_calls()
    calls = [Call(number, app=number) for number in range(3)]
    arrive(policy, *calls)
    assert keys(policy, Call(0, app=0, generated=3), *calls[1:]) == [2.0, -1.0, -1.0]


def test_a_group_counts_what_runs_there() -> None:
    """A runs 3 times, of which B pays 1.5, and leaves. It comes back with 2 tokens more: 1 to pay.

    Meanwhile B pays for itself.
    """
    policy = vtc_calls()
    arrive(policy, Call(0, app=A), Call(1, app=B))
    assert keys(policy, Call(0, app=A, generated=3), Call(1, app=B)) == [1.5, -1.5]
    policy.observe(Moved(1.0, Call(0, app=A).facts, GroupId("other")))
    assert keys(policy, Call(1, app=B)) == [-1.5]
    assert keys(policy, Call(1, app=B, generated=6)) == [-1.5]
    policy.observe(Moved(2.0, Call(0, app=A).facts, GROUP))
    assert keys(policy, Call(0, app=A, generated=3), Call(1, app=B, generated=6)) == [1.5, -1.5]
    assert keys(policy, Call(0, app=A, generated=5), Call(1, app=B, generated=6)) == [2.5, -2.5]


def test_a_call_that_has_not_come_is_last() -> None:
    policy = vtc_calls()
    arrive(policy, Call(0, app=A))
    assert keys(policy, Call(0, app=A), Call(1, app=B)) == [0.0, float("inf")]


def test_how_holders_are_displaced_is_refused_where_unknown() -> None:
    with pytest.raises(ValueError, match="evict"):
        VtcCalls(rule=rule(), displaces="evict", renew_s=0.3)
