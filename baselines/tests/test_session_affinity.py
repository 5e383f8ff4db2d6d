"""Sessions and the groups that serve them, worked out by hand."""

from dataclasses import replace

import numpy as np

from baselines.session_affinity import SessionAffinity
from harness.tests.support.dispatches import groups_given
from harness.tests.support.serving import Everywhere, FlatCosts, workload

TWO = Everywhere(("m", (0,)), ("m", (1,)))


def _given(sessions: list[int], come_s: list[float], outputs: list[int]) -> list[int]:
    load = workload([4] * len(sessions), outputs, come_s)
    load = replace(load, app=np.array(sessions, np.int64))
    return groups_given(load, SessionAffinity(), TWO, costs=FlatCosts(load=0.0))


def test_a_session_returns_to_its_group_by_hand() -> None:
    """Half a second for a prompt.

    Sessions 0, 1 and 2 begin while others are served: in the first group, the second, and, where
    both have one, the first. At 5 s all is answered: session 1 goes to the second group, session 3
    at that instant to the first, which has none; session 1 stays though the second has one.
    """
    given = _given([0, 1, 2, 1, 3, 1], [0.0, 0.1, 0.2, 5.0, 5.0, 5.1], [1] * 6)
    assert given == [0, 1, 0, 1, 0, 1]


def test_a_new_session_goes_where_fewest_are_unanswered() -> None:
    """r0 has 90 tokens to generate, r1 one: r2 finds one request in the first group."""
    assert _given([0, 1, 2], [0.0, 0.1, 2.0], [90, 1, 1]) == [0, 1, 1]
