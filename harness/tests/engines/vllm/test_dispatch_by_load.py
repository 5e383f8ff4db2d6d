"""Dispatch by load where groups show nothing: what they were given less what they answered."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from baselines.fcfs import Fcfs
from baselines.least_loaded import LeastLoaded
from harness.config.build import build
from harness.config.yaml_files import read_choice
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.entities import GroupId
from harness.interface.events import Arrived
from harness.interface.load_order import LoadOrder
from harness.interface.policies import DispatchPolicy, System
from harness.tests.support.dispatches import LOAD_ORDERS, ByLoad, LooksAtLoad
from harness.tests.support.loads import Load, loads
from harness.tests.support.prefixes import alike
from harness.tests.support.serving import Everywhere, UnevenCosts, cluster, rule, workload
from harness.workloads.workload import Workload

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.engines.vllm.dry import VllmDry  # noqa: E402
from harness.engines.vllm.run import VllmRun  # noqa: E402
from harness.tests.support.real_engine import MAX_NUM_SEQS, TOKENS, engine, kept_engine  # noqa: E402

AFFINITIES = ("prefix_aware", "session_affinity", "lmetric")
"""Files of scenarios/system/dispatch."""


def _named(name: str) -> DispatchPolicy:
    policy: DispatchPolicy = build(read_choice("system/dispatch", name), kind=DispatchPolicy)
    return policy


def _groups(
    served_by: Any, load: Workload, dispatch: DispatchPolicy, *groups: tuple[str, tuple[int, ...]]
) -> tuple[dict[int, GroupId], Recorder]:
    """The group of every request."""
    recorder = Recorder(keep_events=True)
    policy = Fcfs(rule=rule(chunked_prefill=True, max_num_seqs=MAX_NUM_SEQS, tokens=TOKENS))
    served_by.run(load, System("test", policy, dispatch, Everywhere(*groups)), recorder)
    arrived = [event for event in recorder.events if isinstance(event, Arrived)]
    return {int(event.request.id): event.group for event in arrived}, recorder


@pytest.mark.parametrize("order", LOAD_ORDERS, ids=["requests", "prompts", "tokens"])
@given(load=loads(most=20))
@settings(max_examples=5, deadline=None)
def test_the_simulators_choices_on_vllms_scheduler(order: LoadOrder, load: Load) -> None:
    about: dict[str, Any] = {
        "cluster": cluster(4),
        "costs": UnevenCosts(load=0.0),
        "max_num_seqs": MAX_NUM_SEQS,
        "max_num_batched_tokens": TOKENS,
    }
    served = workload(*load, services=2, max_context_tokens=320)
    groups = (("m0", (0,)), ("m0", (1,)), ("m1", (2,)), ("m1", (3,)))
    ours, _ = _groups(Simulator(**about), served, ByLoad(order), *groups)
    theirs, _ = _groups(VllmDry(**about), served, ByLoad(order), *groups)
    assert ours == theirs


@pytest.mark.parametrize("name", AFFINITIES)
def test_names_by_what_is_unfinished_on_vllms_scheduler(name: str) -> None:
    about: dict[str, Any] = {
        "cluster": cluster(2),
        "costs": UnevenCosts(load=0.0),
        "max_num_seqs": MAX_NUM_SEQS,
        "max_num_batched_tokens": TOKENS,
        "prefix_caching": True,
    }
    load, groups = alike(3, 60, gap_s=0.01), (("m", (0,)), ("m", (1,)))
    ours, _ = _groups(Simulator(**about), load, _named(name), *groups)
    theirs, _ = _groups(VllmDry(**about), load, _named(name), *groups)
    assert ours == theirs
    assert len(set(ours.values())) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", AFFINITIES)
def test_real_groups_serve_what_is_named_by_what_is_unfinished(name: str) -> None:
    load = alike(3, 16, gap_s=0.05)
    load = replace(load, services=_load(1, gap_s=0.0).services)
    given, recorder = _groups(kept_engine(), load, _named(name), ("m", (0,)), ("m", (1,)))
    assert recorder.requests["finished_s"].notna().all()
    assert len(set(given.values())) == 2


def _load(count: int, *, gap_s: float) -> Workload:
    """Prompts of up to 90 tokens and answers of 20 to 40."""
    rng = np.random.default_rng(5)
    prompts, outputs = rng.integers(4, 90, count), rng.integers(20, 40, count)
    come_s = np.cumsum(rng.exponential(gap_s, count)) if gap_s else np.zeros(count)
    return workload(prompts.tolist(), outputs.tolist(), come_s.tolist(), max_context_tokens=1024)


@pytest.mark.slow
def test_real_groups_are_dealt_to_as_they_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every choice is that of the group with the fewest given and not answered."""
    deliver, given_to = VllmRun._deliver, {GroupId("m@0"): list[int](), GroupId("m@1"): list[int]()}
    held_then = []

    def watched(self: VllmRun, requests: Sequence[int], groups: Sequence[GroupId]) -> None:
        for request, group in zip(requests, groups, strict=True):
            finished_s = self.state.arrays.finished_s
            held = {name: int(np.isnan(finished_s[ids]).sum()) for name, ids in given_to.items()}
            assert held[group] == min(held.values())
            given_to[group].append(request)
            held_then.append(held[group])
        deliver(self, requests, groups)

    monkeypatch.setattr(VllmRun, "_deliver", watched)
    load = _load(24, gap_s=0.02)
    _groups(kept_engine(), load, LeastLoaded(counts="requests"), ("m", (0,)), ("m", (1,)))
    assert sorted(request for ids in given_to.values() for request in ids) == list(range(24))
    assert max(held_then) > 0


def test_a_policy_that_looks_for_itself_is_refused() -> None:
    sentence = "LooksAtLoad reads the load of groups, which real ones do not show; it may return"
    with pytest.raises(ValueError, match=sentence):
        _groups(engine(), _load(2, gap_s=0.0), LooksAtLoad(LoadOrder()), ("m", (0,)))
