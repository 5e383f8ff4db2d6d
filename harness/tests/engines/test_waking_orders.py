"""A priority order may say when its policy wants to be asked again; nothing else beside it."""

import numpy as np
import pytest

from harness.core.checks import IllegalDecision
from harness.interface.decisions import Decision, PriorityOrder
from harness.interface.views import GroupView
from harness.tests.support.policies import Promoting
from harness.tests.support.serving import rule, serve, workload

TURN_S = 1.2


BATCH = rule(max_num_seqs=1)


@pytest.mark.parametrize("fast", [True, False])
def test_an_order_turns_when_its_policy_wakes(fast: bool) -> None:
    frame = serve(workload([8, 9, 200], [90] * 3), Promoting(TURN_S), fast_forward=fast).requests
    assert np.argsort(frame["finished_s"].to_numpy()).tolist() == [0, 2, 1]


class Steady(Promoting):
    """Says too much."""

    def schedule(self, view: GroupView) -> Decision:
        """An order that would also be steady."""
        return Decision(priority_order=PriorityOrder(None, BATCH), steady=True)


def test_what_an_order_cannot_carry_is_refused() -> None:
    with pytest.raises(IllegalDecision, match="a priority order comes with steady, which only"):
        serve(workload([8], [4]), Steady(TURN_S))
