"""Real engines that come and go: stages, requests that move with their tokens, a killed process."""

import time
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.costs.model import ProfileCosts
from harness.engines.recorder import Recorder
from harness.interface.decisions import Deployment
from harness.interface.entities import (
    GpuId,
    Group,
    GroupId,
    RequestId,
    Service,
    ServiceId,
)
from harness.interface.graph import Edges
from harness.interface.policies import System
from harness.planning.plan_tracking import StagedPlacement
from harness.planning.plans import Plan, Stage
from harness.planning.preview import StagePreview
from harness.tests.support.serving import a_group, cluster, rule
from harness.workloads.ecdf import load_lengths
from harness.workloads.workload import Workload

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
import ray

from harness.engines.vllm.group import Report
from harness.engines.vllm.groups import Groups
from harness.engines.vllm.measured import Life
from harness.engines.vllm.prompts import Prompts
from harness.engines.vllm.ray import ANSWER_S, GroupLost, RayGroup
from harness.tests.support.real_engine import engine

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

TINY, SMALL = (ServiceId(name) for name in ("tiny", "small"))
ONE = Plan(1, 1)


class Stages:
    """A planner whose stages are given."""

    def __init__(self, *stages: Stage) -> None:
        self.stages = stages

    def plan(self, preview: StagePreview, gpus: int) -> list[Stage]:
        """Those."""
        return list(self.stages)


def system(*stages: Stage) -> System:
    """First come first served, two at a time, on two slots."""
    costs = ProfileCosts(gpu="CPU", profile_dir="cpu_vllm", memory_share=0.9, parts=("forward",))
    batches = rule(chunked_prefill=True, max_num_seqs=2, tokens=256)
    placement = StagedPlacement(
        planner=Stages(*stages),
        planner_costs=costs,
        lengths={name: load_lengths(name) for name in (TINY, SMALL)},
        rule=batches,
        tensor_parallel=[1],
        keep_replicas=False,
        preemption=True,
        one_seed=False,
        every_expert=True,
        needed_only=False,
        flops_scale=1.0,
        scaled_service="",
        fed_goes_on=False,
        seed=0,
    )
    return System("test", Fcfs(rule=batches), RoundRobin(), placement)


def work(counts: dict[ServiceId, tuple[int, int]], edges: Edges | None = None) -> Workload:
    """So many requests with answers of about so many tokens for each service, all at the start."""
    rng = np.random.default_rng(7)
    service = np.repeat(np.arange(len(counts)), [count for count, _ in counts.values()])
    output = np.concatenate([rng.integers(t // 2, t + 1, n) for n, t in counts.values()])
    own = rng.integers(5, 40, len(service))
    carried = np.zeros_like(own) if edges is None else edges.carried(output)
    every = Workload(
        services=tuple(Service(name, 100, 1024) for name in counts),
        service=service,
        arrival_s=np.zeros(len(service)),
        prompt_tokens=own + carried,
        output_tokens=output,
        max_output_tokens=output.copy(),
        app=np.arange(len(service)),
        deadline_s=np.full(len(service), np.nan),
    )
    return every if edges is None else replace(every, edges=edges, own_tokens=own)


def serve(load: Workload, serving: System, **changes: Any) -> tuple[Recorder, dict[int, list[int]]]:
    """Run it with actors on two slots; what was recorded, and the answers."""
    used: dict[str, Any] = {"models": {}, "ray": True, "keep_answers": True, "on_loss": "redo"}
    used["loads_first"] = False
    recorder, built = Recorder(), engine(**used | changes)
    built.run(load, serving, recorder)
    assert not ray.is_initialized()
    return recorder, built.answers


def loaded(gpu: pd.DataFrame) -> list[str]:
    """Services in the order in which they were loaded."""
    loads = gpu[gpu["use"] == "loading"].sort_values("start_s")
    return loads["group"].str.partition("@")[0].tolist()


def _chain(documents: int, chunks: int) -> Edges:
    """Calls of a document follow each other, the answer of the last goes to a judge."""
    calls = np.arange(documents * chunks).reshape(documents, chunks)
    parent = np.concatenate([calls[:, :-1].ravel(), calls[:, -1]])
    judges = documents * chunks + np.arange(documents)
    child = np.concatenate([calls[:, 1:].ravel(), judges])
    return Edges(parent, child, np.ones(len(parent), np.bool_))


def _assert_apart(gpu: pd.DataFrame) -> None:
    """No two intervals of a GPU overlap."""
    for _, spans in gpu.groupby("gpu"):
        ordered = spans.sort_values("start_s")
        assert (ordered["start_s"].to_numpy()[1:] >= ordered["end_s"].to_numpy()[:-1] - 1e-6).all()


SUMMARIES = 12


def test_a_chain_of_two_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summaries, and then their judges; `test_moved_service` has requests that move."""
    prompts = dict[int, list[int]]()
    asked = Prompts.prompt

    def noted(self: Prompts, request: int) -> list[int]:
        prompts[request] = asked(self, request)
        return list(prompts[request])

    monkeypatch.setattr(Prompts, "prompt", noted)
    edges = _chain(4, 3)
    load = work({TINY: (SUMMARIES, 30), SMALL: (4, 30)}, edges)
    recorder, answers = serve(load, system({TINY: ONE}, {SMALL: ONE}))
    frame, gpu = recorder.requests, recorder.gpu_frame()
    assert frame["finished_s"].notna().all()
    assert [len(answers[r]) for r in range(len(load))] == load.output_tokens.tolist()
    np.testing.assert_array_equal(frame["output_tokens"], load.output_tokens)
    for parent, child in zip(edges.parent.tolist(), edges.child.tolist(), strict=True):
        assert prompts[child][-len(answers[parent]) :] == answers[parent]
        assert len(prompts[child]) == load.prompt_tokens[child]
        assert frame["started_s"][child] >= frame["finished_s"][parent]
    assert loaded(gpu) == ["tiny", "small"]
    _assert_apart(gpu)


def test_a_process_that_does_not_answer_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever for a process that lives and says nothing."""
    monkeypatch.setattr(ray, "wait", lambda promised, timeout: ([], promised))
    group = RayGroup(Group(GroupId("g"), frozenset({TINY}), (GpuId(0),)), Mock(), Mock())
    group.step()
    group.asked_s -= ANSWER_S
    with pytest.raises(GroupLost, match=rf"the process of g has not answered for {ANSWER_S:g} s"):
        group.step()


def _groups(**given: Any) -> Groups:
    """No groups yet, on one slot."""
    names = ("loader", "epoch_s", "account", "give_back", "lost")
    about: dict[str, Any] = {name: Mock() for name in names}
    return Groups(**about | {"cluster": cluster(1), "clock": time.monotonic} | given)


def test_what_a_process_has_reported_before_its_death_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A report that was taken and not accounted for yet: one of two is finished."""
    monkeypatch.setattr(RayGroup, "stop", Mock())
    group, lost = a_group("tiny", 0), list[list[RequestId]]()
    served = RayGroup(group, Mock(), Mock())
    served.unanswered = {RequestId(number): Mock() for number in range(2)}
    served.latest = report = Report((Mock(finished=(RequestId(0),)),), (), {})
    account = Mock()
    groups = _groups(account=account, lost=lambda died, _: lost.append(list(died.unanswered)))
    groups.lose(served, GroupLost("g died"))
    account.assert_called_once_with(group, report)
    assert lost == [[RequestId(1)]]


def test_a_process_that_dies_while_it_changes_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has never loaded ends the run."""
    monkeypatch.setattr(RayGroup, "stop", Mock())
    monkeypatch.setattr(RayGroup, "has_loaded", property(Mock(side_effect=GroupLost("g died"))))
    group, waits = a_group("tiny", 0), Mock(facts=Mock(id=RequestId(0)))
    died, again = RayGroup(group, Mock(), Mock()), Mock(group=group)
    loader = Mock(start=Mock(return_value=again))
    groups = _groups(loader=loader, deployment=Deployment((group,)))
    groups.waiting[group.id], groups.loading[group.id] = [waits], died
    groups.lives.append(Life(group, 0.0))
    with pytest.raises(GroupLost, match="g died"):
        groups.advance()
    died.has_begun = True
    assert groups.advance()
    assert groups.live == {group.id: again}
    again.submit.assert_called_once_with([waits])
    assert groups.dead == [died]


def test_a_process_counts_from_when_all_have_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `loads_first` the clock is set between `wait` and `advance`."""
    monkeypatch.setattr(RayGroup, "wait", Mock())
    for name, value in (("has_loaded", True), ("resolved", Mock())):
        monkeypatch.setattr(RayGroup, name, property(Mock(return_value=value)))
    group, clock = a_group("tiny", 0), Mock(return_value=1.0)
    served = RayGroup(group, Mock(), Mock())
    groups = _groups(epoch_s=clock, deployment=Deployment((group,)))
    groups.waiting[group.id], groups.loading[group.id] = [], served
    groups.lives.append(Life(group, 0.0))
    groups.wait()
    clock.return_value = 2.0
    groups.advance()
    served.actor.tell.remote.assert_called_once_with(0, "begin", 2.0)


def test_groups_that_come_and_go_need_processes_of_their_own() -> None:
    with pytest.raises(ValueError, match=r"engine\.ray=true"):
        serve(work({TINY: (2, 4)}), system({TINY: ONE}), ray=False)
