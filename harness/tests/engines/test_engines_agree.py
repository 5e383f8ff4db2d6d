"""The simulator, and vLLM's own scheduler and KV manager: the same batches, one by one."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fastserve import FastServe
from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.config.yaml_files import policy_files
from harness.engines.engine import Engine
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import ContinuousBatching, PriorityOrder
from harness.interface.entities import Work
from harness.interface.policies import Capability, SchedulingPolicy, System
from harness.policy_checks import (
    SHORT_KV,
    SMALL,
    IterationStep,
    assert_same,
    maker,
    runs_the_same_batches,
)
from harness.tests.support.applications import applications
from harness.tests.support.batches import watched
from harness.tests.support.loads import closed
from harness.tests.support.policies import LeastServed, Paused, Promoting, Reserving, Restless, Srpt
from harness.tests.support.predictors import Guess
from harness.tests.support.prefixes import alike
from harness.tests.support.serving import (
    SERVICE,
    Everywhere,
    LinearCosts,
    UnevenCosts,
    cluster,
    of_tenants,
    rule,
    workload,
)
from harness.tools.benchmarks.moving_policies import Ordered, allocating, moving, moving_every_token
from harness.workloads.prefixes import Prefixes
from harness.workloads.workload import Workload

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from vllm.v1.core.sched.scheduler import Scheduler  # noqa: E402

from harness.engines.vllm import dry as vllm_dry  # noqa: E402
from harness.engines.vllm.dry import VllmDry  # noqa: E402

POLICIES = policy_files()
WHOLE = [path for path in POLICIES if "StaticBatching" in path.read_text(encoding="utf-8")]
"""Those that batch whole requests, which vLLM does not."""
(VLLM,) = (path for path in POLICIES if path.stem == "vllm")
MAX_NUM_SEQS, TOKENS = SMALL.values()
REQUESTS, FEW = 140, 60


def policies() -> Iterator[Any]:
    """Every policy of the tree in a small engine, and some that use what the others do not."""
    for path in POLICIES:
        if path not in WHOLE and not _is_lacking(path):
            yield pytest.param(lambda path=path: _small(path), id=path.stem)
    by_prompt = PriorityOrder(
        lambda table: -table.prompt_tokens.astype(np.float64), rule(chunked_prefill=True)
    )
    yield pytest.param(lambda: Ordered(by_prompt), id="longest prompt first")
    chunks = rule(chunked_prefill=True, max_num_seqs=MAX_NUM_SEQS // 2, tokens=TOKENS // 4)
    for name, policy in (
        moving(chunks) | moving_every_token(chunks) | allocating(chunks, 4 * MAX_NUM_SEQS)
    ).items():
        yield pytest.param(lambda policy=policy: deepcopy(policy), id=name)
    yield pytest.param(lambda: Paused(), id="pauses")
    yield pytest.param(lambda: Reserving(), id="reserves")
    yield pytest.param(lambda: Srpt(), id="preempts")
    yield pytest.param(lambda: LeastServed(), id="counts events")
    yield pytest.param(lambda: Promoting(0.5), id="turns by the clock")
    for displaces in (None, "pause", "recompute"):
        skips = partial(_skip_join, displaces, chunks)
        yield pytest.param(skips, id=f"promotes, {displaces}")


def _skip_join(displaces: str | None, chunks: ContinuousBatching) -> SchedulingPolicy:
    """One that promotes; with KV in host memory, as its file has it, vLLM cannot."""
    return FastServe(
        costs=LinearCosts(),
        rule=chunks,
        quantum_s=0.02,
        ratio=2.0,
        queues=4,
        displaces=displaces,
        promote_s=0.3,
    )


def _small(path: Path) -> SchedulingPolicy:
    """The policy of a file with limits that bind on a small workload."""
    return maker(path, SMALL)()


LACKS = {Capability.SWAP, Capability.GPU_SHARE}
"""What policies need and vLLM does not offer."""


def _is_lacking(path: Path) -> bool:
    return bool(LACKS & _small(path).requires)


def _load(seed: int, *, timed: bool, count: int = REQUESTS, services: int = 1) -> Workload:
    """Tenants, deadlines, and contexts that fit the smallest KV here."""
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(1, 200, count), rng.integers(1, 60, count)
    gaps = rng.exponential(0.02, count) if timed else np.zeros(count)
    load = workload(
        prompts.tolist(),
        outputs.tolist(),
        np.cumsum(gaps).tolist(),
        services,
        max_context_tokens=320,
    )
    return of_tenants(load, seed, slack_s=9.0)


def _engines(
    blocks: int,
    *,
    intake_s: float = 0.0,
    intake_token_s: float = 0.0,
    received_s: float = 0.0,
) -> tuple[Engine, Engine]:
    about: dict[str, Any] = {
        "cluster": cluster(2),
        "costs": LinearCosts(
            blocks=blocks,
            load=0.0,
            intake_s_per_request=intake_s,
            intake_s_per_prompt_token=intake_token_s,
            received_s_per_request=received_s,
        ),
        "max_num_seqs": MAX_NUM_SEQS,
        "max_num_batched_tokens": TOKENS,
    }
    return Simulator(**about, fast_forward=False), VllmDry(**about)


def _serve(
    engine: Engine, load: Workload, policy: SchedulingPolicy
) -> tuple[list[IterationStep], Any]:
    seen, recorder = watched(policy), Recorder()
    placement = Everywhere(*((str(s.id), (gpu,)) for gpu, s in enumerate(load.services)))
    system = System("test", seen, RoundRobin(), placement, predictor=Guess())
    engine.run(load, system, recorder)
    return seen.steps, recorder.requests


@pytest.mark.slow
@pytest.mark.parametrize("policy", list(policies()))
def test_simulator_and_vllm_run_the_same_batches(policy: Callable[[], SchedulingPolicy]) -> None:
    """Requests are taken in between iterations."""
    runs_the_same_batches(policy, SHORT_KV())


@pytest.mark.slow
@pytest.mark.parametrize("clients", [None, 6, 30])
@pytest.mark.parametrize(("intake_s", "intake_token_s"), [(0.0, 0.0), (0.004, 0.0002)])
@pytest.mark.parametrize("policy", [lambda: _small(VLLM), Srpt], ids=["vllm", "preempts"])
def test_closed_loops_and_intake_run_the_same_batches(
    policy: Callable[[], SchedulingPolicy],
    intake_s: float,
    intake_token_s: float,
    clients: int | None,
) -> None:
    """Requests at their own times, or of clients that think; two services that share them."""
    simulator, dry = _engines(60, intake_s=intake_s, intake_token_s=intake_token_s)
    load = _load(7, timed=True, services=2, count=FEW)
    if clients is not None:
        load = closed(replace(load, deadline_s=np.full(FEW, np.nan)), clients, 0.0113, 0.3)
    ours, frame = _serve(simulator, load, policy())
    theirs, counted = _serve(dry, load, policy())
    assert_same(ours, theirs)
    pd.testing.assert_frame_equal(frame, counted, rtol=1e-9)
    assert counted["finished_s"].notna().all()
    waits_s = counted["waiting_s"] - intake_token_s * counted["prompt_tokens"]
    assert waits_s.min() >= intake_s - 1e-9


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.stem)
def test_batches_of_whole_requests_are_refused(path: Path) -> None:
    _, dry = _engines(blocks=90)
    with pytest.raises(ValueError, match="a priority order for request-level batches, which the"):
        _serve(dry, _load(7, timed=False), _small(path))


@pytest.mark.parametrize(
    "path", [p for p in POLICIES if _is_lacking(p)], ids=lambda path: path.stem
)
def test_what_vllm_lacks_is_refused(path: Path) -> None:
    _, dry = _engines(blocks=90)
    needs = r"preempted KV kept in host|batches side by side on fractions"
    with pytest.raises(ValueError, match=rf"VllmDry lacks what .* needs: ({needs})"):
        _serve(dry, _load(7, timed=False), _small(path))


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [60, 90, 400])
@pytest.mark.parametrize("timed", [False, True])
def test_the_baseline_is_stock_vllm(blocks: int, timed: bool) -> None:
    """FCFS with chunked prefill runs the batches of vLLM's own scheduler, preemptions included."""
    load = _load(11, timed=timed)
    _, dry = _engines(blocks)
    ours, frame = _serve(dry, load, _small(VLLM))
    theirs, preempted = _stock(load, LinearCosts(blocks=blocks, load=0.0), MAX_NUM_SEQS, TOKENS)
    assert_same(ours, theirs)
    assert frame["preemptions"].tolist() == preempted
    assert (sum(preempted) > 0) == (blocks < 400)


@pytest.mark.slow
@given(seed=st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_the_rule_is_stock_vllm_whatever_its_numbers(seed: int) -> None:
    """The simulator itself against stock vLLM: blocks, slots, budgets and lengths at random."""
    rng = np.random.default_rng(seed)
    longest, most = int(rng.choice([20, 300, 900])), int(rng.choice([3, 40, 200]))
    prompts, outputs = rng.integers(1, longest + 1, 40), rng.integers(1, most + 1, 40)
    gaps = rng.exponential(rng.choice([0.001, 0.02, 0.2]), 40) * rng.integers(0, 2)
    # To twentieths, so that some come at the same time and some at the end of an iteration.
    arrivals = (np.floor(gaps.cumsum() * 20) / 20).tolist()
    load = workload(prompts.tolist(), outputs.tolist(), arrivals)
    max_num_seqs, block = int(rng.choice([1, 2, 7, 33])), int(rng.choice([1, 2, 16, 32]))
    tokens = max(max_num_seqs, int(rng.choice([1, 8, 50, 300, 2000])))
    needed = -(-(longest + most) // block)
    costs = LinearCosts(blocks=1 + int(needed * rng.choice([1.0, 1.2, 2.0, 5.0])), block=block)
    costs = replace(costs, load=0.0, received_s_per_request=float(rng.choice([0.0, 0.0037])))
    simulator = Simulator(
        cluster=cluster(1),
        costs=costs,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=tokens,
        fast_forward=False,
    )
    ours, frame = _serve(
        simulator,
        load,
        Fcfs(rule=rule(chunked_prefill=True, max_num_seqs=max_num_seqs, tokens=tokens)),
    )
    theirs, preempted = _stock(load, costs, max_num_seqs, tokens)
    assert_same(ours, theirs)
    assert frame["preemptions"].tolist() == preempted


@pytest.mark.slow
@given(seed=st.integers(0, 10**6))
@settings(max_examples=8, deadline=None)
def test_fcfs_finds_cached_what_stock_vllm_does(seed: int) -> None:
    """Requests that begin alike, with KV for one context, two or many."""
    rng = np.random.default_rng(seed)
    load = alike(seed, 40, gap_s=float(rng.choice([0.0, 0.02, 0.1])))
    block, tokens = int(rng.choice([1, 4, 16])), int(rng.choice([20, 64, 400]))
    blocks = int(-(-150 // block) * rng.choice([1.1, 2.0, 10.0]))
    costs = LinearCosts(blocks=blocks, block=block, load=0.0)
    simulator = Simulator(
        cluster=cluster(1),
        costs=costs,
        max_num_seqs=12,
        max_num_batched_tokens=tokens,
        fast_forward=False,
        prefix_caching=True,
    )
    policy = Fcfs(rule=rule(chunked_prefill=True, max_num_seqs=12, tokens=tokens))
    ours, frame = _serve(simulator, load, policy)
    theirs, preempted = _stock(load, costs, 12, tokens, caches=True)
    assert_same(ours, theirs)
    assert frame["preemptions"].tolist() == preempted


def _stock(
    load: Workload, costs: LinearCosts, max_num_seqs: int, tokens: int, *, caches: bool = False
) -> tuple[list[IterationStep], list[int]]:
    """Batches of vLLM's own scheduler on the same virtual clock; preemptions of each request."""
    scheduler = vllm_dry.new_scheduler(
        Scheduler,
        kv_blocks=costs.blocks,
        block_tokens=costs.block,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=tokens,
        max_context_tokens=4096,
        prefix_caching=caches,
    )
    prefixes = Prefixes.of(load)
    now_s, came, steps, requests = 0.0, 0, [], {}
    while came < len(load) or scheduler.has_unfinished_requests():
        if not scheduler.has_unfinished_requests():
            now_s = max(now_s, float(load.arrival_s[came]))
        received_s = 0.0
        while came < len(load) and load.arrival_s[came] <= now_s:
            requests[f"r{came}"] = vllm_dry.engine_request(
                load.facts(came),
                prefixes.token_owners(came, int(load.prompt_tokens[came])),
                int(load.output_tokens[came]),
                block_tokens=costs.block if caches else None,
            )
            scheduler.add_request(requests[f"r{came}"])
            first_s, more_s = costs.received_s(SERVICE, 1)
            came, received_s = came + 1, received_s + (more_s if received_s else first_s)
        output = scheduler.schedule()
        computed = {int(name[1:]): n for name, n in output.num_scheduled_tokens.items()}
        steps.append((now_s, computed))
        now_s += received_s + _seconds(costs, output, requests)
        vllm_dry.account_for(scheduler, output)
    return steps, [r.num_preemptions for r in requests.values()]


def _seconds(costs: LinearCosts, output: Any, requests: Any) -> float:
    """What the cost model says of a batch that stock vLLM has chosen."""
    chunks, contexts = [], []
    for name, tokens in output.num_scheduled_tokens.items():
        request = requests[name]
        before = request.num_computed_tokens - tokens
        decodes = 0 < before == request.num_tokens - 1 >= request.num_prompt_tokens
        (contexts.append(request.num_tokens) if decodes else chunks.append((before, tokens)))
    total = sum(n for _, n in chunks)
    attended = sum(n * (2.0 * (before + n) - n) for before, n in chunks)
    work = Work(
        len(chunks),
        total,
        total,
        attended,
        len(contexts),
        sum(contexts),
        max(contexts, default=0),
    )
    return costs.iteration_s(SERVICE, 1, work)


@pytest.mark.slow
@given(load=applications(), seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_groups_come_and_go_and_calls_wait_for_others(load: Workload, seed: int) -> None:
    """Requests move with what they have generated; applications of three services."""
    about: dict[str, Any] = {
        "cluster": cluster(4),
        "costs": UnevenCosts(blocks=12, load=0.37),
        "max_num_seqs": MAX_NUM_SEQS,
        "max_num_batched_tokens": TOKENS,
    }
    frames: list[pd.DataFrame] = []
    engines: tuple[Engine, ...] = (Simulator(**about), VllmDry(**about))
    for engine in engines:
        recorder = Recorder()
        placement = Restless(seed, [0.2719, 1.6449, 0.0113], 4)
        policy = Fcfs(rule=rule(chunked_prefill=True, max_num_seqs=6, tokens=64))
        engine.run(load, System("test", policy, RoundRobin(), placement), recorder)
        frames.append(recorder.requests)
    pd.testing.assert_frame_equal(frames[0], frames[1], rtol=1e-9)
