"""The cache of prefixes, and vLLM's own: the same batches, one by one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from baselines.sglang_orders import DfsWeight, Hrrn, Lpm
from baselines.uniboost import UniBoost, UniBoostAda
from baselines.vllm_victims import VllmVictims
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.apps import OUTSIDE
from harness.interface.decisions import Displaced, PriorityOrder
from harness.interface.policies import SchedulingPolicy, System
from harness.policy_checks import assert_same
from harness.tests.support.batches import watched
from harness.tests.support.cases import CASES
from harness.tests.support.prefixes import alike
from harness.tests.support.recorded_requests import trace
from harness.tests.support.serving import Everywhere, LinearCosts, cluster, rule
from harness.tools.benchmarks.moving_policies import DraftFcfs, Ordered
from harness.workloads.workload import Workload

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.engines.vllm.dry import VllmDry  # noqa: E402

MODEL = str(CASES / "models" / "qwen3-30b-a3b.json")


def _policies(max_num_seqs: int, tokens: int) -> dict[str, SchedulingPolicy]:
    chunks = rule(chunked_prefill=True, max_num_seqs=max_num_seqs, tokens=tokens)
    whole = rule(max_num_seqs=max_num_seqs, tokens=max(tokens, 200), spare=0.05)

    def shortest(table: Any) -> Any:
        return table.prompt_tokens.astype(np.float64)

    # Few are sorted, and short beginnings count: all of what these do comes up.
    sorts: dict[str, Any] = {
        "rule": chunks,
        "most_sorted": 16,
        "matched_tokens": 8,
        "shared_tokens": 8,
    }
    boosts: dict[str, Any] = {"rule": chunks, "gamma_per_s": 10.0, "s_per_token": 1e-3}
    ada: dict[str, Any] = {"window": 8, "least": 3, "every_s": 0.1, "most_gamma_per_s": 200.0}
    return {
        "lpm": Lpm(**sorts, aging_tokens_per_pass=0),
        "lpm with aging": Lpm(**sorts, aging_tokens_per_pass=8),
        "hrrn": Hrrn(**sorts),
        "dfs-weight": DfsWeight(rule=chunks),
        "uniboost": UniBoost(**boosts),
        "uniboost, ada": UniBoostAda(**boosts, **ada),
        "lcf": VllmVictims(rule=chunks, victim="lcf"),
        "cost-aware": VllmVictims(rule=chunks, victim="cost_aware"),
        "fcfs": Fcfs(rule=chunks),
        "whole prompts": Fcfs(rule=whole),
        "shortest first": Ordered(PriorityOrder(shortest, chunks)),
        "displacing": Ordered(PriorityOrder(shortest, chunks, Displaced.RECOMPUTE)),
        "pausing": Ordered(PriorityOrder(shortest, chunks, Displaced.PAUSE)),
        "draft": DraftFcfs(),
    }


def _same_batches(load: Workload, policy: Callable[[], SchedulingPolicy], **costs: int) -> int:
    """Assert that the simulator's are vLLM's; tokens of prompts and answers that were cached.

    So are its times where orders are followed in compiled code.
    """
    about: dict[str, Any] = {
        "cluster": cluster(1),
        "costs": LinearCosts(**costs, load=0.0),
        "max_num_seqs": 12,
        "max_num_batched_tokens": 2048,
        "prefix_caching": True,
    }
    (service,) = {str(each.id) for each in load.services} - {str(OUTSIDE)}
    steps, frames = [], []
    for engine in (Simulator(**about, fast_forward=False), VllmDry(**about)):
        seen, recorder = watched(policy()), Recorder()
        engine.run(load, System("test", seen, RoundRobin(), Everywhere((service, (0,)))), recorder)
        steps.append(seen.steps)
        frames.append(recorder.requests)
    compiled = Recorder()
    system = System("test", policy(), RoundRobin(), Everywhere((service, (0,))))
    Simulator(**about).run(load, system, compiled)
    assert_same(*steps)
    pd.testing.assert_frame_equal(compiled.requests, frames[1], rtol=1e-9)
    pd.testing.assert_frame_equal(frames[0], frames[1], rtol=1e-9)
    assert frames[0]["finished_s"].notna().all()
    fresh = int(load.prompt_tokens.sum() + load.output_tokens.sum()) - len(load)
    return fresh - sum(sum(tokens.values()) for _, tokens in steps[0])


@pytest.mark.parametrize("name", list(_policies(2, 2)))
@given(seed=st.integers(0, 10**6))
@settings(max_examples=4, deadline=None)
def test_simulator_and_vllm_find_the_same_cached(name: str, seed: int) -> None:
    """With KV for two contexts or for many, in small or large blocks."""
    rng = np.random.default_rng(seed)
    load = alike(seed, 40, gap_s=float(rng.choice([0.0, 0.02, 0.1])))
    block = int(rng.choice([1, 4, 16]))
    blocks = int(-(-150 // block) * rng.choice([1.1, 2.0, 10.0]))
    tokens = int(rng.choice([20, 64, 400]))
    _same_batches(load, lambda: _policies(12, tokens)[name], blocks=blocks, block=block)


def _sessions(folder: Path) -> Path:
    """Ten sessions of four turns, each some seconds after the answer before it."""
    rng, rows = np.random.default_rng(1), []
    for number in range(40):
        turn, session = divmod(number, 10)
        when = {"delay": int(rng.integers(0, 900))} if turn else {"timestamp": 70 * session}
        lengths = {"input_length": int(rng.integers(5, 90)), "output_length": 20 + session}
        rows.append(json.dumps({"session_id": f"s{session}", **when, **lengths}))
    path = folder / "sessions.jsonl"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("is_hashed", "blocks"), [(True, 20_000), (True, 1_500), (False, 2_000), (False, 60)]
)
def test_a_trace_of_conversations_hits_alike(is_hashed: bool, blocks: int, tmp_path: Path) -> None:
    """Room for all that was served, or for little more than the longest prompt of the trace."""
    recorded = (
        trace(CASES / "traces" / "mooncake_multiturn.jsonl", model=MODEL, requests=16)
        if is_hashed
        else trace(_sessions(tmp_path), model=MODEL)
    )
    assert _same_batches(recorded.build(0), lambda: _policies(12, 2048)["fcfs"], blocks=blocks) > 0
