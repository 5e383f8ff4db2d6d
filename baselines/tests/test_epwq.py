"""EPWQ wants what calls in the queue read, and nothing that will be."""

from types import SimpleNamespace
from typing import cast

import pytest

from baselines.epwq import Epwq
from harness.interface.decisions import Prewarm
from harness.interface.entities import AppId
from harness.interface.events import UnitFinished
from harness.interface.views import ClusterView


def test_the_queue_alone_is_wanted_by_hand() -> None:
    policy = Epwq(contexts_share=0.3)
    policy.observe(UnitFinished(3.0, AppId(0), "write", (10,), (5,)))
    decision = policy.prewarm(cast(ClusterView, SimpleNamespace(now_s=3.0)))
    assert decision == Prewarm(wants_queue=True, contexts_share=0.3)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="contexts_share is"):
        Epwq(contexts_share=share)
