"""When Hermes wants adapters and contexts of applications whose next call is to come."""

from types import SimpleNamespace
from typing import cast

import pytest

from harness.interface.decisions import Prewarm
from harness.interface.entities import AppId, ResourceId
from harness.interface.events import AppArrived, AppFinished, UnitFinished, UnitStarted
from harness.interface.views import ClusterView
from harness.planning.application_history import ApplicationHistory, UnitRun
from systems.hermes.caching import Caching

SEARCH_S = (4.0, 6.0, 8.0, 10.0)
CONTENT = ResourceId("context of 7")


def _policy(effectiveness: float, ends: int = 0) -> Caching:
    """A search takes 4, 6, 8 or 10 s; a call comes next, but for so many runs that end with it."""
    ask, read = UnitRun("ask", (1,), (1,)), UnitRun("read", (1,), (1,))
    runs = [[ask, UnitRun("search", external_s=seconds), read] for seconds in SEARCH_S]
    runs += [[ask, UnitRun("search", external_s=4.0)]] * ends
    return Caching(
        effectiveness=effectiveness,
        reading="quantile",
        prompt_token_s=0.0,
        output_token_s=1.0,
        fewest_observed=10,
        ahead_s=1.0,
        contexts_share=0.3,
        applications=ApplicationHistory({"KBQAV": runs}),
    )


def _asked(policy: Caching, now_s: float) -> Prewarm:
    return policy.prewarm(cast(ClusterView, SimpleNamespace(now_s=now_s)))


def _prewarm(wanted: tuple[ResourceId, ...] = (), wake_s: float | None = None) -> Prewarm:
    """The queue behind these, and contexts in 0.3 of host memory."""
    return Prewarm(wanted=wanted, wants_queue=True, wake_s=wake_s, contexts_share=0.3)


def _search(policy: Caching) -> Caching:
    policy.observe(AppArrived(90.0, AppId(7), "KBQAV", None, content=CONTENT))
    policy.observe(UnitStarted(90.0, AppId(7), "ask", (), (1,)))
    policy.observe(UnitFinished(100.0, AppId(7), "ask", (1,), (1,)))
    policy.observe(UnitStarted(100.0, AppId(7), "search", (), (1,), is_outside=True))
    return policy


def test_a_context_is_wanted_in_time_by_hand() -> None:
    """K = 0.5: ready at the median of 6 s with half a chance; loading is taken to last 1 s."""
    policy = _search(_policy(0.5))
    assert _asked(policy, 100.0) == _prewarm(wake_s=105.0)
    assert _asked(policy, 105.0) == _prewarm(wanted=(CONTENT,))
    assert _asked(policy, 107.0).wanted == (CONTENT,)  # until the unit ends
    policy.observe(UnitFinished(108.0, AppId(7), "search", (1,), (1,), 8.0))
    assert _asked(policy, 108.0) == _prewarm()


@pytest.mark.parametrize(("effectiveness", "wake_s"), [(0.1, 103.0), (0.4, 109.0), (0.5, None)])
def test_an_application_that_may_end_is_less_likely(
    effectiveness: float, wake_s: float | None
) -> None:
    """p = 0.4: K = 0.4 asks for the longest of the searches, 10 s, K = 0.1 for a quartile, 4 s."""
    policy = _search(_policy(effectiveness, ends=6))
    assert _asked(policy, 100.0).wake_s == (None if wake_s is None else pytest.approx(wake_s))


def test_an_application_that_has_ended_is_forgotten() -> None:
    policy = _search(_policy(0.5))
    policy.observe(UnitFinished(108.0, AppId(7), "search", (1,), (1,), 8.0))
    policy.observe(AppFinished(108.0, AppId(7)))
    policy.observe(AppArrived(110.0, AppId(8), "KBQAV", None))
    policy.observe(UnitStarted(110.0, AppId(8), "search", (), (1,), is_outside=True))
    assert _asked(policy, 120.0) == _prewarm()
