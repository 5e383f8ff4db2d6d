"""Traces of conversations of several turns, on the simulator and vLLM: the same batches."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.apps import OUTSIDE
from harness.interface.policies import System
from harness.policy_checks import assert_same
from harness.tests.support.batches import watched
from harness.tests.support.cases import CASES
from harness.tests.support.recorded_requests import trace
from harness.tests.support.serving import Everywhere, LinearCosts, cluster, rule
from harness.workloads.workload import Workload

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.engines.vllm.dry import VllmDry  # noqa: E402

MODEL = str(CASES / "models" / "qwen3-30b-a3b.json")
HASHED = CASES / "traces" / "mooncake_multiturn.jsonl"


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


def _same_batches(load: Workload, blocks: int) -> tuple[pd.DataFrame, float]:
    """Requests of the simulator, whose batches were vLLM's, and the cached share of its prompts."""
    about: dict[str, Any] = {
        "cluster": cluster(1),
        "costs": LinearCosts(blocks=blocks, load=0.0),
        "max_num_seqs": 12,
        "max_num_batched_tokens": 2048,
        "prefix_caching": True,
    }
    (service,) = {str(each.id) for each in load.services} - {str(OUTSIDE)}
    steps, frames = [], []
    for engine in (Simulator(**about, fast_forward=False), VllmDry(**about)):
        recorder = Recorder()
        seen = watched(Fcfs(rule=rule(chunked_prefill=True, max_num_seqs=12, tokens=2048)))
        system = System("test", seen, RoundRobin(), Everywhere((service, (0,))))
        engine.run(load, system, recorder)
        steps.append(seen.steps)
        frames.append(recorder.requests)
    assert_same(*steps)
    pd.testing.assert_frame_equal(frames[0], frames[1], rtol=1e-9)
    assert frames[0]["finished_s"].notna().all()
    computed = sum(sum(tokens.values()) for _, tokens in steps[0])
    fresh = load.prompt_tokens.sum() + load.output_tokens.sum() - len(load)
    return frames[0], 1.0 - computed / fresh


@pytest.mark.parametrize("blocks", [20_000, 1_500])
def test_a_trace_of_hashed_blocks_hits_alike(blocks: int) -> None:
    """Room for all that was served, or for little more than the longest prompt of the trace."""
    _, cached = _same_batches(trace(HASHED, model=MODEL, requests=16).build(0), blocks)
    assert cached > 0


@pytest.mark.parametrize("blocks", [2_000, 60])
def test_a_trace_of_sessions_hits_alike(blocks: int, tmp_path: Path) -> None:
    _, cached = _same_batches(trace(_sessions(tmp_path), model=MODEL).build(0), blocks)
    assert cached > 0
