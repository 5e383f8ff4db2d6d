"""Counters of clients: charged on admission and per token, lifted when a client comes back."""

import pytest

from baselines.vtc import Vtc
from harness.interface.entities import AppId, GroupId
from harness.interface.events import AppArrived, Arrived, Finished
from harness.tests.support.calls import Call, keys
from harness.tests.support.serving import rule

GROUP = GroupId("g")


def vtc(**settings: object) -> Vtc:
    """Prices 1 and 2, a client for each kind of application."""
    given: dict[str, object] = {
        "rule": rule(),
        "client": "kind",
        "displaces": None,
        "prompt_price": 1.0,
        "output_price": 2.0,
        "lifts_to_departed": False,
        "renew_s": 0.3,
    }
    return Vtc(**given | settings)  # type: ignore[arg-type]


def arrive(policy: Vtc, *calls: Call) -> None:
    for call in calls:
        policy.observe(Arrived(call.arrival_s, call.facts, GROUP))


def of_kinds(policy: Vtc, **apps: int) -> Vtc:
    """Applications of these kinds have come."""
    for kind, app in apps.items():
        policy.observe(AppArrived(0.0, AppId(app), kind, None))
    return policy


def test_counters_by_hand() -> None:
    """A's prompt of 10 is admitted: 10; 5 tokens: 20; it ends with 6: 22."""
    policy = of_kinds(vtc(), a=0)
    arrive(policy, Call(0, app=0))
    assert keys(policy, Call(0, app=0)) == [0.0]
    assert keys(policy, Call(0, app=0, admitted=True)) == [10.0]
    running = Call(0, app=0, admitted=True, generated=5)
    assert keys(policy, running) == keys(policy, running) == [20.0]
    policy.observe(Finished(1.0, running.facts, 6))
    arrive(policy, Call(1, app=0))
    assert keys(policy, Call(1, app=0)) == [22.0]


def test_a_newcomer_is_lifted_to_clients_that_wait_by_hand() -> None:
    """A has 20 and another request in the queue: B is lifted to 20, its prompt makes it 24."""
    policy = of_kinds(vtc(), a=0, b=1)
    running, waiting = Call(0, app=0, admitted=True, generated=5), Call(1, app=0)
    arrive(policy, running, waiting)
    assert keys(policy, running, waiting) == [20.0, 20.0]
    arrive(policy, Call(2, app=1, prompt_tokens=4), Call(3, app=1, prompt_tokens=4))
    calls = running, waiting, Call(2, app=1, prompt_tokens=4), Call(3, app=1, prompt_tokens=4)
    # B's second request is ordered as if its first had been admitted.
    assert keys(policy, *calls) == [20.0, 20.0, 20.0, 24.0]
    admitted = Call(2, app=1, prompt_tokens=4, admitted=True)
    assert keys(policy, running, waiting, admitted, calls[3]) == [20.0, 20.0, 24.0, 24.0]


@pytest.mark.parametrize(("lifts_to_departed", "key"), [(False, 0.0), (True, 20.0)])
def test_a_newcomer_to_an_empty_queue_by_hand(lifts_to_departed: bool, key: float) -> None:
    """A only runs: the paper lifts B to A, which left the queue last, its program does not."""
    policy = of_kinds(vtc(lifts_to_departed=lifts_to_departed), a=0, b=1)
    running = Call(0, app=0, admitted=True, generated=5)
    arrive(policy, running)
    keys(policy, running)
    arrive(policy, Call(1, app=1, prompt_tokens=4))
    assert keys(policy, running, Call(1, app=1, prompt_tokens=4)) == [20.0, key]


def test_clients_are_kinds_applications_or_tenants() -> None:
    calls = Call(0, app=0, tenant="t"), Call(1, app=1, tenant="t"), Call(2, app=2, tenant="u")
    for client, expected in (
        ("kind", [0.0, 0.0, 10.0]),
        ("application", [0.0, 0.0, 0.0]),
        ("tenant", [0.0, 10.0, 0.0]),
    ):
        policy = vtc(client=client)
        for app, kind in enumerate("aba"):
            policy.observe(AppArrived(0.0, AppId(app), kind, None))
        arrive(policy, *calls)
        assert keys(policy, *calls) == expected


def test_a_prompt_that_is_preempted_is_charged_once() -> None:
    policy = of_kinds(vtc(), a=0)
    arrive(policy, Call(0, app=0))
    for admitted in (True, False, True):
        assert keys(policy, Call(0, app=0, admitted=admitted)) == [10.0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"client": "user"}, "policy.client is user, not kind, application or tenant"),
        ({"output_price": -1.0}, r"policy.prompt_price 1.0 and policy.output_price -1.0 must be"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        vtc(**settings)
