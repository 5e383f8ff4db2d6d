"""Two real engines in one process on one pool of KV blocks."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from baselines.round_robin import RoundRobin
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import Displaced, PriorityOrder
from harness.interface.entities import Service
from harness.interface.moving import MovingKey
from harness.interface.policies import PlacementPolicy, SchedulingPolicy, System
from harness.interface.tables import Floats, RequestTable
from harness.policy_checks import assert_same
from harness.tests.support.batches import watched
from harness.tests.support.serving import Everywhere, LinearCosts, cluster, rule, workload
from harness.tests.support.shared import SHARED, LeastServed, Together
from harness.tools.benchmarks.moving_policies import Ordered
from harness.workloads.workload import Workload

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

from harness.engines.vllm import group as vllm_group  # noqa: E402
from harness.engines.vllm.engine import Vllm  # noqa: E402
from harness.engines.vllm.group import VllmGroup  # noqa: E402
from harness.engines.vllm.planned_scheduler import PlannedBatchScheduler  # noqa: E402
from harness.engines.vllm.prompts import Prompts  # noqa: E402
from harness.engines.vllm.shared_buffer import ALLOCATES, one_buffer  # noqa: E402
from harness.tests.support.real_engine import (  # noqa: E402
    BLOCK,
    BLOCKS,
    MAX_NUM_SEQS,
    TOKENS,
    engine,
    write_weights,
)

RULE = rule(max_num_seqs=8, tokens=TOKENS)
APART = Everywhere(("m0", (0,)), ("m1", (1,)))


def load(count: int = 60) -> Workload:
    """Requests of two services, all there at once."""
    rng = np.random.default_rng(3)
    prompts, outputs = rng.integers(4, 90, count), rng.integers(1, 60, count)
    made = workload(prompts.tolist(), outputs.tolist(), services=2)
    return replace(made, services=tuple(Service(s.id, 100, 1024) for s in made.services))


def serve(
    served_by: Any, work: Workload, policy: SchedulingPolicy, placement: PlacementPolicy
) -> Recorder:
    """Run it."""
    recorder = Recorder()
    served_by.run(work, System("test", policy, RoundRobin(), placement), recorder)
    return recorder


def turns(table: RequestTable) -> MovingKey:
    """Ten tokens of each request, then ten more."""
    ends = 10.0 * np.arange(1.0, 8.0)[None, :] * np.ones((len(table.id), 1))
    until = ends.copy()
    until[:, -1] = np.inf
    return MovingKey(value=ends, slope=0.0 * ends, until=until)


def other_first(table: RequestTable) -> Floats:
    """Requests of m1 before those of m0."""
    return -table.service.astype(np.float64)


POLICIES: dict[str, Callable[[], SchedulingPolicy]] = {
    "arrival": lambda: Ordered(PriorityOrder(None, RULE)),
    "service": lambda: Ordered(PriorityOrder(other_first, RULE, Displaced.RECOMPUTE)),
    "turns": lambda: Ordered(PriorityOrder(turns, RULE, Displaced.PAUSE)),
    "counts events": LeastServed,
}


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """An engine of two models of one shape, which it keeps loaded, together and apart."""
    folder = tmp_path_factory.mktemp("weights")
    for seed, name in enumerate(("m0", "m1")):
        write_weights(folder / name, seed=seed)
    built = engine(
        models={name: str(folder / name) for name in ("m0", "m1")},
        load_format="auto",
        keep_answers=True,
        keep_loaded=True,
    )
    yield built
    for group in built.loaded.values():
        group.stop()


@pytest.fixture(scope="module")
def alone(weighted: Vllm) -> dict[int, list[int]]:
    """The answers of engines that share nothing."""
    serve(weighted, load(), POLICIES["arrival"](), APART)
    return dict(weighted.answers)


@pytest.mark.parametrize("name", POLICIES)
def test_batches_are_the_simulators_and_answers_those_of_engines_apart(
    weighted: Vllm, alone: dict[int, list[int]], name: str
) -> None:
    real, ours = watched(POLICIES[name]()), watched(POLICIES[name]())
    serve(weighted, load(), real, Together())
    simulator = Simulator(
        cluster=cluster(1),
        costs=LinearCosts(blocks=BLOCKS, block=BLOCK, load=0.0),
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=TOKENS,
        fast_forward=False,
    )
    serve(simulator, load(), ours, Together())
    assert_same([(0.0, tokens) for _, tokens in ours.steps], [(0.0, t) for _, t in real.steps])
    assert weighted.answers == alone
    assert len({token for tokens in alone.values() for token in tokens}) > 50
    engines = next(group.engines for group in weighted.loaded.values() if len(group.engines) > 1)
    first, second = (vllm_group.scheduler_of(each).kv_cache_manager for each in engines)
    assert first.block_pool is second.block_pool
    assert first.block_pool.get_num_free_blocks() == BLOCKS


def test_separate_pools_over_the_same_bytes_change_answers(
    weighted: Vllm, alone: dict[int, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: where each engine gives out blocks of its own, KV is overwritten."""
    monkeypatch.setattr(PlannedBatchScheduler, "share_blocks", lambda self, other: None)
    built = replace(weighted, keep_loaded=False, loaded={}, answers={})
    serve(built, load(), POLICIES["arrival"](), Together())
    same = np.array([built.answers[r] == alone[r] for r in range(len(load()))])
    assert same[0::2].mean() < 0.5
    assert same[1::2].mean() < 0.5


def test_models_of_different_shape_share_a_pool(tmp_path: Path) -> None:
    """Of 2048 and 1536 bytes a token: blocks of 96 and 128 tokens have 196,608 bytes."""
    write_weights(tmp_path / "m0", layers=2, kv_heads=2)
    write_weights(tmp_path / "m1", layers=3, kv_heads=1, seed=1)
    built = engine(
        models={name: str(tmp_path / name) for name in ("m0", "m1")},
        load_format="auto",
        keep_answers=True,
        keep_loaded=True,
        kv_blocks=12,
    )
    # As many blocks of 32 tokens would not hold the longest context.
    serve(replace(built, kv_blocks=BLOCKS), load(), POLICIES["arrival"](), APART)
    alone = dict(built.answers)
    for name in ("arrival", "turns"):
        frame = serve(built, load(), POLICIES[name](), Together()).requests
        assert built.answers == alone
        assert frame["preemptions"].sum() > 0
    (shared,) = (group for group in built.loaded.values() if len(group.engines) > 1)
    schedulers = [vllm_group.scheduler_of(each) for each in shared.engines]
    assert [scheduler.block_size for scheduler in schedulers] == [96, 128]
    assert schedulers[1].kv_cache_manager.block_pool.get_num_free_blocks() == 12
    for group in built.loaded.values():
        group.stop()


def test_engines_stay_loaded_where_a_group_changes(
    weighted: Vllm, alone: dict[int, list[int]]
) -> None:
    """It loses a service in the middle of its work, and has it again."""
    work, left = load(), set(range(len(load())))
    prompts, engines = Prompts(work, weighted), list[tuple[Any, ...]]()
    both = weighted.settings(work.services, SHARED)
    served = weighted.loaded.pop(both, None)
    served = served or VllmGroup(vllm_group.new_engines(both), True, both)
    for names, steps in (("m0 m1", 40), ("m0", 20), ("m0 m1", 1000)):
        services = [service for service in work.services if service.id in names.split()]
        group = replace(SHARED, services=frozenset(service.id for service in services))
        served.change(weighted.settings(services, group))
        served.use(POLICIES["arrival"](), group=group, services=services)
        facts = [work.facts(request) for request in sorted(left)]
        served.submit([prompts.submission(f) for f in facts if f.service in group.services])
        while served.has_work and steps:
            served.step()
            steps -= 1
        report = served.report()
        for request, tokens in report.answers.items():
            prompts.answers.setdefault(int(request), []).extend(tokens)
        left -= {int(r) for iteration in report.iterations for r in iteration.finished}
        served.withdraw(everything=True)
        engines.append(served.engines)
    weighted.loaded[both] = served
    assert not left
    assert prompts.answers == alone
    first, alone_there, last = engines
    assert first[0] is alone_there[0] is last[0]
    pools = [vllm_group.scheduler_of(each).kv_cache_manager.block_pool for each in last]
    assert pools[0] is pools[1]
    assert pools[0].get_num_free_blocks() == BLOCKS


def test_a_vllm_whose_allocation_cannot_be_replaced_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = import_module("vllm.v1.worker.gpu_model_runner")
    monkeypatch.delattr(runner, ALLOCATES)
    with (
        pytest.raises(ValueError, match="give each service a group of its own"),
        one_buffer(None),
    ):
        pass
    assert not hasattr(runner, ALLOCATES)
