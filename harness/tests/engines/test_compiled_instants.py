"""Compiled groups equal stepped ones where queues grow, keys change kind and KV is told anew."""

from collections.abc import Callable
from itertools import permutations
from typing import ClassVar

import numpy as np
import pytest

from harness.interface.decisions import Decision, Deployment, Displaced, PriorityOrder
from harness.interface.events import Arrived, Event, Finished
from harness.interface.moving import MovingKey
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import ClusterView, GroupView
from harness.tests.support.learning import learning, pieces, pieces_of_seconds, scattered
from harness.tests.support.loads import assert_same_times
from harness.tests.support.policies import RULES
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    Everywhere,
    LinearCosts,
    UnevenCosts,
    a_group,
    rule,
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


@pytest.mark.parametrize("kinds", list(permutations(KINDS, 2)), ids=" then ".join)
@pytest.mark.parametrize("displaces", [None, Displaced.PAUSE])
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


class _ReservesWhenPredicted:
    """FCFS that sets KV aside for 160 tokens once a request is predicted, for 20 before."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The same order."""
        return Decision(priority_order=PriorityOrder(None, rule(), None, _reserved_tokens))


def _reserved_tokens(table: RequestTable) -> Floats:
    return np.where(np.isnan(table.predicted_mean_tokens), 20.0, 160.0)


def test_a_reservation_told_in_mid_run_counts() -> None:
    """The prediction of the second request comes while it decodes alone; the third then waits."""
    load = workload([5, 10, 80], [1, 160, 5], [0.0, 1.0, 1.5])
    assert_same_times(
        lambda fast: serve(
            load,
            _ReservesWhenPredicted(),
            Everywhere(("m", (0,))),
            gpus=1,
            costs=LinearCosts(blocks=12, load=0.0),
            fast_forward=fast,
            predictor=Guess(0.05),
        )
    )


class _SecondServiceLater:
    """m1 gets its group at 0.3 s."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.REDEPLOY})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def place(self, view: ClusterView) -> Deployment:
        """One group, then two."""
        if view.now_s < 0.3:
            return Deployment((a_group("m0", 0),), wake_s=0.3)
        return Deployment((a_group("m0", 0), a_group("m1", 1)))


def test_keys_follow_what_a_deployment_makes_known_at_its_instant() -> None:
    """The arrival at the new group is the sixth event, which turns the order at 0.3 s."""

    def key(table: RequestTable, learnt: int) -> Floats:
        return np.where(table.id == 2, 5.0 if learnt < 6 else -5.0, 0.0)

    load = workload([10] * 4, [90, 1, 5, 1], [0.0, 0.1, 0.1, 0.12], services=2)
    assert_same_times(
        lambda fast: serve(
            load,
            learning(
                frozenset({Arrived}),
                key=key,
                rule=rule(max_num_seqs=1),
                displaces=Displaced.PAUSE,
                renews=True,
            ),
            _SecondServiceLater(),
            costs=LinearCosts(load=0.0),
            fast_forward=fast,
            predictor=Guess(0.0),
        )
    )
