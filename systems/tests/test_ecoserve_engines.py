"""EcoServe in the simulator and on vLLM's scheduler, with loans and recalls."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from baselines.round_robin import RoundRobin
from harness.engines.engine import Engine
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.entities import LengthPrediction, Request
from harness.interface.policies import System
from harness.tests.support.batches import Step, assert_same, watched
from harness.tests.support.serving import Everywhere, LinearCosts, cluster, workload
from harness.workloads.workload import Workload
from systems.ecoserve.policy import EcoServe
from systems.tests.test_ecoserve import BY_LENGTH, policy


class Wrong:
    """Predictions of a known length with noise, a little late for every third request."""

    foresees: ClassVar[bool] = False

    def __init__(self, load: Workload) -> None:
        noise = np.random.default_rng(1).lognormal(0.0, 0.3, len(load))
        self._tokens = np.clip(load.output_tokens * noise, 1, 250).astype(int).tolist()

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """The length, and when it is known."""
        return LengthPrediction((self._tokens[request.id],)), 0.004 * (request.id % 3 == 0)


def _load() -> Workload:
    rng = np.random.default_rng(3)
    outputs = np.rint(np.clip(rng.lognormal(3.5, 1.0, 120), 1, 250)).astype(int)
    arrivals = np.cumsum(rng.exponential(0.02, 120))
    return workload(
        rng.integers(1, 60, 120).tolist(),
        outputs.tolist(),
        arrivals.tolist(),
        1,
        max_context_tokens=320,
    )


def _eco(slack_ranges_s: list[float], fill: str) -> EcoServe:
    return policy(
        "full",
        ranking=replace(BY_LENGTH, slack_ranges_s=slack_ranges_s),
        fill=fill,
        smallest_tokens=8,
        reserved_share=0.3,
        waiting_share=0.3,
        target_tokens=256,
    )


def _serve(engine: Engine, eco: EcoServe) -> tuple[list[Step], pd.DataFrame]:
    load, seen, recorder = _load(), watched(eco), Recorder()
    placement = Everywhere(*((str(s.id), (gpu,)) for gpu, s in enumerate(load.services)))
    engine.run(load, System("test", seen, RoundRobin(), placement, predictor=Wrong(load)), recorder)
    return seen.steps, recorder.requests


def _about() -> dict[str, Any]:
    return {
        "cluster": cluster(1),
        "costs": LinearCosts(blocks=60, load=0.0),
        "max_num_seqs": 24,
        "max_num_batched_tokens": 640,
    }


CHOICES = [([], "order"), ([0.2, 0.5, 2.0], "order"), ([0.2, 0.5, 2.0], "best")]


@pytest.mark.parametrize(("slack_ranges_s", "fill"), CHOICES)
def test_steady_runs_change_nothing(slack_ranges_s: list[float], fill: str) -> None:
    frames = []
    for fast_forward in (True, False):
        eco = _eco(slack_ranges_s, fill)
        load, recorder = _load(), Recorder()
        system = System("test", eco, RoundRobin(), Everywhere(("m", (0,))), predictor=Wrong(load))
        Simulator(**_about(), fast_forward=fast_forward).run(load, system, recorder)
        frames.append((recorder.requests, dict(eco.counts())))
    pd.testing.assert_frame_equal(frames[0][0], frames[1][0], rtol=1e-9)
    assert frames[0][1] == frames[1][1]


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize(("slack_ranges_s", "fill"), CHOICES)
def test_simulator_and_vllm_lend_and_recall_alike(slack_ranges_s: list[float], fill: str) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    from harness.engines.vllm.dry import VllmDry

    in_simulator, on_vllm = _eco(slack_ranges_s, fill), _eco(slack_ranges_s, fill)
    ours, frame = _serve(Simulator(**_about(), fast_forward=False), in_simulator)
    theirs, counted = _serve(VllmDry(**_about()), on_vllm)
    assert_same(ours, theirs)
    pd.testing.assert_frame_equal(frame, counted, rtol=1e-9)
    assert in_simulator.counts() == on_vllm.counts()
    counts = on_vllm.counts()
    assert counts["loans"] > 0
    if fill == "order":
        assert counts["recalled"] > 0
