"""Groups that cache prefixes, in compiled code: they do what deciding every iteration does."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engines.recorder import Recorder
from harness.engines.state import LOG_COLUMNS
from harness.interface.decisions import ContinuousBatching, Displaced, PriorityOrder
from harness.interface.moving import MovingKey
from harness.interface.promotion import AfterIterations, AfterSeconds, Promotion
from harness.interface.tables import Floats, RequestTable
from harness.tests.support.applications import linked
from harness.tests.support.dispatches import LOAD_ORDERS, ByLoad, assert_same_groups
from harness.tests.support.loads import assert_same_times, waits_s
from harness.tests.support.policies import RULES, Restless
from harness.tests.support.predictors import Guess
from harness.tests.support.prefixes import alike
from harness.tests.support.serving import Everywhere, LinearCosts, UnevenCosts, serve
from harness.tools.benchmarks.moving_policies import (
    Ordered,
    OrderedByPrediction,
    attained_seconds,
    attained_tokens,
    predicted_tokens,
    remaining_tokens,
)
from harness.workloads.workload import Workload

LONGEST_TOKENS = 150


def _short_pieces(table: RequestTable) -> MovingKey:
    """Rises and falls; the last piece ends, and is told anew eight tokens later."""
    done = table.generated_tokens // 8 * 8.0
    return MovingKey(
        value=np.stack([done, 40.0 - done], axis=1),
        slope=np.tile([0.75, -1.0], (len(done), 1)),
        until=done[:, None] + np.array([3.0, 8.0]),
    )


def _longest_prompt(table: RequestTable) -> Floats:
    return -table.prompt_tokens.astype(np.float64)


def _first_by_tokens(table: RequestTable) -> Floats:
    """Before all others, the shortest of those first."""
    return predicted_tokens(table) - 1e6


KEYS = {
    "arrival": None,
    "longest prompt": _longest_prompt,
    "predicted": predicted_tokens,
    "attained": attained_tokens,
    "remaining": remaining_tokens,
    "attained seconds": attained_seconds,
    "short pieces": _short_pieces,
}

PROMOTIONS: dict[str, tuple[Any, Promotion]] = {
    "iterations": (predicted_tokens, AfterIterations(9, 20, _first_by_tokens)),
    "seconds": (attained_tokens, AfterSeconds(0.7, attained_tokens)),
}
"""Keys, and what they give way to."""

seeds = st.integers(0, 10**6)
gaps_s = st.sampled_from([0.0, 0.02, 0.1])
"""Seconds between requests, on average."""


@st.composite
def kv(draw: st.DrawFn) -> dict[str, int]:
    """Room for little more than one context, or for many, in small or large blocks."""
    block = draw(st.sampled_from([1, 4, 16]))
    contexts = draw(st.sampled_from([1.1, 2.0, 10.0]))
    return {"block": block, "blocks": int(-(-LONGEST_TOKENS // block) * contexts)}


def _policy(
    key: str, batch_rule: ContinuousBatching, displaces: Displaced | None = None
) -> OrderedByPrediction:
    return OrderedByPrediction(PriorityOrder(KEYS[key], batch_rule, displaces))


@pytest.mark.parametrize("key", KEYS)
@given(
    seed=seeds,
    gap_s=gaps_s,
    batch_rule=st.sampled_from(RULES),
    displaces=st.sampled_from([None, None, Displaced.RECOMPUTE, Displaced.PAUSE]),
    room=kv(),
    late_s=st.sampled_from([0.0, 0.0131]),
    received_s=st.sampled_from([0.0, 0.0037]),
)
@settings(max_examples=8, deadline=None)
def test_same_times_with_and_without_fast_forward(
    key: str,
    seed: int,
    gap_s: float,
    batch_rule: ContinuousBatching,
    displaces: Displaced | None,
    room: dict[str, int],
    late_s: float,
    received_s: float,
) -> None:
    load = alike(seed, 30, gap_s=gap_s)
    assert_same_times(
        lambda fast: serve(
            load,
            _policy(key, batch_rule, displaces),
            costs=LinearCosts(**room, load=0.0, received_s_per_request=received_s),
            fast_forward=fast,
            predictor=Guess(late_s),
            prefix_caching=True,
        )
    )


@pytest.mark.parametrize("promotion", ["iterations", "seconds"])
@given(
    seed=seeds,
    gap_s=gaps_s,
    batch_rule=st.sampled_from(RULES),
    displaces=st.sampled_from([None, Displaced.RECOMPUTE, Displaced.PAUSE]),
    room=kv(),
    slots=st.sampled_from([2, 512]),
)
@settings(max_examples=16, deadline=None)
def test_promoted_requests_find_the_same(
    promotion: str,
    seed: int,
    gap_s: float,
    batch_rule: ContinuousBatching,
    displaces: Displaced | None,
    room: dict[str, int],
    slots: int,
) -> None:
    """Also with so few slots that many requests pause at once."""
    load = alike(seed, 30, gap_s=gap_s)
    few = replace(batch_rule, max_num_seqs=min(slots, batch_rule.max_num_seqs))
    key, promoted = PROMOTIONS[promotion]
    order = PriorityOrder(key, few, displaces, promotion=promoted)
    counts: list[Mapping[str, int]] = []

    def served(fast: bool) -> Recorder:
        recorder = serve(
            load,
            OrderedByPrediction(order),
            costs=LinearCosts(**room, load=0.0),
            fast_forward=fast,
            predictor=Guess(),
            prefix_caching=True,
        )
        counts.append(recorder.counts)
        return recorder

    assert_same_times(served)
    assert counts[0] == counts[1]


@given(seed=seeds, batch_rule=st.sampled_from(RULES), order=st.sampled_from(LOAD_ORDERS), room=kv())
@settings(max_examples=8, deadline=None)
def test_every_group_has_a_cache_of_its_own(
    seed: int, batch_rule: ContinuousBatching, order: Any, room: dict[str, int]
) -> None:
    """Requests go to the group with the least load, which only the caches' own hits keep equal."""
    load = alike(seed, 40, gap_s=0.02)
    assert_same_groups(
        lambda fast: serve(
            load,
            _policy("arrival", batch_rule),
            Everywhere(("m", (0,)), ("m", (1, 2)), ("m", (3,))),
            costs=UnevenCosts(**room, load=0.1),
            fast_forward=fast,
            gpus=4,
            dispatch=ByLoad(order),
            predictor=Guess(),
            prefix_caching=True,
        )
    )


@given(seed=seeds, batch_rule=st.sampled_from(RULES), room=kv(), waits=waits_s(4))
@settings(max_examples=8, deadline=None)
def test_a_group_that_comes_has_cached_nothing(
    seed: int, batch_rule: ContinuousBatching, room: dict[str, int], waits: list[float]
) -> None:
    load = alike(seed, 40, gap_s=0.05)
    assert_same_times(
        lambda fast: serve(
            load,
            _policy("arrival", batch_rule),
            Restless(seed, waits, 3),
            costs=UnevenCosts(**room, load=0.37),
            fast_forward=fast,
            gpus=3,
            predictor=Guess(),
            prefix_caching=True,
        )
    )


@given(
    seed=seeds,
    batch_rule=st.sampled_from(RULES),
    room=kv(),
    hand_over_s=st.sampled_from([0.0, 0.0137]),
)
@settings(max_examples=8, deadline=None)
def test_calls_that_wait_for_answers_find_what_is_cached_then(
    seed: int, batch_rule: ContinuousBatching, room: dict[str, int], hand_over_s: float
) -> None:
    """Two groups; of most calls another one, up to six before them, is answered first."""
    rng, count = np.random.default_rng(seed), 30
    waits = [(int(rng.integers(max(0, call - 6), call)), call) for call in range(1, count)]
    load = linked(
        alike(seed, count, longest=60, gap_s=0.0), [it for it in waits if rng.random() < 0.7]
    )
    assert_same_times(
        lambda fast: serve(
            load,
            Ordered(PriorityOrder(_longest_prompt, batch_rule)),
            Everywhere(("m", (0,)), ("m", (1,))),
            costs=LinearCosts(**room, load=0.0),
            fast_forward=fast,
            hand_over_s=hand_over_s,
            prefix_caching=True,
        )
    )


@pytest.mark.parametrize("displaces", [None, Displaced.RECOMPUTE, Displaced.PAUSE])
@given(seed=seeds, batch_rule=st.sampled_from(RULES), room=kv())
@settings(max_examples=8, deadline=None)
def test_the_log_says_the_same_of_every_run_of_iterations(
    displaces: Displaced | None, seed: int, batch_rule: ContinuousBatching, room: dict[str, int]
) -> None:
    """Blocks that requests share are held once, and those that none holds are free."""
    load, logs = alike(seed, 30, gap_s=0.02), []
    for fast in (True, False):
        policy = _policy("predicted", batch_rule, displaces)
        recorder = _logged(load, policy, room, fast=fast)
        frame = recorder.iteration_frame()
        assert frame is not None
        logs.append(frame[list(LOG_COLUMNS)])
    runs, steps = logs
    rows = np.searchsorted(steps["start_s"], runs["start_s"] - 1e-9)
    same = [name for name in LOG_COLUMNS if name not in ("duration_s", "iterations")]
    np.testing.assert_allclose(runs[same], steps[same].iloc[rows], rtol=1e-9, atol=1e-9)
    assert runs["iterations"].sum() == steps["iterations"].sum()


def _logged(
    load: Workload, policy: OrderedByPrediction, room: dict[str, int], *, fast: bool
) -> Recorder:
    return serve(
        load,
        policy,
        costs=LinearCosts(**room, load=0.0),
        fast_forward=fast,
        recorder=Recorder(keep_iterations=True),
        predictor=Guess(late_s=0.0),
        prefix_caching=True,
    )
