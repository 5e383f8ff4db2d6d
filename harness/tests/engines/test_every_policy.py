"""What holds for every policy and system that a YAML file names. A new file is a new case."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from harness.build import build
from harness.costs.gpus import gpu_facts
from harness.costs.model import PARTS, ProfileCosts
from harness.engines.recorder import GpuUse, Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Decision, Deployment
from harness.interface.entities import Cluster
from harness.interface.events import Event, Finished
from harness.interface.policies import Capability, PlacementPolicy, SchedulingPolicy, System
from harness.interface.views import ClusterView, GroupView
from harness.predictors.ecdf import load_lengths
from harness.runs.choices import read_choice
from harness.tests.support.serving import LinearCosts, cluster, serve, workload
from harness.workloads.ensemble import Ensemble
from harness.workloads.workload import Workload

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"
POLICIES = sorted(SCENARIOS.glob("policy/**/*.yaml"))
SYSTEMS = sorted(SCENARIOS.glob("system/*.yaml"))
GPUS = 8
MODELS = ("vicuna-13b-v1.5", "dolly-v2-12b", "chatglm3-6b")


def _name(path: Path) -> str:
    return path.stem


def _configured(policy: Path, system: Path | None = None) -> dict[str, Any]:
    """What the files say, with references between them resolved."""
    groups: dict[str, Any] = {
        "variant": "paper",
        "policy": OmegaConf.load(policy),
        "system": read_choice("system", system.stem) if system else {},
    }
    plain = OmegaConf.to_container(OmegaConf.create(groups), resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _offered(costs: Any, machine: Cluster) -> dict[str, object]:
    return {"costs": costs, "cluster": machine, "seed": 0}


def _policy(path: Path) -> SchedulingPolicy:
    """A fresh policy; skips where it needs what the simulator does not offer."""
    offered = _offered(LinearCosts(), cluster())
    policy: SchedulingPolicy = build(_configured(path)["policy"], offered=offered)
    if missing := policy.requires - Simulator.supports:
        pytest.skip(f"the simulator lacks {', '.join(sorted(c.value for c in missing))}")
    return policy


def _loads() -> dict[str, tuple[Workload, LinearCosts]]:
    """A burst, arrivals over time for two services, and more requests than the KV holds."""
    rng = np.random.default_rng(11)
    prompts, outputs = rng.integers(1, 120, 40).tolist(), rng.integers(1, 80, 40).tolist()
    arrivals_s = np.cumsum(rng.exponential(0.06, 40)).tolist()
    return {
        "burst": (workload(prompts, outputs), LinearCosts(blocks=800)),
        "online": (workload(prompts, outputs, arrivals_s, services=2), LinearCosts(blocks=200)),
        "tight": (workload(prompts, outputs, arrivals_s), LinearCosts(blocks=40)),
    }


LOADS = _loads()


def _fingerprint(view: GroupView) -> tuple[object, ...]:
    """Everything of a view that a decision may rest on."""
    table = view.table
    columns = [getattr(table, name).tobytes() for name in type(table).__slots__]
    ledger = [(i, view.kv.holding(i), view.kv.reservation(i)) for i in view.requests]
    free = [view.kv.free_blocks(service) for service in view.services]
    rest = (view.now_s, view.group, view.in_flight, view.free_share, view.max_num_batched_tokens)
    return (*columns, *ledger, *free, *rest, view.kv.problems().copy() == [])


@dataclass
class Checked:
    """Lets a policy decide and checks that it only looked."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    inner: SchedulingPolicy
    waited: bool = False
    asked: int = 0

    def observe(self, event: Event) -> None:
        """Pass it on."""
        self.inner.observe(event)

    def schedule(self, view: GroupView) -> Decision:
        """Compare the view before and after, and the key of a priority order with itself."""
        self.asked += 1
        before = _fingerprint(view)
        decision = self.inner.schedule(view)
        assert _fingerprint(view) == before
        if decision.priority_order is not None and decision.priority_order.key is not None:
            table = view.table
            key = decision.priority_order.key(table)
            assert key.shape == table.id.shape
            np.testing.assert_array_equal(key, decision.priority_order.key(table))
            assert _fingerprint(view) == before
        self.waited |= not decision.launch and decision.priority_order is None
        return decision


def _checked(policy: SchedulingPolicy) -> Checked:
    """The policy between checks, with its own needs and events."""

    class Same(Checked):
        requires = policy.requires
        subscribes = policy.subscribes

    return Same(policy)


def _assert_conserved(load: Workload, recorder: Recorder) -> None:
    """Every request ends once, with the tokens asked, after its first token and its arrival."""
    frame = recorder.requests
    np.testing.assert_array_equal(frame["output_tokens"], load.output_tokens)
    assert (frame["arrival_s"] < frame["first_token_s"]).all()
    assert (frame["first_token_s"] <= frame["finished_s"]).all()
    ends = [event.request.id for event in recorder.events if isinstance(event, Finished)]
    assert sorted(ends) == list(range(len(load)))


def _assert_equal(one: Recorder, other: Recorder) -> None:
    pd.testing.assert_frame_equal(one.requests, other.requests, check_exact=True)
    pd.testing.assert_frame_equal(one.gpu_frame(), other.gpu_frame(), check_exact=True)
    assert one.events == other.events


def test_there_are_policies_and_systems() -> None:
    assert len(POLICIES) >= 2
    assert len(SYSTEMS) >= 3


@pytest.mark.parametrize("kind", LOADS)
@pytest.mark.parametrize("path", POLICIES, ids=_name)
def test_a_policy_drains_and_does_the_same_twice(path: Path, kind: str) -> None:
    load, costs = LOADS[kind]
    one, other = (
        serve(load, _policy(path), costs=costs, recorder=Recorder(keep_events=True))
        for _ in range(2)
    )
    _assert_conserved(load, one)
    _assert_equal(one, other)


@pytest.mark.parametrize("kind", LOADS)
@pytest.mark.parametrize("path", POLICIES, ids=_name)
def test_a_policy_only_looks(path: Path, kind: str) -> None:
    """Asked at every iteration, it leaves every view as it was."""
    load, costs = LOADS[kind]
    policy = _checked(_policy(path))
    serve(load, policy, costs=costs, fast_forward=False)
    # Once for each batch of up to four whole requests, if not for each iteration.
    assert policy.asked >= len(load) / 4


@pytest.mark.parametrize("path", POLICIES, ids=_name)
def test_a_policy_does_not_idle_with_work(path: Path) -> None:
    """A burst: from load to last finish the GPU is busy, unless the policy asked to wait."""
    load, costs = LOADS["burst"]
    policy = _checked(_policy(path))
    recorder = serve(load, policy, costs=costs, fast_forward=False)
    frame = recorder.gpu_frame()
    busy = frame[frame["use"] == GpuUse.BUSY.value]
    busy_s = (busy["end_s"] - busy["start_s"]).sum()
    span_s = recorder.requests["finished_s"].max() - costs.load
    assert policy.waited or busy_s == pytest.approx(span_s, rel=1e-9)


@pytest.mark.parametrize("path", POLICIES, ids=_name)
def test_fast_forward_changes_nothing(path: Path) -> None:
    for load, costs in LOADS.values():
        on, off = (
            serve(load, _policy(path), costs=costs, fast_forward=fast).requests
            for fast in (True, False)
        )
        np.testing.assert_array_equal(on["preemptions"], off["preemptions"])
        times = ["first_token_s", "finished_s", "gpu_s"]
        np.testing.assert_allclose(on[times], off[times], rtol=1e-9)


# Systems: their placements with the measured costs


@dataclass
class CheckedPlacement:
    """Lets a placement decide; checks that it only looked and used GPUs there are."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    inner: PlacementPolicy
    deployments: int = 0

    def observe(self, event: Event) -> None:
        """Pass it on."""
        self.inner.observe(event)

    def place(self, view: ClusterView) -> Deployment:
        """Compare before and after."""
        before = self._seen(view)
        deployment = self.inner.place(view)
        assert self._seen(view) == before
        used = [gpu for group in deployment.groups for gpu in group.gpus]
        assert len(set(used)) == len(used) <= GPUS
        self.deployments += 1
        return deployment

    @staticmethod
    def _seen(view: ClusterView) -> tuple[object, ...]:
        tables = [view.unfinished(service) for service in view.services]
        columns = [getattr(t, name).tobytes() for t in tables for name in type(t).__slots__]
        return (*columns, view.now_s, view.deployment, dict(view.queued), dict(view.backlog))


def _checked_placement(policy: PlacementPolicy) -> CheckedPlacement:
    """The policy between checks, with its own needs and events."""

    class Same(CheckedPlacement):
        requires = policy.requires
        subscribes = policy.subscribes

    return Same(policy)


def _measured() -> ProfileCosts:
    return ProfileCosts(
        gpu="A100-80G", profile_dir="a100_80g_vllm_0_3", memory_share=0.9, parts=PARTS
    )


def _serve_system(path: Path, requests: int) -> tuple[Workload, Recorder, CheckedPlacement]:
    """Three models answer so many prompts on eight GPUs."""
    configured = _configured(SCENARIOS / "policy" / "vllm_0_3.yaml", path)
    system, costs = configured["system"], _measured()
    machine = Cluster(
        cluster(GPUS).gpus, cluster(GPUS).nvlink_islands, gpu_facts("A100-80G").memory_bytes
    )
    offered = {
        **_offered(costs, machine),
        "lengths": {model: load_lengths(model) for model in MODELS},
        "planner_costs": costs.with_parts(tuple(system.get("planner_parts", PARTS))),
    }
    load = Ensemble(
        models=MODELS,
        requests=requests,
        max_output_tokens=256,
        output_scale=1.0,
        source="profile",
        profile="mixinstruct_prompts",
        hub_dataset="",
        hub_split="",
    ).build(3)
    placement = _checked_placement(build(system["placement"], offered=offered))
    served = System(
        name=system["name"],
        scheduling=build(configured["policy"], offered=offered),
        dispatch=build(system["dispatch"], offered=offered),
        placement=placement,
    )
    engine = Simulator(cluster=machine, costs=costs, max_num_seqs=512, max_num_batched_tokens=65536)
    recorder = Recorder(keep_events=True)
    engine.run(load, served, recorder)
    return load, recorder, placement


@pytest.mark.parametrize("requests", [1, 40])
@pytest.mark.parametrize("path", SYSTEMS, ids=_name)
def test_a_system_drains_and_does_the_same_twice(path: Path, requests: int) -> None:
    load, one, placement = _serve_system(path, requests)
    _, other, _ = _serve_system(path, requests)
    _assert_conserved(load, one)
    _assert_equal(one, other)
    assert placement.deployments >= 1


@pytest.mark.parametrize("path", SYSTEMS, ids=_name)
def test_a_system_keeps_some_gpu_at_work(path: Path) -> None:
    """From start to end some GPU is busy or loading: no stage waits for nothing."""
    _, recorder, _ = _serve_system(path, 40)
    spans = recorder.gpu_frame().sort_values("start_s")[["start_s", "end_s"]].to_numpy()
    reached_s = 0.0
    for start_s, end_s in spans:
        assert start_s <= reached_s + 1e-9
        reached_s = max(reached_s, end_s)
    assert reached_s == recorder.requests["finished_s"].max()
