"""What holds for every scheduling policy: the checks of the tests and of `harness.rank`.

A check makes fresh policies and serves a made-up load. It raises AssertionError where a policy
breaks it, what the engine raises, or `NotOfferedError` where that lacks what the policy needs.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from baselines.fixed_placement import FixedPlacement
from baselines.round_robin import RoundRobin
from harness.config.build import build
from harness.config.engine_limits import USUAL
from harness.config.yaml_files import read_policy
from harness.core.kv_ledger import ledger_of
from harness.core.ledger_problems import problems
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import model_facts
from harness.engines.engine import Engine
from harness.engines.host_memory import HostMemory
from harness.engines.recorder import GpuUse, Recorder, area_under_number_s
from harness.engines.simulator.loop import Simulator
from harness.interface.decisions import ContinuousBatching, Decision, StaticBatching
from harness.interface.entities import Cluster, GpuId, Service, ServiceId, Work
from harness.interface.events import Arrived, Event, Finished, Iterated
from harness.interface.moving import MovingKey
from harness.interface.policies import Capability, SchedulingPolicy, System
from harness.interface.tables import Floats
from harness.interface.views import GroupView
from harness.predictors.ground_truth import Known
from harness.workloads.workload import Workload

Make = Callable[[], SchedulingPolicy]
"""Makes a fresh policy."""
IterationStep = tuple[float, dict[int, int]]
"""An iteration: its begin, and the tokens of each request."""
CONTEXT_TOKENS, BLOCK_TOKENS, LOAD_S = 320, 16, 0.25
SMALL: Mapping[str, int] = {"max_num_seqs": 24, "max_num_batched_tokens": 640}
"""Limits that bind on the loads here."""
LIMITS: Mapping[str, int] = {"max_num_seqs": 512, "max_num_batched_tokens": 8192}
PLAIN, RECEIVES = "Llama-2-7b-hf", "tiny"
"""Models; of the last, taking requests in takes seconds between two iterations."""
MACHINES: Mapping[str, Mapping[str, Any]] = {
    PLAIN: {"gpu": "A100-80G", "profile_dir": "a100_80g_vllm_0_3", "engine": "vllm-0.3-eager"},
    RECEIVES: {"gpu": "CPU", "profile_dir": "cpu_vllm", "engine": "vllm-sync"},
}
TOKEN_BYTES = model_facts(PLAIN).kv_bytes_per_token
HOST_MEMORY = HostMemory(kv_bytes=200 * TOKEN_BYTES, bytes_per_s=1e4 * TOKEN_BYTES)
SIMULATOR = partial(Simulator, host_memory=HOST_MEMORY)


class NotOfferedError(Exception):
    """The engine lacks what a policy needs."""


@dataclass(frozen=True, slots=True)
class CheckedLoad:
    """Requests, and what the GPU of each of their services takes and has room for."""

    requests: Workload
    costs: ProfileCosts
    blocks: int
    receives: bool


def load_of(
    prompts: ArrayLike,
    outputs: ArrayLike,
    arrivals_s: ArrayLike,
    *,
    blocks: int,
    model: str = PLAIN,
    services: int = 1,
) -> CheckedLoad:
    """Requests of services in turn, of three tenants, most with a deadline."""
    count, rng = np.size(prompts), np.random.default_rng(11)
    deadline_s = np.add(arrivals_s, rng.uniform(0.0, 6.0, count))
    deadline_s[rng.random(count) < 0.3] = np.nan
    names = [model] if services == 1 else [f"{model}~{number}" for number in range(services)]
    token_bytes = model_facts(model).kv_bytes_per_token
    requests = Workload(
        services=tuple(Service(ServiceId(it), token_bytes, CONTEXT_TOKENS) for it in names),
        service=np.arange(count) % services,
        arrival_s=np.array(arrivals_s, np.float64),
        prompt_tokens=np.array(prompts, np.int64),
        output_tokens=np.array(outputs, np.int64),
        max_output_tokens=np.add(outputs, 5),
        app=np.arange(count),
        deadline_s=deadline_s,
        tenants=("a", "b", "c"),
        tenant=rng.integers(0, 3, count),
    )
    return CheckedLoad(requests, _costs(model, blocks), blocks, model == RECEIVES)


@cache
def _costs(model: str, blocks: int) -> ProfileCosts:
    """With KV for so many blocks."""
    return ProfileCosts(
        **MACHINES[model],
        memory_share=0.9,
        parts=PARTS,
        engine_start_s=LOAD_S,
        weights_bytes_per_s=1e30,
        kv_bytes=blocks * BLOCK_TOKENS * model_facts(model).kv_bytes_per_token,
        block_tokens=BLOCK_TOKENS,
    )


def random_load(seed: int, count: int, gap_s: float, **about: Any) -> CheckedLoad:
    """Requests that come so far apart on average; `about` is that of `load_of`."""
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(1, 120, count), rng.integers(1, 80, count)
    return load_of(prompts, outputs, gap_s * rng.exponential(1.0, count).cumsum(), **about)


LOADS: Mapping[str, Callable[[], CheckedLoad]] = {
    "a burst": partial(random_load, 11, 40, 0.0, blocks=800),
    "two services": partial(random_load, 11, 40, 0.06, blocks=200, services=2),
    "short KV": partial(random_load, 11, 40, 0.06, blocks=40, model=RECEIVES),
}
SHORT_KV = partial(random_load, 7, 60, 0.01, blocks=40, services=2, model=RECEIVES)
"""Makes requests of two services with KV for about six of them each: it binds all the time."""


def maker(path: Path, limits: Mapping[str, int] = USUAL) -> Make:
    """Of the policy of a file, in an engine of these limits."""
    node = read_policy(path, limits)
    rule = node.get("rule", {})
    rule |= {name: limits[name] for name in limits.keys() & rule.keys()}
    offered = {"costs": _costs(PLAIN, 90), "cluster": _cluster(2), "seed": 0}
    offered["host_memory"] = HOST_MEMORY
    return lambda: build(node, offered=offered)


def _cluster(gpus: int) -> Cluster:
    """GPUs that nothing joins."""
    names = tuple(map(GpuId, range(gpus)))
    return Cluster(names, tuple(frozenset({gpu}) for gpu in names))


class Hearing(FixedPlacement):
    """Has the recorder keep iterations, of which the scheduling policy may not hear."""

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated})


def serve(
    load: CheckedLoad,
    policy: SchedulingPolicy,
    kind: Callable[..., Engine] = SIMULATOR,
    limits: Mapping[str, int] = LIMITS,
    **more: Any,
) -> Recorder:
    """Run a load; a policy that orders by lengths is told wrong ones, some late."""
    requests, recorder = load.requests, Recorder(keep_events=True, keep_iterations=True)
    about = {"cluster": _cluster(len(requests.services)), "costs": load.costs, **limits, **more}
    engine = kind(**about)
    if missing := policy.requires - engine.supports - {Capability.PREDICTIONS}:
        lacking = ", ".join(sorted(it.value for it in missing))
        raise NotOfferedError(f"{type(engine).__name__} lacks {lacking}")
    said = Known(1 + 37 * requests.prompt_tokens % 60, 0.004 * (np.arange(len(requests)) % 3))
    predictor = said if Capability.PREDICTIONS in policy.requires else None
    kind_of_placement = Hearing if isinstance(policy, Open) else FixedPlacement
    placement = kind_of_placement(data_parallel=1, tensor_parallel=1, costs=load.costs)
    system = System("checked", policy, RoundRobin(), placement, predictor=predictor)
    engine.run(requests, system, recorder)
    return recorder


class Open:
    """A policy in the open: asked between checks that it only looks, at a view that adds up.

    Without `checks` it is asked alone, to know the rule of its orders.
    """

    requires: ClassVar[frozenset[Capability]]
    subscribes: ClassVar[frozenset[type[Event]]]

    def __init__(self, inner: SchedulingPolicy, *, checks: bool = True) -> None:
        self.inner, self.checks, self.asked, self.waited = inner, checks, 0, False
        self.rule: ContinuousBatching | StaticBatching | None = None

    def observe(self, event: Event) -> None:
        """Pass it on."""
        self.inner.observe(event)

    def schedule(self, view: GroupView) -> Decision:
        """Ask the policy, which may not change what it sees, nor give two keys for it."""
        self.asked += 1
        decision = self._checked(view) if self.checks else self.inner.schedule(view)
        order = decision.priority_order
        self.rule = None if order is None else order.rule
        waits = isinstance(self.rule, StaticBatching) and self.rule.max_wait_s > 0
        self.waited |= waits or (not decision.launch and order is None)
        return decision

    def _checked(self, view: GroupView) -> Decision:
        before = _fingerprint(view)
        decision = self.inner.schedule(view)
        order = decision.priority_order
        if order is not None and order.key is not None:
            # Counters of an order that renews may grow by being asked.
            again = deepcopy(order) if order.renews else order
            one, other = (_numbers(again.keys(view.table)) for _ in range(2))
            np.testing.assert_equal(one, other, "the key of an order is another when asked again")
        assert _fingerprint(view) == before, "the policy has changed the view"
        return decision


def in_the_open(policy: SchedulingPolicy, *, checks: bool = True) -> Open:
    """The policy between checks, with its own needs and events."""

    class Same(Open):
        requires = policy.requires
        subscribes = policy.subscribes

    return Same(policy, checks=checks)


def _fingerprint(view: GroupView) -> tuple[object, ...]:
    """Everything of a view that a decision may rest on; AssertionError where KV is off."""
    ledger, names = ledger_of(view), view.table.__slots__
    held = {name: request.kv_tokens for name, request in view.requests.items()}
    promised = {name: ledger.reservation(name) for name in held}
    own = ((it.own_tokens if it else 0) for it in promised.values())
    blocks = sum(ledger.blocks(max(two)) for two in zip(held.values(), own, strict=True))
    for service in view.services:
        free = ledger.free_blocks(service)
        assert 0 <= free == ledger.capacity_blocks(service) - blocks, "KV does not add up"
    assert held == {name: ledger.holding(name) for name in held}, "the ledger has other KV"
    assert problems(ledger) == []
    columns = [getattr(view.table, it).tobytes() for it in names if it != "services"]
    rest = (view.now_s, view.group, view.in_flight, view.free_share, view.max_num_batched_tokens)
    return (*columns, held, promised, *rest)


def _numbers(key: Floats | MovingKey) -> tuple[Floats, ...]:
    return (key.value, key.slope, key.until) if isinstance(key, MovingKey) else (key,)


def adds_up(make: Make, load: CheckedLoad) -> None:
    """A load drains; KV, tokens and seconds add up, in the open and the same on the fast path."""
    policy = in_the_open(make())
    asked = serve(load, policy, fast_forward=False)
    assert policy.asked >= len(iterations(asked)), "the policy was not asked at every iteration"
    _assert_batches_add_up(load, policy, asked)
    quick = serve(load, make())
    for recorder in (asked, quick):
        assert_conserved(load.requests, recorder)
        _assert_little(recorder)
        _assert_causal(load, recorder)
        if not (policy.waited or load.receives or len(load.requests.services) > 1):
            _assert_work_conserving(recorder)
    if not isinstance(policy.rule, StaticBatching):
        _assert_log_adds_up(load, quick, policy.rule)
    one, other = quick.requests, asked.requests
    assert one["preemptions"].equals(other["preemptions"]), "the fast path preempts others"
    times = ["first_token_s", "finished_s", "gpu_s"]
    np.testing.assert_allclose(one[times], other[times], rtol=1e-9)


def does_the_same_twice(make: Make, load: CheckedLoad) -> None:
    """To the last bit."""
    assert_equal(serve(load, make()), serve(load, make()))


def runs_the_same_batches(make: Make, load: CheckedLoad) -> None:
    """On the simulator and under vLLM's own scheduler and KV manager, one by one."""
    if find_spec("vllm") is None:
        raise NotOfferedError("vLLM is not installed: make setup-vllm")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    runs = []
    for kind in (partial(SIMULATOR, fast_forward=False), _vllm):
        policy = in_the_open(make(), checks=False)
        runs.append(serve(load, policy, kind, SMALL))
        if isinstance(policy.rule, StaticBatching):
            raise NotOfferedError("vLLM runs no batch of whole requests from start to end")
    assert_same(*(map(_step, iterations(run)) for run in runs))
    ours, theirs = (run.requests for run in runs)
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-9)
    assert theirs["finished_s"].notna().all()


def _vllm(**about: Any) -> Engine:
    """vLLM's scheduler on the simulator's clock, by its name: not every machine has it."""
    engine: Engine = build({"_target_": "harness.engines.vllm.dry.VllmDry"}, offered=about)
    return engine


def iterations(recorder: Recorder) -> list[Iterated]:
    """Of a run that kept its events."""
    return [event for event in recorder.events if isinstance(event, Iterated)]


def _step(event: Iterated) -> IterationStep:
    tokens = {int(request): count for request, count in event.batch.tokens.items()}
    return event.now_s - event.duration_s, tokens


def every_check(path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Of the policy of a file: what is checked, and the check."""
    make = maker(path)
    loads = {name: load() for name, load in LOADS.items()}
    for seed, blocks in enumerate((12, 17, 30, 200)):
        loads[f"KV of {blocks} blocks"] = random_load(seed, 24, 0.05, blocks=blocks)
    for name, load in loads.items():
        yield f"only looks, drains and adds up: {name}", partial(adds_up, make, load)
    yield "does the same twice", partial(does_the_same_twice, make, loads["short KV"])
    small = maker(path, SMALL)
    short = SHORT_KV()
    yield "vLLM's scheduler runs the same batches", partial(runs_the_same_batches, small, short)


# What the checks assert ---------------------------------------------------------------------------


def assert_conserved(load: Workload, recorder: Recorder) -> None:
    """Every request ends once, with the tokens asked, after its first token and its arrival."""
    frame = recorder.requests
    np.testing.assert_array_equal(frame["output_tokens"], load.output_tokens)
    assert (frame["arrival_s"] < frame["first_token_s"]).all()
    assert (frame["first_token_s"] <= frame["finished_s"]).all()
    times_s = [event.now_s for event in recorder.events]
    assert times_s == sorted(times_s), "events go back in time"
    for kind in (Arrived, Finished):
        ids = [event.request.id for event in recorder.events if isinstance(event, kind)]
        assert sorted(ids) == list(range(len(load))), f"a request has not {kind.__name__} once"


def assert_equal(one: Recorder, other: Recorder) -> None:
    """Two runs are the same to the last bit."""
    pd.testing.assert_frame_equal(one.requests, other.requests, check_exact=True)
    pd.testing.assert_frame_equal(one.gpu_frame(), other.gpu_frame(), check_exact=True)
    assert one.events == other.events


def assert_same(ours: Iterable[IterationStep], theirs: Iterable[IterationStep]) -> None:
    """Fail with the first differing iteration from both sides."""
    ours, theirs = list(ours), list(theirs)
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        same = list(one[1].items()) == list(other[1].items())
        assert same, f"iteration {number}: {one} here, {other} there"
        assert np.isclose(one[0], other[0], rtol=1e-9, atol=1e-9), f"iteration {number}"
    assert len(ours) == len(theirs)


def _assert_close(found: float, expected: float, what: str) -> None:
    assert np.isclose(found, expected, rtol=1e-9, atol=0.0), f"{what}: {found}, not {expected}"


def _assert_little(recorder: Recorder) -> None:
    """Requests in the system, counted by events, against response times of the table."""
    response_s = (recorder.requests["finished_s"] - recorder.requests["arrival_s"]).sum()
    _assert_close(area_under_number_s(recorder), response_s, "requests in the system, over time")


def _assert_batches_add_up(load: CheckedLoad, policy: Open, recorder: Recorder) -> None:
    """Every token is computed once, and those of requests that lost their KV again."""
    frame, requests = recorder.requests, load.requests
    computed, produced, batch_s = (np.zeros(len(requests)) for _ in range(3))
    for event in iterations(recorder):
        most = len(requests) if policy.rule is None else policy.rule.max_num_seqs
        assert len(event.batch.tokens) <= most, "a batch is too large"
        for name, tokens in event.batch.tokens.items():
            computed[name] += tokens + max(0, event.new_tokens[name] - 1)
            produced[name] += event.new_tokens[name]
            batch_s[name] += event.duration_s
    np.testing.assert_array_equal(produced, requests.output_tokens)
    # Those that a batch of whole requests leaves behind keep their KV.
    keeps = isinstance(policy.rule, StaticBatching)
    again = (frame["preemptions"] > frame["swaps"]).to_numpy() & (not keeps)
    once = requests.prompt_tokens + requests.output_tokens - 1
    assert (computed[again] > once[again]).all(), "a preempted request computes nothing again"
    np.testing.assert_array_equal(computed[~again], once[~again], "tokens computed")
    np.testing.assert_allclose(frame["gpu_s"], batch_s, rtol=1e-9)


def _assert_causal(load: CheckedLoad, recorder: Recorder) -> None:
    """Nothing is faster than alone on an idle GPU."""
    frame, requests = recorder.requests, load.requests
    for request, prompt in enumerate(requests.prompt_tokens.tolist()):
        service = requests.services[int(requests.service[request])].id
        seconds = partial(load.costs.iteration_s, service, 1)
        first_s, last_s = frame["first_token_s"][request], frame["finished_s"][request]
        ready_s = max(requests.arrival_s[request], LOAD_S)
        ready_s += seconds(Work(1, prompt, prompt, float(prompt) ** 2))
        assert first_s >= ready_s * (1 - 1e-12), f"r{request} has its first token too early"
        # Batches of whole requests return all tokens of an answer together.
        since_s = ready_s if first_s == last_s else first_s
        decode_s = seconds(Work(0, 0, 0, 0.0, 1, prompt + 1, prompt + 1))
        ends_s = since_s + (requests.output_tokens[request] - 1) * decode_s
        assert last_s >= ends_s * (1 - 1e-12), f"r{request} has finished too early"


def _assert_work_conserving(recorder: Recorder) -> None:
    """After the load, the GPU pauses only while every request that has arrived is finished."""
    frame, intervals = recorder.requests, recorder.gpu_frame()
    busy = intervals[intervals["use"] == GpuUse.BUSY.value]
    ends_s = np.concatenate([[LOAD_S], busy["end_s"].to_numpy()])
    starts_s = busy["start_s"].to_numpy()
    assert (starts_s >= ends_s[:-1] * (1 - 1e-12)).all(), "batches overlap"
    for idle_from_s, idle_to_s in zip(ends_s[:-1], starts_s, strict=True):
        if idle_to_s - idle_from_s > 1e-9:
            waiting = (frame["arrival_s"] < idle_to_s) & (frame["finished_s"] > idle_from_s + 1e-9)
            assert not waiting.any(), f"requests wait from {idle_from_s} to {idle_to_s} s"


def _assert_log_adds_up(
    load: CheckedLoad, recorder: Recorder, rule: ContinuousBatching | None
) -> None:
    """The log holds the seconds of the request table and the GPU, and the tokens of the load."""
    frame, log, intervals = recorder.requests, recorder.iteration_frame(), recorder.gpu_frame()
    assert log is not None
    together = log["prefill_requests"] + log["decode_requests"]
    busy = intervals[intervals["use"] == GpuUse.BUSY.value]
    _assert_close((log["duration_s"] * together).sum(), frame["gpu_s"].sum(), "seconds in batches")
    busy_s = (busy["end_s"] - busy["start_s"]).sum()
    _assert_close(log["duration_s"].sum(), busy_s, "seconds busy")
    done = (log["prefill_tokens"] + log["decode_requests"] * log["iterations"]).sum()
    once = (load.requests.prompt_tokens + load.requests.output_tokens - 1).sum()
    assert done > once if (frame["preemptions"] > frame["swaps"]).any() else done == once
    # A decode holds its context when it ends, and grows by a token in every iteration of a run.
    grown = log["decode_requests"] * (log["iterations"] - 1)
    held = log["context_tokens"] + grown + log["prefill_tokens"]
    assert (held <= load.blocks * BLOCK_TOKENS).all()
    if rule is not None:
        assert (together <= rule.max_num_seqs).all()
        assert (log["prefill_padded_tokens"] <= rule.max_num_batched_tokens).all()
