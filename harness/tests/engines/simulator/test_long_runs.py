"""What keeps runs of millions of requests small changes nothing of them."""

from collections.abc import Sequence

import pandas as pd
import pytest

from harness.engines.simulator import arriving
from harness.interface.entities import GroupId, ServiceId
from harness.interface.views import ClusterView
from harness.tests.support.dispatches import NamedTurns
from harness.tests.support.policies import some_load
from harness.tests.support.serving import Everywhere, serve


class Counting(NamedTurns):
    """Notes how many requests come to it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> Sequence[GroupId]:
        """In turn."""
        self.asked.append(len(requests))
        return super().dispatch(requests, service, view)


def test_requests_ahead_of_time_are_dispatched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    load = some_load(3, services=2)
    runs: list[pd.DataFrame] = []
    asked: list[int] = []
    for most in (1 << 16, 7):
        monkeypatch.setattr(arriving, "MOST_NAMED", most)
        dispatch = Counting()
        everywhere = Everywhere(("m0", (0,)), ("m0", (1,)), ("m1", (2,)))
        runs.append(serve(load, None, everywhere, dispatch=dispatch, gpus=4).requests)
        asked.append(max(dispatch.asked))
    pd.testing.assert_frame_equal(runs[0], runs[1], check_exact=True)
    assert asked[0] > 7 >= asked[1]
