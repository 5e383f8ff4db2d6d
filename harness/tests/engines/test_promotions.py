"""Orders that promote requests which have not run: compiled as stepped, iteration by iteration."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interface.decisions import Displaced, PreemptionMode, PriorityOrder, StaticBatching
from harness.interface.moving import MovingKey, Progress
from harness.interface.promotion import AfterIterations, AfterSeconds
from harness.interface.tables import Floats, RequestTable
from harness.tests.support.loads import Load, assert_same_times, loads, waits_s
from harness.tests.support.policies import RULES, Restless
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    FlatCosts,
    LinearCosts,
    UnevenCosts,
    rule,
    serve,
    workload,
)
from harness.tools.benchmarks.moving_policies import Ordered, OrderedByPrediction, predicted_tokens


def by_tokens(table: RequestTable) -> MovingKey:
    """The most left first for eight tokens, then the least left."""
    return _pieces(predicted_tokens(table), (-1.0, 1.0), 8.0, Progress.TOKENS)


def tokens_again(table: RequestTable) -> MovingKey:
    """Promoted for two tokens; then by keys that grow."""
    return _pieces(np.zeros(len(table.id)), (0.5, 0.5), 2.0, Progress.TOKENS)


def by_seconds(table: RequestTable) -> MovingKey:
    """By arrival, and behind all of those from a tenth of a second on."""
    return _pieces(1e6 + table.arrival_s, (0.0, 0.0), 0.1, Progress.GPU_S)


def seconds_again(table: RequestTable) -> MovingKey:
    """Promoted for 0.3 s: with less, a request that is recomputed might never have its prompt."""
    return _pieces(2e6 + table.arrival_s, (0.0, 0.0), 0.3, Progress.GPU_S)


def _pieces(
    key: np.ndarray[Any, np.dtype[np.float64]],
    slopes: tuple[float, float],
    until: float,
    by: Progress,
) -> MovingKey:
    return MovingKey(
        value=np.stack([key, 2.0 * key], axis=1),
        slope=np.tile(slopes, (len(key), 1)),
        until=np.tile([until, np.inf], (len(key), 1)),
        by=by,
    )


def first_by_tokens(table: RequestTable) -> Floats:
    """Before all others, the shortest of those first."""
    return predicted_tokens(table) - 1e6


KEYS = {"tokens": (by_tokens, tokens_again), "seconds": (by_seconds, seconds_again)}
ORDERS = (*KEYS, "numbers")
WAYS = (None, *Displaced, PreemptionMode.SWAP)
ITERATIONS = {0.1317: 3, 0.7: 11, 2.1: 31}
"""In place of the seconds, with keys of numbers."""
RUNS = 20
"""With less, a request that is recomputed in small chunks might never have its prompt."""


def promoting(key: str, after_s: float, **more: Any) -> PriorityOrder:
    """An order by one of these keys."""
    if key == "numbers":
        promotion = AfterIterations(ITERATIONS[after_s], RUNS, first_by_tokens)
        return PriorityOrder(predicted_tokens, promotion=promotion, **more)
    first, again = KEYS[key]
    return PriorityOrder(first, promotion=AfterSeconds(after_s, again), **more)


@pytest.mark.parametrize("key", ORDERS)
@pytest.mark.parametrize("way", WAYS)
@given(
    load=loads(most=12),
    at=st.integers(0, len(RULES) - 1),
    blocks=st.sampled_from([12, 17, 30, 200]),
    after_s=st.sampled_from([0.1317, 0.7, 2.1]),
    aside=st.sampled_from([None, 165]),
    late_s=st.sampled_from([0.0, 0.0131]),
    received_s=st.sampled_from([0.0, 0.0037]),
)
@settings(max_examples=8, deadline=None)
def test_same_times_with_and_without(
    key: str,
    way: Displaced | PreemptionMode | None,
    load: Load,
    at: int,
    blocks: int,
    after_s: float,
    aside: int | None,
    late_s: float,
    received_s: float,
) -> None:
    how = {"gives_way" if isinstance(way, PreemptionMode) else "displaces": way}
    order = promoting(key, after_s, rule=RULES[at], reserve_tokens=aside, **how)
    costs = LinearCosts(blocks=blocks, load=0.0, received_s_per_request=received_s)
    counts = []

    def served(fast: bool) -> Any:
        policy, predictor = OrderedByPrediction(order), Guess(late_s)
        recorder = serve(
            workload(*load), policy, costs=costs, fast_forward=fast, predictor=predictor
        )
        counts.append(recorder.counts)
        return recorder

    assert_same_times(served)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("key", ORDERS)
@given(load=loads(most=16), seed=st.integers(0, 999), waits=waits_s(4))
@settings(max_examples=8, deadline=None)
def test_same_times_when_groups_come_and_go(
    key: str, load: Load, seed: int, waits: list[float]
) -> None:
    """A request that moves is in its new group one that has just come."""
    order = promoting(key, 0.7, rule=RULES[3], displaces=Displaced.PAUSE)
    assert_same_times(
        lambda fast: serve(
            workload(*load, services=2),
            OrderedByPrediction(order),
            Restless(seed, waits, 3),
            costs=UnevenCosts(blocks=17, load=0.37),
            fast_forward=fast,
            gpus=3,
            predictor=Guess(0.0131),
        )
    )


def by_arrival(table: RequestTable) -> MovingKey:
    """In two equal pieces."""
    return _pieces(table.arrival_s, (0.0, 0.0), 0.5, Progress.GPU_S)


def last_again(table: RequestTable) -> MovingKey:
    """Promoted for 0.6 s; then last."""
    return _pieces(1e6 + table.arrival_s, (0.0, 0.0), 0.6, Progress.GPU_S)


@pytest.mark.parametrize("fast", [True, False])
def test_who_has_not_run_for_a_second_comes_first_by_hand(fast: bool) -> None:
    """One slot, half a second a prefill, a quarter a decode.

    Request 0 (10 tokens) runs until 1.5: request 1 (3 tokens) has waited since the decision of 0.5.
    It computes its prompt until 2.0, when request 2 (1 token) has waited since that of 0.75 and is
    promoted behind it, and decodes until 2.25. Request 2 runs until 2.75, when request 0 has waited
    since 1.5. Of its five decodes it does three: at 3.25 request 1 has waited since 2.25, but comes
    behind request 0 until 3.5, and ends at 3.75. Request 0 does the two that are left.
    """
    order = PriorityOrder(
        by_arrival,
        rule(chunked_prefill=True, max_num_seqs=1),
        Displaced.PAUSE,
        promotion=AfterSeconds(1.0, last_again),
    )
    load = workload([10, 10, 10], [10, 3, 1], [0.0, 0.1, 0.6])
    recorder = serve(load, Ordered(order), costs=FlatCosts(load=0.0), fast_forward=fast)
    assert recorder.requests["finished_s"].tolist() == [4.25, 3.75, 2.75]
    assert recorder.counts == {"promotions": 4}


STATIC = StaticBatching(max_num_seqs=3, max_wait_s=0.05, refills=True, pads_prompts=True)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"renews": True}, "promotion is given with renews or under static batching"),
        ({"rule": STATIC}, "promotion is given with renews or under static batching"),
    ],
)
def test_what_no_engine_could_follow_is_refused(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        replace(promoting("tokens", 1.0, rule=RULES[0]), **more)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            lambda: AfterSeconds(0.0, tokens_again),
            r"seconds is 0\.0, it must be above 0 and finite",
        ),
        (lambda: AfterIterations(0, 1, predicted_tokens), "iterations is 0, it must be at least 1"),
        (lambda: AfterIterations(1, 0, predicted_tokens), "runs is 0, it must be at least 1"),
    ],
)
def test_promotions_that_never_come_are_refused(wrong: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        wrong()


@pytest.mark.parametrize("key", [None, predicted_tokens, by_seconds])
def test_both_keys_move_alike(key: Any) -> None:
    order = replace(promoting("tokens", 1.0, rule=RULES[0]), key=key)
    with pytest.raises(ValueError, match="both keys are moving keys of as many pieces"):
        serve(workload([9], [4]), Ordered(order))


@pytest.mark.parametrize("key", [None, by_tokens])
def test_numbers_are_promoted_to_numbers(key: Any) -> None:
    order = replace(promoting("numbers", 0.7, rule=RULES[0]), key=key)
    with pytest.raises(ValueError, match="after iterations, both keys are numbers"):
        serve(workload([9], [4]), Ordered(replace(order, promotion=AfterIterations(1, 1, no_keys))))


def no_keys(table: RequestTable) -> Floats:
    """None at all."""
    return np.zeros(0)


def last_first(table: RequestTable) -> Floats:
    """The reverse order of arrival, before all that are not promoted."""
    return -1e6 - table.arrival_s


@pytest.mark.parametrize("fast", [True, False])
def test_who_has_not_run_in_three_iterations_runs_in_two_by_hand(fast: bool) -> None:
    """One slot, half a second a prefill, a quarter a decode; by arrival.

    Request 0 (10 tokens) runs until 1.0: the iterations that end at 0.5, when request 1 (3 tokens)
    has come, 0.75 and 1.0 are without that one. It computes its prompt by 1.5. Request 2 (2 tokens)
    has come in the second iteration: after the fourth, at 1.5, it is promoted, comes first as the
    later one and ends at 2.25. Request 0 has not run in three then, and is promoted; before it,
    request 1 has an iteration left until 2.5. Request 0 has two until 3.0 and, by its own key, one
    until 3.25. Request 1 has not run in three then: it ends at 3.5. Four tokens of request 0 are
    left.
    """
    order = PriorityOrder(
        lambda table: table.arrival_s,
        rule(chunked_prefill=True, max_num_seqs=1),
        Displaced.PAUSE,
        promotion=AfterIterations(3, 2, last_first),
    )
    load = workload([10, 10, 10], [10, 3, 2], [0.0, 0.1, 0.6])
    recorder = serve(load, Ordered(order), costs=FlatCosts(load=0.0), fast_forward=fast)
    assert recorder.counts == {"promotions": 4}
    assert recorder.requests["finished_s"].tolist() == [4.5, 3.5, 2.25]
