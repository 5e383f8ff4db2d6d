"""Prefix-aware dispatch: a request goes where the blocks to compute and to hold are fewest.

Paper      none; documentation of NVIDIA Dynamo, "Router Guide" (github.com/ai-dynamo/dynamo,
           docs/components/router/router_guide.md), router without KV events.
Idea       The router keeps which blocks of prompts it sent to which worker, and expects them to be
           cached there for a while. A request costs a worker the prompt blocks that it would have
           to compute and the blocks that its requests would hold; the least cost wins.
Map        "Cost calculation", prefill blocks    -> `SentPrompts.missing_tokens`, `_cost`
           "Cost calculation", decode blocks     -> `GroupRecord.held`, `_cost`
           "Worker selection", temperature 0     -> `SentPrompts.send`
           --no-kv-events, --router-ttl          -> `GroupRecord.sent_s`, `expire`
           --assume-kv-reuse                     -> blocks of several requests are held once
Constants  overlap_weight 1.0 and ttl_s 120.0, the defaults there; block_tokens as the engine's
Differs    not stated: how ties are decided (here the fewest unanswered requests, then the order of
           the deployment), and a block that is not full (here held by its request alone, and
           computed). Not built: the limit of the tree's size, softmax sampling, tracked output
           blocks (off there, too), busy thresholds. A request that comes again,
           since its group is unloaded, counts as a new one. Calls that follow each other without a
           pause stay in their group by the engine's rule, do not come to this policy and are not
           counted
Checked    baselines/tests/test_prefix_aware.py::test_cached_blocks_against_load_by_hand
"""

from collections.abc import Sequence
from typing import ClassVar

from harness.interface.entities import Content, GroupId, ServiceId
from harness.interface.views import ClusterView
from harness.planning.sent_prompts import GroupRecord, SentPrompts


class PrefixAware:
    """Dispatch policy. It keeps what it sent where, and reads which requests are unanswered."""

    reads_load: ClassVar[bool] = False
    reads_unfinished: ClassVar[bool] = True

    def __init__(self, *, overlap_weight: float, block_tokens: int, ttl_s: float) -> None:
        """Raises ValueError for a negative weight, blocks without tokens, and no time to live."""
        if overlap_weight < 0:
            raise ValueError(f"overlap_weight {overlap_weight} must be at least 0")
        self._weight = overlap_weight
        self._sent = SentPrompts(block_tokens=block_tokens, ttl_s=ttl_s)

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> list[GroupId]:
        """The group with the least cost for each request, one after the other."""
        return self._sent.send(requests, service, view, self._cost)

    def _cost(
        self, record: GroupRecord, blocks: Sequence[Content], tokens: int
    ) -> tuple[float, int]:
        """Blocks to compute, weighted, and blocks held with the request; then open requests."""
        missing = record.missing_tokens + self._sent.missing_tokens(record, blocks, tokens)
        new = sum(block not in record.held for block in blocks)
        decode = len(record.held) + new + record.parts + self._sent.has_part(tokens)
        return self._weight * missing / self._sent.block_tokens + decode, record.open
