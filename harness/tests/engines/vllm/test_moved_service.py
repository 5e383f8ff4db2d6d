"""A service that moves between groups of two services on Ray, the source killed in mid-move."""

import os
import signal
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.core.draft import Draft
from harness.core.fill import run_in_order
from harness.engines.recorder import Recorder
from harness.interface.decisions import Decision, Deployment
from harness.interface.entities import GpuId, Group, GroupId, Service, ServiceId
from harness.interface.events import Event, Finished, Iterated, Moved
from harness.interface.policies import Capability, PlacementPolicy, SchedulingPolicy, System
from harness.interface.views import ClusterView, GroupView
from harness.tests.support.serving import rule, workload
from harness.tests.support.shared import Together
from harness.workloads.workload import Workload

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
import ray

from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.groups import GroupLoader
from harness.engines.vllm.ray import RayGroup
from harness.tests.support.real_engine import TOKENS, engine, write_weights

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

M0, M1 = ServiceId("m0"), ServiceId("m1")
PROGRESS_TOKENS, AT_MOST_TOKENS = 200, 60


def _deployment(*services: frozenset[ServiceId], wake_s: float | None) -> Deployment:
    """One group for each GPU, named after it."""
    groups = [Group(GroupId(f"gpu{i}"), s, (GpuId(i),)) for i, s in enumerate(services)]
    return Deployment(tuple(groups), wake_s)


BEFORE = (frozenset({M0, M1}), frozenset({M0}))
AFTER = (frozenset({M0}), frozenset({M0, M1}))


@dataclass
class Waiting:
    """First come first served; requests with so many tokens wait until requests have moved."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.SHARED_GROUP})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Moved})
    have_moved: bool = False

    def observe(self, event: Event) -> None:
        """They have."""
        self.have_moved = True

    def schedule(self, view: GroupView) -> Decision:
        """Requests that need not wait."""
        draft, requests = Draft(view), list(view.requests.values())
        if self.have_moved:
            run_in_order(draft, requests, victims=requests[::-1])
            return draft.decision()
        run_in_order(draft, [r for r in requests if r.generated_tokens < AT_MOST_TOKENS])
        return draft.decision(wake_s=view.now_s + 0.01)


@dataclass
class Moving:
    """m1 moves from one GPU to the other when open requests have so many tokens."""

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.SHARED_GROUP, Capability.REDEPLOY}
    )
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()
    has_moved: bool = False

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """Before and after."""
        table, finished_s = view.arrived_after(-np.inf)
        is_open = np.isnan(finished_s)
        self.has_moved |= table.generated_tokens[is_open].sum() >= PROGRESS_TOKENS
        if self.has_moved:
            return _deployment(*AFTER, wake_s=None)
        return _deployment(*BEFORE, wake_s=view.now_s + 0.02)


def load(count: int = 40) -> Workload:
    """Requests of two services, all there at once."""
    rng = np.random.default_rng(3)
    prompts, outputs = rng.integers(4, 60, count), rng.integers(40, 160, count)
    made = workload(prompts.tolist(), outputs.tolist(), services=2)
    return replace(made, services=tuple(Service(s.id, 100, 1024) for s in made.services))


def serve(built: Vllm, policy: SchedulingPolicy, placement: PlacementPolicy) -> Recorder:
    """Run it; what was recorded."""
    recorder = Recorder(keep_events=True)
    built.run(load(), System("test", policy, RoundRobin(), placement), recorder)
    return recorder


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Vllm:
    """An engine of two models of one shape."""
    folder = tmp_path_factory.mktemp("weights")
    for seed, name in enumerate(("m0", "m1")):
        write_weights(folder / name, seed=seed)
    models = {name: str(folder / name) for name in ("m0", "m1")}
    return engine(models=models, load_format="auto", keep_answers=True)


@pytest.fixture(scope="module")
def undisturbed(weighted: Vllm) -> dict[int, list[int]]:
    """The answers of a group that stays."""
    serve(weighted, Fcfs(rule=rule(tokens=TOKENS)), Together())
    return dict(weighted.answers)


def _kill_in_mid_move(monkeypatch: pytest.MonkeyPatch) -> list[RayGroup]:
    """A process with m1 is stopped, asked to give its requests up, and killed before it answers."""
    leave, killed = RayGroup.leave, list[RayGroup]()

    def fatal(self: RayGroup, **how: Any) -> None:
        if killed or M1 not in self.group.services:
            leave(self, **how)
            return
        killed.append(self)
        pid = ray.get(self.actor.__ray_call__.remote(lambda host: os.getpid()))
        os.kill(pid, signal.SIGSTOP)
        leave(self, **how)
        os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(RayGroup, "leave", fatal)
    return killed


def test_a_service_moves_and_its_source_is_killed_in_mid_move(
    weighted: Vllm,
    undisturbed: dict[int, list[int]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    start, started = GroupLoader.start, list[str]()

    def noted(self: GroupLoader, group: Group) -> Any:
        started.append(str(group.id))
        return start(self, group)

    monkeypatch.setattr(GroupLoader, "start", noted)
    killed = _kill_in_mid_move(monkeypatch)
    built = replace(weighted, ray=True, on_loss="redo", answers={})
    recorder = serve(built, Waiting(), Moving())
    # The process of the other group goes on with a service more.
    assert started == ["gpu0", "gpu1", "gpu0"]
    assert len(killed) == 1
    assert recorder.counts["groups_lost"] == 1
    assert "the process of gpu0 died" in capfd.readouterr().err
    frame = recorder.requests
    assert frame["finished_s"].notna().all()
    np.testing.assert_array_equal(frame["output_tokens"], load().output_tokens)
    finished = Counter(e.request.id for e in recorder.events if isinstance(e, Finished))
    assert finished == dict.fromkeys(range(len(load())), 1)
    # What has been reported is not computed again.
    made = Counter[int]()
    for event in recorder.events:
        made.update(event.new_tokens if isinstance(event, Iterated) else {})
    assert [made[request] for request in range(len(load()))] == load().output_tokens.tolist()
    assert built.answers == undisturbed
    assert not ray.is_initialized()
