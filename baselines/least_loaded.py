"""Least loaded: a request goes to the group of its service that has the least to do.

Paper      W. Winston, Optimality of the shortest line discipline, J. Applied Probability 14, 1977.
Idea       A new request joins the shortest line. Requests differ in length, so lines may also be
           measured by their tokens.
Map        the discipline -> dispatch
Constants  `counts`: requests, or tokens (of prompts, and of answers so far)
Differs    the paper's lines hold equal, exponential work, for which counting requests is optimal;
           tokens are our choice
Checked    baselines/tests/test_least_loaded.py
"""

from collections.abc import Sequence
from typing import ClassVar

from harness.interface.entities import ServiceId
from harness.interface.load_order import LoadOrder
from harness.interface.views import ClusterView

ORDERS = {
    "requests": LoadOrder(),
    "tokens": LoadOrder(weight=lambda table: table.prompt_tokens, adds_generated=True),
}


class LeastLoaded:
    """Dispatch policy. It returns a load order, which the engine follows."""

    reads_load: ClassVar[bool] = False

    def __init__(self, *, counts: str) -> None:
        """Raises ValueError where `counts` is neither requests nor tokens."""
        if counts not in ORDERS:
            raise ValueError(f"counts is {counts}, it must be {' or '.join(ORDERS)}")
        self._order = ORDERS[counts]

    def dispatch(self, requests: Sequence[int], service: ServiceId, view: ClusterView) -> LoadOrder:
        """The same for every service."""
        return self._order
