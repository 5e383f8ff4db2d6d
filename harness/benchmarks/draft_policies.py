"""Plain policies that decide every iteration through a `Draft`: how fast such ones are served."""

from typing import ClassVar

from harness.interface.decisions import Decision
from harness.interface.draft import Draft
from harness.interface.events import Event
from harness.interface.filling import continuous_batch
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView


class DraftFcfs:
    """First come, first served; holders of KV keep their places."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Holders, then newcomers, both in order of arrival; the same again while all run."""
        draft = Draft(view)
        requests = view.requests.values()
        holders = [request for request in requests if request.kv_tokens > 0]
        newcomers = [request for request in requests if request.kv_tokens == 0]
        continuous_batch(draft, holders + newcomers)
        return draft.decision(steady=draft.runs_all)


class DraftSrpt:
    """Shortest predicted remainder first; only the first `max_num_seqs` keep their KV (recompute).

    Predictions are made up, as uneven over equal requests as those of a poor predictor: newcomers
    overtake and preempt.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, max_num_seqs: int) -> None:
        self._max_num_seqs = max_num_seqs

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Sort all requests, preempt those without a slot, run the others."""
        draft = Draft(view)
        order = sorted(view.requests.values(), key=_remaining_tokens)
        for request in order[self._max_num_seqs :]:
            if request.kv_tokens > 0:
                draft.preempt(request)
        continuous_batch(draft, order[: self._max_num_seqs])
        return draft.decision()


def _remaining_tokens(request: RequestView) -> int:
    """Predicted output, by a hash of the id between nothing and twice the limit, less the done."""
    facts = request.facts
    return facts.id * 7919 % 97 * 2 * facts.max_output_tokens // 97 - request.generated_tokens
