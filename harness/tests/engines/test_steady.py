"""A decision called steady is the same again: of every policy file, and of those that say too much.

Whether fast-forward and stepping agree is in `test_fast_forward.py`; here a policy is asked again.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from harness.config.build import build
from harness.config.yaml_files import policy_files
from harness.core.checks import IllegalDecision
from harness.core.draft import Draft
from harness.core.kv_ledger import ledger_of
from harness.interface.decisions import Decision
from harness.interface.entities import GroupId, RequestId
from harness.interface.events import Arrived, Event, Finished, Iterated, Moved, Predicted
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView
from harness.predictors.oracle import Oracle
from harness.tests.support.files import name_of, offered_to_all, read_nodes
from harness.tests.support.serving import LinearCosts, cluster, serve, workload
from harness.tools.verify.queues import ShortestRemaining

POLICIES = policy_files()
UPSETTING: frozenset[type[Event]] = frozenset({Arrived, Moved, Predicted, Finished})
"""After these no decision need be the same again."""


class BrokenPromise(AssertionError):  # noqa: N818 - it names what is wrong
    """A policy has called a decision steady and then decided otherwise; the message says how."""


@dataclass
class _Promise:
    """These requests run again, each for what it misses, for so many iterations before `wake_s`."""

    since_s: float
    requests: frozenset[RequestId]
    wake_s: float
    left: float


@dataclass
class Audited:
    """A policy that is asked after every iteration, on an engine without fast-forward.

    What it decides must be what it has promised, unless something has happened.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = UPSETTING

    inner: SchedulingPolicy
    promised: dict[GroupId, _Promise] = field(default_factory=dict)
    kept: int = 0

    def observe(self, event: Event) -> None:
        """Pass it on; all promises end with it, but for the end of an iteration."""
        if not isinstance(event, Iterated):
            self.promised.clear()
        if type(event) in self.inner.subscribes:
            self.inner.observe(event)

    def schedule(self, view: GroupView) -> Decision:
        """What the policy decides. BrokenPromise where that is not what it has promised."""
        due = {name for name in view.requests if _misses(view, name) == 1}
        decision = self.inner.schedule(view)
        before = self.promised.pop(view.group.id, None)
        is_due = (
            before is not None
            and before.left >= 1
            and before.wake_s > view.now_s
            and before.requests <= due
            and ledger_of(view).fits(dict.fromkeys(before.requests, 1))
        )
        if before is not None and is_due:
            if differences := _differences(before.requests, decision):
                raise BrokenPromise(
                    f"{type(self.inner).__name__} promised at {before.since_s:.3f} s to go on with"
                    f" {_names(before.requests)}, at {view.now_s:.3f} s {'; '.join(differences)}"
                )
            self.kept += 1
        self._note(view, decision, before if is_due else None)
        return decision

    def _note(self, view: GroupView, decision: Decision, before: _Promise | None) -> None:
        """Remember what is promised now, or what is left of what was promised before."""
        running: Mapping[RequestId, int] = {
            name: tokens for batch in decision.launch for name, tokens in batch.tokens.items()
        }
        left = before.left - 1 if before is not None else 0.0
        if decision.steady and all(_misses(view, name) == n for name, n in running.items()):
            left = max(left, inf if decision.at_most is None else decision.at_most - 1)
        if running and left >= 1:
            wake_s = inf if decision.wake_s is None else decision.wake_s
            promise = _Promise(view.now_s, frozenset(running), wake_s, left)
            self.promised[view.group.id] = promise


def audited(policy: SchedulingPolicy) -> Audited:
    """The policy with its own needs and events, held to its promises."""

    class Same(Audited):
        requires = policy.requires
        subscribes = policy.subscribes | UPSETTING

    return Same(policy)


def _misses(view: GroupView, name: RequestId) -> int:
    request = view.requests[name]
    return request.context_tokens - request.kv_tokens


def _differences(promised: frozenset[RequestId], decision: Decision) -> list[str]:
    """What a decision does but for a token of each of those promised, in words."""
    running = {name for batch in decision.launch for name in batch.tokens}
    found = {
        "joins": running - promised,
        "does not run": promised - running,
        "is preempted": set(decision.preempt),
        "is promised KV": set(decision.reserve),
    }
    return [f"{_names(names)} {what}" for what, names in found.items() if names]


def _names(requests: Set[RequestId]) -> str:
    return ", ".join(f"r{name}" for name in sorted(requests))


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
    policy: SchedulingPolicy = build(
        read_nodes(path)["policy"], offered=offered_to_all(LinearCosts(), cluster())
    )
    held = serve(
        load,
        audited(policy),
        costs=LinearCosts(blocks=40),
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
