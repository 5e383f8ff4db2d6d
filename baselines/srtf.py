"""SRTF: shortest predicted remaining time first, preempting requests with more left.

Paper      Schrage, A Proof of the Optimality of the Shortest Remaining Processing Time Discipline,
           Operations Research 16(3), 1968; on predicted lengths as in arXiv 2411.06364 sec. 4.
Idea       Every iteration the requests with the fewest predicted tokens left run. A request that
           loses its slot to a newcomer drops its KV and is recomputed later.
Map        -                              -> the order in `schedule`
Constants  `max_num_seqs`: requests that run at once, from the scenario
Differs    a prediction that is overrun counts as one token left, by how far among those; without
           a prediction the limit stands in for the length
Checked    baselines/tests/test_srtf.py::test_a_short_newcomer_takes_a_slot_by_hand
"""

from typing import ClassVar

from harness.interface.decisions import Decision
from harness.interface.draft import Draft
from harness.interface.events import Event
from harness.interface.filling import continuous_batch, is_decode
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView


class Srtf:
    """Scheduling policy: asked every iteration."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, max_num_seqs: int) -> None:
        """At most `max_num_seqs` requests hold KV. ValueError below 1."""
        if max_num_seqs < 1:
            raise ValueError(f"policy.max_num_seqs is {max_num_seqs}, it must be at least 1")
        self._max_num_seqs = max_num_seqs

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """The shortest remainders run; holders behind them give way."""
        draft = Draft(view)
        max_num_seqs = min(self._max_num_seqs, view.max_num_seqs)
        order = sorted(view.requests.values(), key=_remaining)
        for request in order[max_num_seqs:]:
            if request.kv_tokens > 0:
                draft.preempt(request)
        continuous_batch(draft, order[:max_num_seqs])
        # A decoding request only nears its end, so that no request overtakes it before one arrives.
        changes = any(draft.preempts(request) for request in order)
        return draft.decision(steady=not changes and all(map(is_decode, order[:max_num_seqs])))


def _remaining(request: RequestView) -> tuple[float, float, int]:
    """Tokens left, at least one; a larger overrun comes first, so that orders stay."""
    length: float = request.facts.max_output_tokens
    if request.predicted is not None:
        length = request.predicted.mean_tokens
    left = length - request.generated_tokens
    return max(1.0, left), left, request.facts.id
