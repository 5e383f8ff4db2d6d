"""Dispatch policies that only tests have, and what must not differ between two ways to follow."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pandas as pd

from harness.engines.recorder import Recorder
from harness.interface.entities import GroupId, ServiceId
from harness.interface.events import Arrived
from harness.interface.load_order import LoadOrder
from harness.interface.policies import DispatchPolicy, SchedulingPolicy
from harness.interface.tables import Ints, RequestTable
from harness.interface.views import ClusterView
from harness.tests.support.loads import assert_same_times
from harness.tests.support.serving import Everywhere, LinearCosts, serve
from harness.workloads.workload import Workload


@dataclass
class ByLoad:
    """A dispatch policy that returns a load order, and keeps which services it was asked about."""

    reads_load: ClassVar[bool] = False
    order: LoadOrder
    asked: list[ServiceId] = field(default_factory=list)

    def dispatch(self, requests: Sequence[int], service: ServiceId, view: ClusterView) -> LoadOrder:
        """The same for every service."""
        self.asked.append(service)
        return self.order


class NamedTurns:
    """A dispatch policy that names groups, in turn."""

    reads_load: ClassVar[bool] = False

    def __init__(self) -> None:
        self._dealt: Counter[ServiceId] = Counter()

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> Sequence[GroupId]:
        """In the order of the deployment."""
        homes = [group.id for group in view.deployment.groups if service in group.services]
        first = self._dealt[service]
        self._dealt[service] += len(requests)
        return [homes[(first + i) % len(homes)] for i in range(len(requests))]


class LooksAtLoad(ByLoad):
    """One that says that it looks at what groups hold."""

    reads_load: ClassVar[bool] = True


def prompt_tokens(table: RequestTable) -> Ints:
    """A request weighs as much as its prompt has tokens."""
    return table.prompt_tokens


LOAD_ORDERS = [
    LoadOrder(),
    LoadOrder(weight=prompt_tokens),
    LoadOrder(weight=prompt_tokens, adds_generated=True),
]


def assert_same_groups(serve_it: Callable[[bool], Recorder]) -> Recorder:
    """Fast-forward on and off: the same times, and every GPU as long at work between the same.

    Returns what was recorded with it on.
    """
    seen: list[pd.DataFrame] = []

    def served(fast: bool) -> Recorder:
        recorder = serve_it(fast)
        seen.append(_busy(recorder))
        return recorder

    fast = assert_same_times(served)
    assert seen[0].index.tolist() == seen[1].index.tolist()
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-9, atol=1e-9)
    return fast


def _busy(recorder: Recorder) -> pd.DataFrame:
    """When every GPU was first and last at work, and how long: other choices would show."""
    frame = recorder.gpu_frame().query("use == 'busy'")
    spans = frame.assign(seconds=frame["end_s"] - frame["start_s"]).groupby("gpu")
    return spans.agg({"start_s": "min", "end_s": "max", "seconds": "sum"})


def groups_given(
    load: Workload,
    dispatch: DispatchPolicy,
    placement: Everywhere,
    *,
    scheduling: SchedulingPolicy | None = None,
    costs: LinearCosts | None = None,
    gpus: int = 2,
) -> list[int]:
    """The first GPU of the group that each request goes to, by request."""
    recorder = Recorder(keep_events=True)
    serve(load, scheduling, placement, dispatch=dispatch, costs=costs, gpus=gpus, recorder=recorder)
    group = {it.request.id: it.group for it in recorder.events if isinstance(it, Arrived)}
    return [int(group[request].partition("@")[2]) for request in sorted(group)]
