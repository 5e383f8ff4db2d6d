"""Boosted arrivals, and a gamma that follows the tail."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from baselines.uniboost import UniBoost, UniBoostAda, boost_s
from harness.interface.entities import AppId, Request, RequestId, ServiceId, TenantId
from harness.interface.events import Finished
from harness.tests.support.serving import FlatCosts, LinearCosts, rule, serve, workload

RULE = rule(chunked_prefill=True, max_num_seqs=1, tokens=2048)


PROGRAM: dict[str, Any] = {"rule": RULE, "gamma_per_s": 10.0, "s_per_token": 64e-6}
ADA: dict[str, Any] = {"window": 101, "least": 101, "every_s": 5.0, "most_gamma_per_s": 200.0}


def uniboost(**settings: Any) -> UniBoost:
    """One slot, constants of its program."""
    return UniBoost(**PROGRAM | settings)


def ada(**settings: Any) -> UniBoostAda:
    """101 latencies."""
    return UniBoostAda(**PROGRAM | ADA | settings)


def test_boosts_by_hand() -> None:
    """ln(1 / (1 - exp(-10 w))) / 10 of 0.0064, 0.064 and 0.64 s; without work a billion seconds."""
    found = boost_s(np.array([100, 1000, 10000, 0]) * 64e-6, 10.0)
    assert found.tolist() == pytest.approx([0.2780, 0.0749, 0.000166, 1e9], rel=0.005)


@pytest.mark.parametrize(
    ("arrival_s", "settings", "finished_s"),
    [
        # The boosts of 100 and 1000 tokens are 0.203 s apart.
        (0.30, {}, [0.5, 1.5, 1.0]),
        (0.31, {}, [0.5, 1.0, 1.5]),
        # Nearer the shortest first and nearer the first come.
        (0.49, {"gamma_per_s": 1.0}, [0.5, 1.5, 1.0]),
        (0.30, {"gamma_per_s": 200.0}, [0.5, 1.0, 1.5]),
        # Half a second by 1024 tokens of the cost model: boosts are 0.095 and 0.001 s.
        (0.19, {"s_per_token": None, "costs": FlatCosts()}, [0.5, 1.5, 1.0]),
        (0.20, {"s_per_token": None, "costs": FlatCosts()}, [0.5, 1.0, 1.5]),
        (0.30, {"s_per_token": None}, [0.5, 1.5, 1.0]),
    ],
)
def test_order_by_hand(arrival_s: float, settings: dict[str, Any], finished_s: list[float]) -> None:
    """While one is computed, 1000 tokens come at 0.1 and 100 tokens later; cached or not."""
    load = workload([40, 1000, 100], [1] * 3, [0.0, 0.1, arrival_s])
    for caches in (False, True):
        costs = FlatCosts(load=0.0, blocks=128)
        served = serve(load, uniboost(**settings), costs=costs, prefix_caching=caches)
        assert served.requests["finished_s"].tolist() == finished_s


def test_cached_tokens_are_no_work_by_hand() -> None:
    """Of 1000 tokens that come after 100 all but 8 are cached."""
    load = replace(
        workload([1000, 100, 1000], [1] * 3, [0.0, 0.1, 0.1]),
        prefix=np.array([-1, -1, 0]),
        prefix_tokens=np.array([0, 0, 1000]),
    )
    costs = FlatCosts(load=0.0, blocks=256)
    for caches, last_s in ((False, [1.0, 1.5]), (True, [1.5, 1.0])):
        served = serve(load, uniboost(), costs=costs, prefix_caching=caches)
        assert served.requests["finished_s"].tolist() == [0.5, *last_s]


def test_without_anything_cached_the_draft_is_the_compiled_order() -> None:
    rng = np.random.default_rng(3)
    prompts, outputs = rng.integers(1, 300, 80).tolist(), rng.integers(1, 20, 80).tolist()
    load = workload(prompts, outputs, rng.exponential(0.02, 80).cumsum().tolist())
    policy = uniboost(rule=rule(chunked_prefill=True, max_num_seqs=3), s_per_token=1e-3)
    one, other = (
        serve(load, policy, costs=LinearCosts(load=0.0, blocks=200), prefix_caching=caches)
        for caches in (False, True)
    )
    frame = other.requests.drop(columns="cached_tokens")
    pd.testing.assert_frame_equal(one.requests, frame, rtol=1e-9)


def _finished(latency_s: float, now_s: float) -> Finished:
    facts = Request(RequestId(0), ServiceId("a"), AppId(0), TenantId("a"), now_s - latency_s, 9, 9)
    return Finished(now_s, facts, 1)


def test_gamma_follows_the_tail_by_hand() -> None:
    """Percentiles 95 and 99 are 2 and 4 s: 200 / (1 + 4 (4 / 2 - 1)) = 40, and 0.7 x 10 + 0.3 x 40.

    After five seconds and not before, the same again.
    """
    policy = ada()
    latencies_s = [2.0] * 96 + [3.0] * 3 + [4.0] * 2
    for latency_s in latencies_s[:-1]:
        policy.observe(_finished(latency_s, 9.0))
    assert policy.gamma_per_s == 10.0
    policy.observe(_finished(latencies_s[-1], 9.0))
    assert policy.gamma_per_s == pytest.approx(19.0)
    for latency_s in latencies_s:
        policy.observe(_finished(latency_s, 13.9))
    assert policy.gamma_per_s == pytest.approx(19.0)
    policy.observe(_finished(2.0, 14.0))
    assert policy.gamma_per_s == pytest.approx(0.7 * 19 + 0.3 * 40)


def test_a_gamma_that_changes_is_the_same_in_compiled_code() -> None:
    rng = np.random.default_rng(5)
    prompts, outputs = rng.integers(1, 300, 80).tolist(), rng.integers(1, 20, 80).tolist()
    load = workload(prompts, outputs, rng.exponential(0.02, 80).cumsum().tolist())
    frames, gammas = [], []
    for fast in (True, False):
        chunks = rule(chunked_prefill=True, max_num_seqs=3)
        policy = ada(rule=chunks, s_per_token=1e-3, window=8, least=3, every_s=0.05)
        served = serve(load, policy, costs=LinearCosts(load=0.0, blocks=40), fast_forward=fast)
        frames.append(served.requests)
        gammas.append(policy.gamma_per_s)
    pd.testing.assert_frame_equal(frames[0], frames[1], rtol=1e-9)
    assert gammas[0] == pytest.approx(gammas[1]) != 10.0


@pytest.mark.parametrize(("tail_s", "wanted"), [(2.0, 200.0), (1e6, 1.0)])
def test_gamma_stays_between_one_and_its_limit(tail_s: float, wanted: float) -> None:
    policy = ada(least=100)
    for latency_s in [2.0] * 98 + [tail_s] * 2:
        policy.observe(_finished(latency_s, 0.0))
    assert policy.gamma_per_s == pytest.approx(0.7 * 10 + 0.3 * wanted)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"gamma_per_s": 0.0}, "policy.gamma_per_s is 0.0, it must be above 0"),
        ({"s_per_token": -1.0}, "policy.s_per_token is -1.0, it must be above 0"),
        ({"least": 102}, "policy.least is 102, it must be from 1 to policy.window"),
        ({"most_gamma_per_s": 0.5}, "policy.most_gamma_per_s is 0.5, not 1 or more"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ada(**settings)
