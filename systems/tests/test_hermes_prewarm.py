"""When Hermes loads backends, by the worked examples."""

from types import SimpleNamespace
from typing import cast

import pytest

from harness.interface.apps import Backend
from harness.interface.entities import AppId
from harness.interface.events import AppArrived, UnitFinished, UnitStarted
from harness.interface.views import ClusterView
from harness.planning.application_history import ApplicationHistory, UnitRun
from systems.hermes.prewarm import Prewarming

DOCKER = Backend("docker", "containers", 2.14, per_application=True)
WRITE_S = (4, 6, 8, 10)


def _policy(effectiveness: float, reading: str = "quantile", others: int = 0) -> Prewarming:
    """A unit takes 4, 6, 8 or 10 s; a container comes next, but for so many of `others`."""
    runs = [
        [UnitRun("write", (1,), (seconds,)), UnitRun("run", external_s=1.0)] for seconds in WRITE_S
    ]
    runs += [[UnitRun("write", (1,), (4,)), UnitRun("read", (1,), (1,))]] * others
    return Prewarming(
        effectiveness=effectiveness,
        reading=reading,
        prompt_token_s=0.0,
        output_token_s=1.0,
        fewest_observed=10,
        applications=ApplicationHistory({"CG": runs}, {"CG": {"run": DOCKER}}),
    )


def _at(now_s: float) -> ClusterView:
    return cast(ClusterView, SimpleNamespace(now_s=now_s))


def _started(policy: Prewarming) -> float | None:
    """When the policy wants to be asked after a unit has started at 100 s."""
    policy.observe(AppArrived(100.0, AppId(7), "CG", None))
    policy.observe(UnitStarted(100.0, AppId(7), "write", (), ()))
    decision = policy.prewarm(_at(100.0))
    assert decision.start == ()
    return decision.wake_s


@pytest.mark.parametrize(
    ("effectiveness", "reading", "after_s"),
    [(0.25, "quantile", 1.86), (0.25, "printed", 5.86)]
    + [(0.5, reading, 3.86) for reading in ("quantile", "printed")],
)
def test_both_readings_of_equation_3_by_hand(
    effectiveness: float, reading: str, after_s: float
) -> None:
    policy = _policy(effectiveness, reading)
    wake_s = _started(policy)
    assert wake_s == pytest.approx(100.0 + after_s)
    decision = policy.prewarm(_at(100.0 + after_s + 1e-9))
    assert decision.start == (DOCKER.of(AppId(7)),)
    assert decision.wake_s is None


def test_a_backend_of_less_than_the_knob_is_not_loaded_ahead() -> None:
    assert _started(_policy(0.5, others=6)) is None  # 4 of 10: p = 0.4
    assert _started(_policy(0.4, others=6)) is not None


def test_a_plan_ends_with_its_unit() -> None:
    policy = _policy(0.5)
    _started(policy)
    policy.observe(UnitFinished(101.0, AppId(7), "write", (1,), (1,)))
    assert policy.prewarm(_at(110.0)).start == ()


def test_observed_seconds_replace_estimates() -> None:
    policy = _policy(0.5)
    for app in range(10):
        policy.observe(AppArrived(0.0, AppId(app), "CG", None))
        policy.observe(UnitStarted(0.0, AppId(app), "write", (), ()))
        policy.observe(UnitFinished(20.0, AppId(app), "write", (1,), (1,)))
    assert _started(policy) == pytest.approx(100.0 + 20.0 - 2.14)


@pytest.mark.parametrize("effectiveness", [0.0, 1.01])
def test_a_knob_out_of_range_is_refused(effectiveness: float) -> None:
    with pytest.raises(ValueError, match=f"effectiveness is {effectiveness}"):
        _policy(effectiveness)
