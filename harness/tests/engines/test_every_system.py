"""What holds for every system that a YAML file names. A new file is a new case."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from harness.config.build import build
from harness.costs.model import PARTS, ProfileCosts
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Deployment
from harness.interface.events import Event
from harness.interface.policies import Capability, PlacementPolicy, System
from harness.interface.tables import RequestTable
from harness.interface.views import ClusterView
from harness.policy_checks import assert_conserved, assert_equal
from harness.runs.building import window_of
from harness.tests.support.files import (
    SCENARIOS,
    name_of,
    offered_to_all,
    read_nodes,
)
from harness.tests.support.serving import cluster
from harness.workloads.ecdf import load_lengths
from harness.workloads.ensemble import Ensemble
from harness.workloads.workload import Workload

SYSTEMS = sorted(SCENARIOS.glob("system/*.yaml"))

NUMBERS = [name for name in RequestTable.__slots__ if name != "services"]


GPUS = 8


MODELS = ("vicuna-13b-v1.5", "dolly-v2-12b", "chatglm3-6b")


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
        columns = [getattr(t, name).tobytes() for t in tables for name in NUMBERS]
        return (*columns, view.now_s, view.deployment, dict(view.backlog))


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
    # Whole prompts before decodes, not padded: batches that groups of several services have, too.
    configured = read_nodes(SCENARIOS / "policy" / "vllm_0_3.yaml", path, pads_prompts=False)
    system, costs = configured["system"], _measured()
    load = Ensemble(
        models=MODELS,
        requests=requests,
        max_output_tokens=256,
        output_scale=1.0,
        source="profile",
        profile="mixinstruct_prompts",
        hub_dataset="",
        hub_split="",
        starts_s=0.0,
    ).build(3)
    offered = {
        **offered_to_all(costs, cluster(GPUS)),
        "lengths": {model: load_lengths(model) for model in MODELS},
        "history": window_of(load),
        "planner_costs": costs.with_parts(tuple(system.get("planner_parts", PARTS))),
    }
    placement = _checked_placement(build(system["placement"], offered=offered))
    served = System(
        name=system["name"],
        scheduling=build(configured["policy"], offered=offered),
        dispatch=build(system["dispatch"], offered=offered),
        placement=placement,
    )
    engine = Simulator(
        cluster=cluster(GPUS), costs=costs, max_num_seqs=512, max_num_batched_tokens=65536
    )
    recorder = Recorder(keep_events=True)
    engine.run(load, served, recorder)
    return load, recorder, placement


@pytest.mark.parametrize("path", SYSTEMS, ids=name_of)
def test_a_system_drains_keeps_some_gpu_at_work_and_does_the_same_twice(path: Path) -> None:
    """From start to end some GPU is busy or loading: no stage waits for nothing."""
    for requests in (1, 40):
        load, one, placement = _serve_system(path, requests)
        assert_conserved(load, one)
        assert placement.deployments >= 1
    _, other, _ = _serve_system(path, 40)
    assert_equal(one, other)
    spans = one.gpu_frame().sort_values("start_s")[["start_s", "end_s"]].to_numpy()
    reached_s = 0.0
    for start_s, end_s in spans:
        assert start_s <= reached_s + 1e-9
        reached_s = max(reached_s, end_s)
    assert reached_s == one.requests["finished_s"].max()
