"""Whoever is told or asked in the middle of a run of iterations knows of those that have ended."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engines.recorder import Recorder
from harness.interface.decisions import Decision, Deployment
from harness.interface.draft import Draft
from harness.interface.entities import GroupId, ServiceId
from harness.interface.events import Arrived, Event, Finished, Iterated
from harness.interface.filling import continuous_batch, is_decode
from harness.interface.policies import Capability
from harness.interface.views import ClusterView, GroupView, RequestView
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


@dataclass
class FairCounter:
    """Holders first, then the tenant that has been served least; a tenant that returns is lifted.

    As arXiv 2401.00588 (VTC) counts: service by iterations, the lift at an arrival.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Arrived, Iterated, Finished})
    served: Counter[str] = field(default_factory=Counter)
    unfinished: Counter[str] = field(default_factory=Counter)
    told: list[tuple[str, float, int]] = field(default_factory=list)
    tenant: dict[int, str] = field(default_factory=dict)

    def observe(self, event: Event) -> None:
        """Count."""
        if isinstance(event, Iterated):
            for request, tokens in event.new_tokens.items():
                self.served[self.tenant[request]] += tokens
        elif isinstance(event, Arrived):
            name = self.tenant[event.request.id] = str(event.request.tenant)
            if not self.unfinished[name]:
                others = [self.served[n] for n, count in self.unfinished.items() if count]
                self.served[name] = max(self.served[name], min(others, default=0))
            self.unfinished[name] += 1
        elif isinstance(event, Finished):
            self.unfinished[str(event.request.tenant)] -= 1
        if not isinstance(event, Iterated):
            self.told.append((type(event).__name__, event.now_s, self.served.total()))

    def schedule(self, view: GroupView) -> Decision:
        """Two at a time."""

        def place(request: RequestView) -> tuple[bool, int, int]:
            facts = request.facts
            return request.kv_tokens == 0, self.served[str(facts.tenant)], facts.id

        draft = Draft(view)
        order = sorted(view.requests.values(), key=place)[:2]
        continuous_batch(draft, order)
        return draft.decision(steady=all(map(is_decode, order)))


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


@given(seed=st.integers(0, 999))
@settings(max_examples=12, deadline=None)
def test_counters_by_events_decide_the_same(seed: int) -> None:
    """Whatever is told of arrivals and ends, the tokens until then have been told before."""
    on, off = FairCounter(), FairCounter()
    costs = LinearCosts(blocks=64, load=0.1)
    looks = Looking(100.0)
    fast = serve(_load(seed), on, looks, costs=costs)
    slow = serve(_load(seed), off, looks, costs=costs, fast_forward=False)
    assert [(kind, served) for kind, _, served in on.told] == [
        (kind, served) for kind, _, served in off.told
    ]
    assert [s for _, s, _ in on.told] == pytest.approx([s for _, s, _ in off.told], rel=1e-9)
    times = ["first_token_s", "finished_s", "gpu_s"]
    np.testing.assert_allclose(fast.requests[times], slow.requests[times], rtol=1e-9)
