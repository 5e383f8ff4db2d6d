"""Prefix-aware dispatch: a request goes where the blocks to compute and to hold are fewest.

Paper      none; documentation of NVIDIA Dynamo, "Router Guide" (github.com/ai-dynamo/dynamo,
           docs/components/router/router_guide.md), router without KV events.
Idea       The router keeps which blocks of prompts it sent to which worker, and expects them to be
           cached there for a while. A request costs a worker the prompt blocks that it would have
           to compute and the blocks that its requests would hold; the least cost wins.
Map        "Cost calculation", prefill blocks    -> `_Sent.missing_tokens`, `_cost`
           "Cost calculation", decode blocks     -> `_Record.held`, `_cost`
           "Worker selection", temperature 0     -> `dispatch`
           --no-kv-events, --router-ttl          -> `_Record.sent_s`, `expire`
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

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from harness.interface.entities import Content, GroupId, RequestId, ServiceId
from harness.interface.views import ClusterView


@dataclass(slots=True)
class _Sent:
    """An unanswered request: its group, prompt blocks, and tokens that it still has to compute."""

    group: GroupId
    record: "_Record"
    blocks: list[Content]
    has_part: bool
    missing_tokens: int


@dataclass(slots=True)
class _Record:
    """What a group was sent.

    `sent_s` has when each block was sent last, the oldest first; `held` how many unanswered
    requests hold each block, `parts` how many have one that is not full. `missing_tokens` are those
    of prompts without a first token, `open` the unanswered requests.
    """

    sent_s: OrderedDict[Content, float] = field(default_factory=OrderedDict)
    held: Counter[Content] = field(default_factory=Counter)
    parts: int = 0
    missing_tokens: int = 0
    open: int = 0

    def expire(self, before_s: float) -> None:
        """Forget blocks that were sent last before then."""
        while self.sent_s and next(iter(self.sent_s.values())) < before_s:
            self.sent_s.popitem(last=False)

    def cached(self, blocks: Sequence[Content]) -> int:
        """Leading blocks that were sent here."""
        return next((n for n, it in enumerate(blocks) if it not in self.sent_s), len(blocks))

    def take(self, sent: _Sent, now_s: float) -> None:
        """A request is sent here."""
        for block in sent.blocks:
            self.sent_s[block] = now_s
            self.sent_s.move_to_end(block)
        self.held.update(sent.blocks)
        self.parts += sent.has_part
        self.missing_tokens += sent.missing_tokens
        self.open += 1

    def release(self, sent: _Sent) -> None:
        """A request is answered, or has left."""
        for block in sent.blocks:
            self.held[block] -= 1
            if not self.held[block]:
                del self.held[block]
        self.parts -= sent.has_part
        self.missing_tokens -= sent.missing_tokens
        self.open -= 1


class PrefixAware:
    """Dispatch policy. It keeps what it sent where, and reads which requests are unanswered."""

    reads_load: ClassVar[bool] = False
    reads_unfinished: ClassVar[bool] = True

    def __init__(self, *, overlap_weight: float, block_tokens: int, ttl_s: float) -> None:
        """Raises ValueError for a negative weight, blocks without tokens, and no time to live."""
        if overlap_weight < 0 or block_tokens < 1 or not ttl_s > 0:
            raise ValueError(
                f"overlap_weight {overlap_weight} must be at least 0, block_tokens {block_tokens} "
                f"at least 1, ttl_s {ttl_s} above 0"
            )
        self._weight, self._block_tokens, self._ttl_s = overlap_weight, block_tokens, ttl_s
        self._records: dict[GroupId, _Record] = {}
        self._open: dict[ServiceId, dict[int, _Sent]] = {}

    def dispatch(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView
    ) -> list[GroupId]:
        """The group with the least cost for each request, one after the other."""
        table = view.unfinished(service)
        prompt_tokens = dict(zip(table.id.tolist(), table.prompt_tokens.tolist(), strict=True))
        begun = table.id[table.generated_tokens > 0].tolist()
        homes = [group.id for group in view.deployment.groups if service in group.services]
        self._keep_up({group.id for group in view.deployment.groups}, view.now_s)
        sent = self._open.setdefault(service, {})
        self._note_progress(sent, prompt_tokens.keys() - set(requests), begun)
        for request in requests:
            blocks = view.prompt_blocks(RequestId(request), self._block_tokens)
            tokens = prompt_tokens[request]
            group = min(homes, key=lambda home: self._cost(self._records[home], blocks, tokens))
            record = self._records[group]
            missing = self._missing(record, blocks, tokens)
            new = _Sent(group, record, blocks, self._has_part(tokens), missing)
            record.take(new, view.now_s)
            sent[request] = new
        return [sent[request].group for request in requests]

    def _keep_up(self, groups: set[GroupId], now_s: float) -> None:
        """Records of the groups that there are, without what has expired."""
        self._records = {name: self._records.get(name, _Record()) for name in groups}
        for record in self._records.values():
            record.expire(now_s - self._ttl_s)

    def _note_progress(
        self, sent: dict[int, _Sent], unanswered: Iterable[int], begun: Iterable[int]
    ) -> None:
        """Release requests that were answered or come again; prompts of `begun` are computed."""
        for request in sent.keys() - unanswered:
            gone = sent.pop(request)
            gone.record.release(gone)
        for request in sent.keys() & begun:
            one = sent[request]
            one.record.missing_tokens -= one.missing_tokens
            one.missing_tokens = 0

    def _cost(self, record: _Record, blocks: Sequence[Content], tokens: int) -> tuple[float, int]:
        """Blocks to compute, weighted, and blocks held with the request; then open requests."""
        missing = record.missing_tokens + self._missing(record, blocks, tokens)
        new = sum(block not in record.held for block in blocks)
        decode = len(record.held) + new + record.parts + self._has_part(tokens)
        return self._weight * missing / self._block_tokens + decode, record.open

    def _missing(self, record: _Record, blocks: Sequence[Content], tokens: int) -> int:
        """Prompt tokens to compute: the last one always is."""
        return tokens - min(record.cached(blocks) * self._block_tokens, tokens - 1)

    def _has_part(self, tokens: int) -> bool:
        return tokens % self._block_tokens > 0
