"""Bounds that no scheduler passes: by hand, against all schedules of small cases, and policies."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from harness.costs.iteration import IterationTable
from harness.engines.recorder import Recorder
from harness.interface.policies import SchedulingPolicy
from harness.runs.bound import (
    Bounds,
    KnownLoad,
    Machine,
    bounds_of,
    common_tokens,
    mean_busy,
    shortest_remaining,
)
from harness.tools.benchmarks.reference_load import reference_costs, serve_s, w1
from harness.tools.benchmarks.speed import policies
from harness.workloads.workload import Workload

CACHING = ("vllm", "srtf", "ltr", "lpm", "hrrn", "uniboost", "lcf", "p_pas", "fair_batching")
POLICIES = (*CACHING, "ssjf_continuous", "fastgen", "fastserve", "orca", "vllm_swap", "mc_sf")
"""The first of them where prefixes are cached, too."""
ROOMY = Machine(1, 10**9, 1000, 8192)


def table(fixed_s: float, decode_s: float, token_s: float = 0.0) -> IterationTable:
    """Iterations of so long, and more for every decode and every token of a prompt."""
    each = np.arange(1025.0)
    flat = np.zeros(1025)
    base = np.asarray(fixed_s + decode_s * each, np.float64)
    shared = np.full(1, fixed_s)
    prompt = np.full(1025, fixed_s)
    return IterationTable(
        prompt, np.full(1025, token_s), flat, flat, base, flat, flat, shared, np.zeros(1)
    )


def load(*requests: tuple[float, int, int]) -> KnownLoad:
    """Requests that come at a time with tokens of a prompt and an answer."""
    come_s, prompts, answers = (np.array(column) for column in zip(*requests, strict=True))
    none = np.zeros(len(requests))
    return KnownLoad(come_s.astype(float), prompts, answers, none.astype(np.int64), none)


def test_shortest_remaining_by_hand() -> None:
    """A of 4 s comes at 0, B of 1 s at 1, C of 5 s at 2: B ends at 2, A at 5, C at 10."""
    assert shortest_remaining(np.array([0.0, 1, 2]), np.array([4.0, 1, 5])).tolist() == [5, 2, 10]


def test_mean_busy_times_by_hand() -> None:
    """A of 4 s comes at 0 and B of 1 s at 1: A runs in [0, 1] and [2, 5], B in [1, 2]."""
    found = mean_busy(np.array([0.0, 1.0]), np.array([4.0, 1.0]))
    assert found.tolist() == [(0.5 * 1 + 3.5 * 3) / 4, 1.5]


def test_two_requests_by_hand() -> None:
    """Iterations of 1 s and 0.1 s a decode; prompts cost nothing beside them.

    A answers 2 tokens, B 4, both come at 0. Alone they take 1 + 1.1 and 1 + 3 x 1.1 s. With the
    line of slope 0.1 from 1: 2 and 4 s fixed, and 0.1 and 0.1 + 0.3 s of their own in order.
    """
    found = bounds_of(table(1.0, 0.1), ROOMY, load((0.0, 5, 2), (0.0, 5, 4)))
    assert found.jct_s_mean == pytest.approx((2 + 0.1 + 4 + 0.1 + 0.3) / 2)
    assert found.ttft_s_mean == pytest.approx(1.0)
    assert found.makespan_s == pytest.approx(4 + 0.1 + 0.3)


def test_kv_makes_requests_wait_by_hand() -> None:
    """Ten requests of 1 + 10 tokens, one of which fills the KV of 10: 55 - 1 token seconds each.

    Of a machine of 10 tokens they take (2 + ... + 10) / 10 = 5.4 s one after another.
    """
    requests = load(*((0.0, 1, 10) for _ in range(10)))
    found = bounds_of(table(1.0, 0.0), Machine(1, 10, 100, 100), requests)
    assert found.jct_s_mean > 5.4 * 4.5
    assert found.jct_s_mean <= np.arange(10, 101, 10).mean()


def schedules(requests: KnownLoad, kv_tokens: int) -> Iterator[float]:
    """Mean latencies of the schedules of equal iterations in which no request stops once begun."""
    count = len(requests.arrival_s)
    latest = int(requests.output_tokens.sum())
    for starts in product(range(latest), repeat=count):
        held = np.zeros(2 * latest + 1)
        for start, prompt, output in zip(
            starts, requests.prompt_tokens, requests.output_tokens, strict=True
        ):
            held[start : start + output] += prompt + np.arange(output)
        if held.max() <= kv_tokens and (np.array(starts) >= requests.arrival_s).all():
            yield float((np.array(starts) + requests.output_tokens - requests.arrival_s).mean())


@pytest.mark.parametrize("seed", range(20))
def test_no_schedule_of_equal_iterations_is_better(seed: int) -> None:
    """The integer program of Jaillet et al. for three requests, by trying everything."""
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(1, 4, 3), rng.integers(1, 4, 3)
    requests = load(*zip(rng.integers(0, 3, 3) * 1.0, prompts, outputs, strict=True))
    kv_tokens = int((prompts + outputs).max() + rng.integers(0, 4))
    best_s = min(schedules(requests, kv_tokens))
    found = bounds_of(table(1.0, 0.0), Machine(1, kv_tokens, 100, 100), requests)
    assert 0 < found.jct_s_mean <= best_s + 1e-9


@cache
def made() -> dict[str, SchedulingPolicy]:
    """Every policy."""
    return policies()


def drawn(rng: np.random.Generator, copies: int, *, shares: bool) -> Workload:
    """A few requests of any lengths at any rate, when engines have loaded; some begin alike."""
    count = int(rng.integers(2, 40))
    prompts, outputs = rng.integers(2, 1500, count), rng.integers(1, 400, count)
    plain = replace(
        w1(count, copies),
        arrival_s=60.0 + rng.exponential(1 / rng.choice([1, 4, 20, 200]), count).cumsum(),
        prompt_tokens=prompts,
        output_tokens=outputs,
        max_output_tokens=np.full(count, 400),
    )
    if not shares:
        return plain
    first = np.where(np.arange(count) > 0, 0, -1)
    common = np.where(first < 0, 0, np.minimum(prompts, prompts[0]) * rng.random(count))
    return replace(plain, prefix=first, prefix_tokens=common.astype(np.int64))


@pytest.mark.parametrize("seed", range(200))
def test_no_policy_passes_the_bound(seed: int) -> None:
    """One or two copies, KV for few or all, prefixes cached or not."""
    rng, copies, shares = np.random.default_rng(seed), 1 + seed % 2, seed % 3 == 0
    names = CACHING if shares else POLICIES
    requests, kv_bytes = drawn(rng, copies, shares=shares), int(rng.choice([2, 8, 40])) * 10**9
    costs, service = reference_costs({"kv_bytes": kv_bytes}), requests.services[0].id
    kv_tokens = costs.kv_blocks(service, 1) * costs.block_tokens(service)
    none = np.zeros(len(requests))
    known = KnownLoad(
        requests.arrival_s,
        requests.prompt_tokens,
        requests.output_tokens,
        common_tokens(requests) if shares else none.astype(np.int64),
        none,
    )
    machine = Machine(copies, kv_tokens, 512, 65536)
    least = bounds_of(costs.table(service, 1), machine, known)
    recorder, policy = Recorder(), deepcopy(made()[names[seed % len(names)]])
    kv = {"kv_bytes": kv_bytes}
    serve_s(policy, requests, copies, recorder, kv=kv, prefix_caching=shares)
    served = recorder.requests
    found = Bounds(
        float((served["finished_s"] - served["arrival_s"]).mean()),
        float((served["first_token_s"] - served["arrival_s"]).mean()),
        float(served["finished_s"].max() - served["arrival_s"].min()),
    )
    assert all(np.array(found) >= np.array(least) * (1 - 1e-9))
