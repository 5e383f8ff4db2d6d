"""Shortest remaining first, with an oracle: a policy whose mean response time is known.

For verification only. What requests will produce is given by the set-up, not by views.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from harness.interface.decisions import Decision
from harness.interface.draft import Draft
from harness.interface.entities import RequestId
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import GroupView


class ShortestRemaining:
    """Scheduling policy: one request at a time; an overtaken request pauses and keeps its KV.

    The prefill yields the first token and takes no time, so before it what remains is one decode
    less than the tokens to come. Of equals the older runs.
    """

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, output_tokens: NDArray[np.int64]) -> None:
        """`output_tokens` by request id."""
        self._output_tokens = output_tokens

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Run the first in order until something happens."""
        table = view.table
        decodes_left = self._output_tokens[table.id] - np.maximum(1, table.generated_tokens)
        first = view.requests[RequestId(int(table.id[np.argmin(decodes_left)]))]
        draft = Draft(view)
        draft.try_run(first, first.context_tokens - first.kv_tokens)
        return draft.decision(steady=True)
