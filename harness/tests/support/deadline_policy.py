"""A policy for tests of a server: one request at a time, the earliest deadline next."""

from math import inf
from typing import ClassVar

from harness.interface.decisions import Decision
from harness.interface.draft import Draft
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView


class OneByDeadline:
    """Running requests stay; next is the earliest deadline."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, max_num_seqs: int) -> None:
        """So many at a time."""
        self._max_num_seqs = max_num_seqs

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """In the order of `_rank`."""
        draft = Draft(view)
        for request in sorted(view.requests.values(), key=_rank)[: self._max_num_seqs]:
            missing = request.context_tokens - request.kv_tokens
            draft.try_run(request, min(missing, draft.tokens_left))
        return draft.decision()


def _rank(request: RequestView) -> tuple[bool, float, int]:
    deadline_s = request.facts.deadline_s
    return request.kv_tokens == 0, inf if deadline_s is None else deadline_s, request.facts.id
