"""A decision called steady is the same again: of every policy file, and of those that say too much.

Whether fast-forward and stepping agree is in `test_fast_forward.py`; here a policy is asked again.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from harness.build import build
from harness.interface.checks import IllegalDecision
from harness.interface.decisions import Decision
from harness.interface.draft import Draft
from harness.interface.events import Event
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView
from harness.predictors.oracle import Oracle
from harness.tests.support.audit import BrokenPromise, audited
from harness.tests.support.files import name_of, offered_to_all, read_nodes
from harness.tests.support.serving import LinearCosts, cluster, serve, workload
from harness.verify.shortest_remaining import ShortestRemaining
from harness.yaml_files import policy_files

POLICIES = policy_files()


@dataclass
class InTurn:
    """One request at a time, eight tokens each; promises to go on for what is left of them."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()
    steady: bool = True
    bounded: bool = True
    asked: int = 0

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Whose turn it is by the tokens generated so far, so asking more often changes nothing."""
        self.asked += 1
        first = min(view.requests.values(), key=lambda r: (r.generated_tokens // 8, r.facts.id))
        draft = Draft(view)
        assert draft.try_run(first, first.context_tokens - first.kv_tokens)
        left = 8 - first.generated_tokens % 8 if self.bounded else None
        return draft.decision(steady=self.steady, at_most=left)


@pytest.mark.parametrize("path", POLICIES, ids=name_of)
def test_a_policy_keeps_its_promises(path: Path) -> None:
    rng = np.random.default_rng(11)
    prompts, outputs = rng.integers(1, 120, 40).tolist(), rng.integers(1, 80, 40).tolist()
    load = workload(prompts, outputs, np.cumsum(rng.exponential(0.06, 40)).tolist())
    for blocks in (200, 40):
        policy: SchedulingPolicy = build(
            read_nodes(path)["policy"], offered=offered_to_all(LinearCosts(), cluster())
        )
        held = serve(
            load,
            audited(policy),
            costs=LinearCosts(blocks=blocks),
            fast_forward=False,
            predictor=Oracle().of(load, 1),
        )
        assert np.isfinite(held.requests["finished_s"]).all()


def test_whoever_promises_too_much_is_told_what_differs() -> None:
    """r0 has had its eight tokens; it was said to go on."""
    load = workload([5, 5, 5], [30, 30, 30])
    told = r"InTurn promised at 1\.\d+ s to go on with r0, at 1\.\d+ s r1 joins; r0 does not run"
    with pytest.raises(BrokenPromise, match=told):
        serve(load, audited(InTurn(bounded=False)), fast_forward=False)


def test_a_promise_of_so_many_iterations_is_kept_and_followed() -> None:
    load = workload([5, 5, 5], [90, 90, 90])
    policy = audited(InTurn())
    serve(load, policy, fast_forward=False)
    assert policy.kept > 180
    asked, ended = [], []
    for fast in (True, False):
        turns = InTurn()
        ended.append(serve(load, turns, fast_forward=fast).requests["finished_s"])
        asked.append(turns.asked)
    np.testing.assert_allclose(ended[0], ended[1], rtol=1e-9)
    assert asked[0] < asked[1] / 5


def test_shortest_remaining_keeps_its_promises() -> None:
    load = workload([5, 9, 3], [40, 20, 30], [0.0, 1.2, 1.5])
    policy = audited(ShortestRemaining(load.output_tokens))
    serve(load, policy, fast_forward=False)
    assert policy.kept > 40


@pytest.mark.parametrize(
    ("steady", "at_most", "told"),
    [
        (False, 3, "at_most 3 iterations of a decision that is not steady"),
        (True, 0, "a decision is steady for at_most 0 iterations, not for 1 or more"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(steady: bool, at_most: int, told: str) -> None:
    class Odd(InTurn):
        def schedule(self, view: GroupView) -> Decision:
            draft = Draft(view)
            assert draft.try_run(next(iter(view.requests.values())), 5)
            return draft.decision(steady=steady, at_most=at_most)

    with pytest.raises(IllegalDecision, match=told):
        serve(workload([5], [9]), Odd())
