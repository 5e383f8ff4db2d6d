"""Groups of several services: the simulator, and vLLM's schedulers on one pool of KV blocks."""

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from baselines.round_robin import RoundRobin
from harness.config.build import build
from harness.config.yaml_files import policy_files, read_policy
from harness.engines.engine import Engine
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Displaced, PriorityOrder
from harness.interface.policies import SchedulingPolicy, System
from harness.interface.tables import Floats, RequestTable
from harness.policy_checks import IterationStep, assert_same
from harness.tests.support.batches import watched
from harness.tests.support.files import offered_to_all
from harness.tests.support.serving import LinearCosts, TwoSizes, cluster, rule, workload
from harness.tests.support.shared import LeastServed, Together
from harness.tools.benchmarks.moving_policies import Ordered, attained_seconds
from harness.workloads.workload import Workload

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.engines.vllm.dry import VllmDry  # noqa: E402

FILES = {"doubling_budget", "service_round_robin", "shared_fcfs", "shared_skip_join"}
MAX_NUM_SEQS, TOKENS = 24, 640
FEW_BLOCKS, MANY_BLOCKS = 40, 2000


def service_first(table: RequestTable) -> Floats:
    """Requests of m1 before those of m0."""
    return -table.service.astype(np.float64)


def policies() -> Iterator[Any]:
    """Orders by keys that stand and that move, whoever is displaced, and a policy of drafts."""
    keys = {
        "arrival": None,
        "service": service_first,
        "attained": attained_seconds,
    }
    ways = product(keys.items(), (None, Displaced.PAUSE, Displaced.RECOMPUTE))
    for at, ((name, key), displaces) in enumerate(ways):
        prompts_first = at % 2 == 0
        batch_rule = rule(max_num_seqs=8, tokens=TOKENS // 2, prompts_first=prompts_first)
        order = PriorityOrder(key, batch_rule, displaces)
        yield pytest.param(
            lambda order=order: Ordered(order), id=f"{name}-{displaces}-{prompts_first}"
        )
    starves_after_s = {"m0": 0.5, "m1": 1.0}.__getitem__
    order = PriorityOrder(service_first, batch_rule, starves_after_s=starves_after_s)
    yield pytest.param(lambda order=order: Ordered(order), id="starving")
    yield pytest.param(LeastServed, id="counts events")
    for path in policy_files():
        if path.stem in FILES:
            yield pytest.param(lambda path=path: _small(path), id=path.stem)


def _small(path: Path) -> SchedulingPolicy:
    """The policy of a file with limits that bind on a small workload."""
    node = read_policy(path)
    node["rule"] |= {"max_num_seqs": 8, "max_num_batched_tokens": TOKENS // 2}
    costs = LinearCosts(blocks=FEW_BLOCKS, load=0.0)
    policy: SchedulingPolicy = build(node, offered=offered_to_all(costs, cluster(1)))
    return policy


def load(*, timed: bool, count: int = 60) -> Workload:
    """Contexts that fit the smallest KV here."""
    rng = np.random.default_rng(5)
    gaps = rng.exponential(0.05, count) if timed else np.zeros(count)
    prompts, outputs = rng.integers(1, 200, count), rng.integers(1, 60, count)
    arrivals = np.cumsum(gaps).tolist()
    return workload(
        prompts.tolist(), outputs.tolist(), arrivals, services=2, max_context_tokens=320
    )


def served(
    engine: type[Simulator] | type[VllmDry],
    work: Workload,
    policy: SchedulingPolicy,
    costs: LinearCosts,
    **more: Any,
) -> tuple[list[IterationStep], pd.DataFrame]:
    """Batches of both services on GPU 0, and the times of all requests."""
    built: Engine = engine(
        cluster=cluster(1),
        costs=costs,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=TOKENS,
        **more,
    )
    seen, recorder = watched(policy), Recorder()
    built.run(work, System("test", seen, RoundRobin(), Together()), recorder)
    return seen.steps, recorder.requests


@pytest.mark.slow
@pytest.mark.parametrize("policy", list(policies()))
@pytest.mark.parametrize(("blocks", "timed"), [(FEW_BLOCKS, True), (MANY_BLOCKS, True)])
def test_the_same_batches_on_one_pool(
    policy: Callable[[], SchedulingPolicy], blocks: int, timed: bool
) -> None:
    work = load(timed=timed)
    costs = LinearCosts(blocks=blocks, load=0.0, received_s_per_request=0.0013)
    ours, frame = served(Simulator, work, policy(), costs, fast_forward=False)
    theirs, counted = served(VllmDry, work, policy(), costs)
    assert_same(ours, theirs)
    pd.testing.assert_frame_equal(frame, counted, rtol=1e-9)
    assert counted["finished_s"].notna().all()


def test_blocks_of_different_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"have different bytes: {'m0': 1600, 'm1': 4800}"):
        served(VllmDry, load(timed=False), LeastServed(), TwoSizes(blocks=90))
