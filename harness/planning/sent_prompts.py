"""What a router sent to which group: the prompt blocks it expects to be cached, and the load."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from harness.interface.entities import Content, GroupId, RequestId, ServiceId
from harness.interface.views import ClusterView


@dataclass(slots=True)
class _Sent:
    """An unanswered request: its group, prompt blocks, and tokens that it still has to compute."""

    group: GroupId
    record: "GroupRecord"
    blocks: list[Content]
    has_part: bool
    missing_tokens: int


@dataclass(slots=True)
class GroupRecord:
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


Cost = Callable[[GroupRecord, Sequence[Content], int], tuple[float, int]]
"""Of a request at a group: by the record of the group, and the blocks and tokens of the prompt."""


class SentPrompts:
    """Records of all groups, kept up by what was sent and which requests are unanswered.

    A router without KV events has no more: a block is expected to be cached where it was sent in
    the last `ttl_s` seconds.
    """

    def __init__(self, *, block_tokens: int, ttl_s: float) -> None:
        """Raises ValueError for blocks without tokens, and no time to live."""
        if block_tokens < 1 or not ttl_s > 0:
            raise ValueError(
                f"block_tokens {block_tokens} must be at least 1, ttl_s {ttl_s} above 0"
            )
        self.block_tokens, self._ttl_s = block_tokens, ttl_s
        self._records: dict[GroupId, GroupRecord] = {}
        self._open: dict[ServiceId, dict[int, _Sent]] = {}

    def send(
        self, requests: Sequence[int], service: ServiceId, view: ClusterView, cost: Cost
    ) -> list[GroupId]:
        """Send each request to the group with the least cost, one after the other."""
        table = view.unfinished(service)
        prompt_tokens = dict(zip(table.id.tolist(), table.prompt_tokens.tolist(), strict=True))
        begun = table.id[table.generated_tokens > 0].tolist()
        homes = [group.id for group in view.deployment.groups if service in group.services]
        self._keep_up({group.id for group in view.deployment.groups}, view.now_s)
        sent = self._open.setdefault(service, {})
        self._note_progress(sent, prompt_tokens.keys() - set(requests), begun)
        for request in requests:
            blocks = view.prompt_blocks(RequestId(request), self.block_tokens)
            tokens = prompt_tokens[request]
            costs = {home: cost(self._records[home], blocks, tokens) for home in homes}
            group = min(homes, key=costs.__getitem__)
            record = self._records[group]
            missing = self.missing_tokens(record, blocks, tokens)
            new = _Sent(group, record, blocks, self.has_part(tokens), missing)
            record.take(new, view.now_s)
            sent[request] = new
        return [sent[request].group for request in requests]

    def missing_tokens(self, record: GroupRecord, blocks: Sequence[Content], tokens: int) -> int:
        """Prompt tokens that a group would have to compute: the last one always is."""
        return tokens - min(record.cached(blocks) * self.block_tokens, tokens - 1)

    def has_part(self, tokens: int) -> bool:
        """Whether a prompt ends with a block that is not full."""
        return tokens % self.block_tokens > 0

    def _keep_up(self, groups: set[GroupId], now_s: float) -> None:
        """Records of the groups that there are, without what has expired."""
        self._records = {name: self._records.get(name, GroupRecord()) for name in groups}
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
