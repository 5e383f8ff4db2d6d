"""The cache of prefixes, and vLLM's own: the same batches, one by one."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Displaced, PriorityOrder
from harness.interface.policies import SchedulingPolicy, System
from harness.policy_checks import assert_same
from harness.tests.support.batches import watched
from harness.tests.support.prefixes import alike
from harness.tests.support.serving import SERVICE, Everywhere, LinearCosts, cluster, rule
from harness.tools.benchmarks.moving_policies import DraftFcfs, Ordered

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.engines.vllm.dry import VllmDry  # noqa: E402


def _policies(max_num_seqs: int, tokens: int) -> dict[str, SchedulingPolicy]:
    chunks = rule(chunked_prefill=True, max_num_seqs=max_num_seqs, tokens=tokens)
    whole = rule(max_num_seqs=max_num_seqs, tokens=max(tokens, 200), spare=0.05)

    def shortest(table: Any) -> Any:
        return table.prompt_tokens.astype(np.float64)

    return {
        "fcfs": Fcfs(rule=chunks),
        "whole prompts": Fcfs(rule=whole),
        "shortest first": Ordered(PriorityOrder(shortest, chunks)),
        "displacing": Ordered(PriorityOrder(shortest, chunks, Displaced.RECOMPUTE)),
        "pausing": Ordered(PriorityOrder(shortest, chunks, Displaced.PAUSE)),
        "draft": DraftFcfs(),
    }


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
    about: dict[str, Any] = {
        "cluster": cluster(1),
        "costs": LinearCosts(blocks=blocks, block=block, load=0.0),
        "max_num_seqs": 12,
        "max_num_batched_tokens": 400,
        "prefix_caching": True,
    }
    steps, frames = [], []
    for engine in (Simulator(**about, fast_forward=False), VllmDry(**about)):
        seen, recorder = watched(_policies(12, tokens)[name]), Recorder()
        system = System("test", seen, RoundRobin(), Everywhere((SERVICE, (0,))))
        engine.run(load, system, recorder)
        steps.append(seen.steps)
        frames.append(recorder.requests)
    assert_same(*steps)
    pd.testing.assert_frame_equal(frames[0], frames[1], rtol=1e-9)
    assert frames[0]["finished_s"].notna().all()
