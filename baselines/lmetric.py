"""LMetric: a request goes where prompt tokens to compute times requests are fewest.

Paper      LMetric, arXiv 2603.15202, whose own text was not read: by readers of its section 5, and
           by llm-d/llm-d-router, pkg/epp/framework/plugins/scheduling/scorer/lmetric/lmetric.go
           (commit 1fee9c80).
Idea       An instance is scored by the prompt tokens that it would have to compute if it got the
           request, times the requests that it would have. A product of both has no weight to tune.
           The least score wins.
Map        P, tokens to compute               -> `SentPrompts.missing_tokens`, `counts_queued`
           BS, requests with this one         -> `GroupRecord.open`
           P x BS, argmin                     -> `_score`, `SentPrompts.send`
Constants  none in the product. `counts_queued`: whether P has the prompts that an instance has not
           computed yet, as readers of the paper say; in llm-d it has not. `ttl_s` 120 and blocks as
           prefix_aware: see scenarios/system/dispatch/lmetric.yaml
Differs    not stated: how ties are decided (here the fewest requests, then the order of the
           deployment), and how old counters may be (here none is). What is cached where is what
           this policy sent there, for a while, not what instances report. A queued prompt counts
           until its first token, also as chunks of it are computed. The last token of a prompt is
           always computed, so no product is 0. Not built: the detector of section 5.2, which
           excludes instances that a popular prefix overloads; its window is not stated
Checked    baselines/tests/test_lmetric.py::test_tokens_times_requests_by_hand
"""

from collections.abc import Sequence
from typing import ClassVar

from harness.interface.entities import Content, GroupId, ServiceId
from harness.interface.views import ClusterView
from harness.planning.sent_prompts import GroupRecord, SentPrompts


class LMetric:
    """Dispatch policy. It keeps what it sent where, and reads which requests are unanswered."""

    reads_load: ClassVar[bool] = False
    reads_unfinished: ClassVar[bool] = True

    def __init__(self, *, counts_queued: bool, block_tokens: int, ttl_s: float) -> None:
        """Raises ValueError for blocks without tokens, and no time to live."""
        self._counts_queued = counts_queued
        self._sent = SentPrompts(block_tokens=block_tokens, ttl_s=ttl_s)

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> list[GroupId]:
        """The group with the least score for each request, one after the other."""
        return self._sent.send(requests, service, view, self._score)

    def _score(
        self, record: GroupRecord, blocks: Sequence[Content], tokens: int
    ) -> tuple[float, int]:
        """Tokens to compute times requests, both with this request; then requests."""
        missing = self._sent.missing_tokens(record, blocks, tokens)
        if self._counts_queued:
            missing += record.missing_tokens
        return missing * (record.open + 1), record.open
