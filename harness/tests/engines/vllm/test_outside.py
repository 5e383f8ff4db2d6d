"""Units outside any LLM beside vLLM: on the virtual clock, and slept on the real one."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Displaced
from harness.interface.events import AppArrived, AppFinished, Event, UnitFinished, UnitStarted
from harness.interface.policies import System
from harness.policy_checks import assert_same
from harness.tests.support.batches import Watching
from harness.tests.support.learning import learning, scattered
from harness.tests.support.outside import LLM_S, applied, random_applications
from harness.tests.support.policies import RULES
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import Everywhere, LinearCosts, cluster, rule, workload

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.engines.vllm.dry import VllmDry  # noqa: E402
from harness.tests.support.real_engine import kept_engine  # noqa: E402

UNITS: frozenset[type[Event]] = frozenset({AppArrived, UnitStarted, UnitFinished, AppFinished})


@pytest.mark.parametrize("displaces", [None, Displaced.RECOMPUTE])
def test_dry_vllm_runs_the_simulators_batches(displaces: Displaced | None) -> None:
    """Under an order that learns of units and applications, with KV that binds."""
    seen, load = [], random_applications(0, services=1)
    for kind in (partial(Simulator, fast_forward=False), VllmDry):
        placement, recorder = Watching(("m", (0,)), ("m", (1,))), Recorder()
        policy = learning(UNITS, key=scattered, rule=RULES[3], displaces=displaces, renews=True)
        system = System("test", policy, RoundRobin(), placement, predictor=Guess())
        about: dict[str, Any] = {"max_num_seqs": 512, "max_num_batched_tokens": 8192}
        costs = LinearCosts(blocks=12, load=0.0)
        kind(cluster=cluster(2), costs=costs, **about).run(load, system, recorder)
        assert recorder.apps is not None
        seen.append((placement.steps, recorder.apps["finished_s"].tolist()))
    assert_same(seen[0][0], seen[1][0])
    assert seen[0][1] == pytest.approx(seen[1][1])


@pytest.mark.slow
def test_the_real_engine_waits_for_units_outside() -> None:
    """Two applications: an LLM call, 0.3 s outside, an LLM call; the second begins outside."""
    load = applied(
        workload([20, 1, 20, 1, 20], [3, 1, 3, 1, 3], max_context_tokens=1024),
        [(0, 1), (1, 2), (3, 4)],
        app=[0, 0, 0, 1, 1],
        external_s=[LLM_S, 0.3, LLM_S, 0.2, LLM_S],
    )
    recorder = Recorder(keep_events=True)
    fcfs = Fcfs(rule=rule(chunked_prefill=True, max_num_seqs=16, tokens=256))
    kept_engine().run(load, System("test", fcfs, RoundRobin(), Everywhere(("m", (0,)))), recorder)
    assert recorder.apps is not None
    assert recorder.units is not None
    assert recorder.apps["finished_s"].notna().all()
    assert len(recorder.requests) == 3
    slept = recorder.units[recorder.units["outside"]]
    late_s = (slept["finished_s"] - slept["started_s"]).to_numpy() - np.array([0.3, 0.2])
    assert (late_s > -0.01).all()
    told = [
        type(event).__name__
        for event in recorder.events
        if isinstance(event, AppArrived | UnitStarted | UnitFinished | AppFinished)
        and event.app == 0
    ]
    assert told == ["AppArrived", *["UnitStarted", "UnitFinished"] * 3, "AppFinished"]
