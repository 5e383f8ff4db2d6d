"""Compiled groups equal stepped ones where queues grow and keys change kind."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

from harness.interface.decisions import Displaced
from harness.interface.events import Finished
from harness.interface.moving import MovingKey
from harness.interface.tables import Floats, RequestTable
from harness.tests.support.learning import learning, pieces, pieces_of_seconds, scattered
from harness.tests.support.loads import assert_same_times
from harness.tests.support.policies import RULES
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    Everywhere,
    LinearCosts,
    UnevenCosts,
    serve,
    workload,
)
from harness.workloads.workload import Workload

Key = Callable[[RequestTable, int], Floats | MovingKey]
KINDS: dict[str, Key] = {"numbers": scattered, "pieces": pieces, "seconds": pieces_of_seconds}
FREE = LinearCosts(blocks=20, load=0.0)


def _random_load(seed: int, count: int = 30) -> Workload:
    rng = np.random.default_rng(seed)
    gaps_s = rng.choice([0.0, 0.0031, 0.0507], count)
    prompts, outputs = (rng.integers(1, most, count).tolist() for most in (91, 71))
    return workload(prompts, outputs, np.cumsum(gaps_s).tolist())


def test_turns_go_on_where_more_wait_than_a_queue_has_room_for() -> None:
    """400 requests in 0.4 s: hundreds are in each group at a time."""
    rng = np.random.default_rng(1)
    prompts, outputs = (rng.integers(1, most, 400).tolist() for most in (90, 70))
    load = workload(prompts, outputs, (0.01 + np.arange(400) * 0.001).tolist())
    both = Everywhere(("m", (0,)), ("m", (1,)))
    assert_same_times(
        lambda fast: serve(load, placement=both, costs=UnevenCosts(load=0.0), fast_forward=fast)
    )


@pytest.mark.parametrize(
    ("kinds", "displaces"),
    zip(permutations(KINDS, 2), [None, Displaced.PAUSE] * 3, strict=True),
)
def test_a_renewed_key_may_be_of_another_kind(
    kinds: tuple[str, str], displaces: Displaced | None
) -> None:
    first, then = (KINDS[kind] for kind in kinds)

    def key(table: RequestTable, learnt: int) -> Floats | MovingKey:
        return then(table, learnt) if learnt > 60 else first(table, learnt)

    assert_same_times(
        lambda fast: serve(
            _random_load(0),
            learning(
                frozenset({Finished}), key=key, rule=RULES[4], displaces=displaces, renews=True
            ),
            Everywhere(("m", (0,))),
            gpus=1,
            costs=FREE,
            fast_forward=fast,
            predictor=Guess(0.0),
        )
    )
