"""Applications in the order of their arrival, or of their depth."""

import pytest

from baselines.parrot import Parrot
from harness.interface.entities import AppId, RequestId
from harness.interface.events import AppArrived, AppFinished, UnitStarted
from harness.tests.support.calls import Call, keys
from harness.tests.support.serving import rule

X, Y = AppId(0), AppId(1)


def parrot(order: str) -> Parrot:
    """X has come at 0 s and is in its first unit, Y at 1 s and is in its second."""
    policy = Parrot(rule=rule(), order=order, displaces=None)
    for now_s, app, unit in ((0.0, X, "a"), (1.0, Y, "a"), (2.0, Y, "b")):
        if unit == "a":
            policy.observe(AppArrived(now_s, app, "kind", None))
        policy.observe(UnitStarted(now_s, app, unit, (RequestId(0),), (10,)))
    return policy


def test_the_earlier_application_runs_first_by_hand() -> None:
    policy = parrot("arrival")
    assert keys(policy, Call(1, app=Y), Call(2, app=X)) == [1.0, 0.0]
    # Requests of no application count by their own arrival.
    policy.observe(AppFinished(3.0, X))
    assert keys(policy, Call(1, app=Y), Call(2, app=X, arrival_s=2.5)) == [1.0, 2.5]


def test_the_deeper_unit_runs_first_by_hand() -> None:
    first, second = keys(parrot("depth"), Call(1, app=X), Call(2, app=Y))
    assert second < first


def test_another_order_is_refused() -> None:
    with pytest.raises(ValueError, match=r"policy\.order is width, not arrival or depth"):
        parrot("width")
