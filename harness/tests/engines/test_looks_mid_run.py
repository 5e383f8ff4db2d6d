"""Whoever is told or asked in the middle of a run of iterations knows of those that have ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engines.recorder import Recorder
from harness.interface.decisions import Deployment
from harness.interface.entities import GroupId, ServiceId
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import ClusterView
from harness.tests.support.policies import SteadyFcfs
from harness.tests.support.serving import LinearCosts, a_group, serve, workload
from harness.workloads.workload import Workload

Seen = tuple[float, tuple[tuple[int, ...], ...], tuple[float, ...]]


def _look(view: ClusterView) -> Seen:
    """When, the tokens of every request and the free blocks of every group, and attained time."""
    tokens: list[tuple[int, ...]] = []
    seconds: list[float] = []
    for group in view.groups.values():
        requests = group.requests.values()
        tokens += [(r.facts.id, r.generated_tokens, r.kv_tokens) for r in requests]
        tokens += [(group.kv.free_blocks(service),) for service in group.services]
        seconds += [r.gpu_s for r in requests]
    for service in view.services:
        table = view.unfinished(service)
        tokens += zip(table.id.tolist(), table.generated_tokens.tolist(), strict=True)
    return view.now_s, tuple(tokens), tuple(seconds)


@dataclass
class FewestTokens:
    """Dispatch to the group with the fewest tokens of context."""

    reads_load: ClassVar[bool] = True
    seen: list[Seen] = field(default_factory=list)

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> Sequence[GroupId]:
        """All to one."""
        self.seen.append(_look(view))
        groups = view.groups.items()
        load = {name: sum(r.context_tokens for r in g.requests.values()) for name, g in groups}
        return [min(load, key=lambda name: (load[name], name))] * len(requests)


@dataclass
class Looking:
    """A placement of two groups that looks again every so often."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()
    period_s: float
    seen: list[Seen] = field(default_factory=list)

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """The same every time."""
        self.seen.append(_look(view))
        return Deployment((a_group("m", 0), a_group("m", 1)), wake_s=view.now_s + self.period_s)


def _load(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    load = workload(
        rng.integers(1, 60, 24).tolist(),
        rng.integers(1, 60, 24).tolist(),
        np.cumsum(rng.exponential(0.2, 24)).tolist(),
    )
    return replace(load, tenants=("a", "b", "c"), tenant=rng.integers(0, 3, 24))


def _assert_same_seen(on: list[Seen], off: list[Seen]) -> None:
    assert [tokens for _, tokens, _ in on] == [tokens for _, tokens, _ in off]
    for one, other in zip(on, off, strict=True):
        assert one[0] == pytest.approx(other[0], rel=1e-9)
        assert one[2] == pytest.approx(other[2], rel=1e-9)


def _serve(load: Workload, *, fast: bool, looks: Looking, to: FewestTokens) -> Recorder:
    return serve(
        load,
        SteadyFcfs(rotates=False),
        looks,
        costs=LinearCosts(blocks=64, load=0.1),
        fast_forward=fast,
        dispatch=to,
        max_num_seqs=4,
        tokens=64,
    )


@given(seed=st.integers(0, 999), period_s=st.sampled_from([0.0713, 0.3137]))
@settings(max_examples=7, deadline=None)
def test_dispatch_and_placement_see_what_has_been_computed(seed: int, period_s: float) -> None:
    runs = []
    for fast in (True, False):
        looks, to = Looking(period_s), FewestTokens()
        frame = _serve(_load(seed), fast=fast, looks=looks, to=to).requests
        runs.append((looks.seen, to.seen, frame[["finished_s", "gpu_s"]]))
    on, off = runs
    _assert_same_seen(on[0], off[0])
    _assert_same_seen(on[1], off[1])
    np.testing.assert_allclose(on[2], off[2], rtol=1e-9)
