"""Asks a policy again although it calls a decision steady."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from harness.interface.decisions import Decision
from harness.interface.entities import GroupId, RequestId
from harness.interface.events import Arrived, Event, Finished, Iterated, Moved, Predicted
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView

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
            and view.kv.fits(dict.fromkeys(before.requests, 1))
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
