"""One step of an engine, as it was timed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan

from harness.engines.recorder import LogRow
from harness.engines.state import Ints, KvUse
from harness.interface.decisions import Batch, Decision
from harness.interface.entities import RequestId, Work


@dataclass(slots=True, kw_only=True)
class Iteration:
    """One step as it was timed, in seconds of the clock given.

    Decided between `start_s` and `decided_s`, scheduled by `scheduled_s`, computed by `computed_s`
    and accounted for by `end_s`. `prompts` are the requests that did not decode. `use` is of while
    it was computed. What it has `made` and `finished`, and the last two times, are known when it
    is over.
    """

    decision: Decision
    batch: Batch
    prompts: frozenset[RequestId]
    use: KvUse
    start_s: float
    decided_s: float
    scheduled_s: float
    computed_s: float = nan
    end_s: float = nan
    made: Mapping[RequestId, int] = field(default_factory=dict)
    finished: tuple[RequestId, ...] = ()

    @property
    def times(self) -> LogRow:
        """The columns of `TIMES`."""
        tokens = self.batch.tokens
        prompt_tokens = sum([tokens[request] for request in self.prompts])
        work = (len(self.prompts), prompt_tokens, len(tokens) - len(self.prompts))
        spans = (self.start_s, self.decided_s, self.scheduled_s, self.computed_s, self.end_s)
        return (*spans, *work)

    def work(self, kv: Ints) -> Work:
        """What it computes, where requests hold so many tokens of `kv` before it, by number."""
        tokens = self.batch.tokens
        chunks = [(int(kv[r]), n) for r, n in tokens.items() if r in self.prompts]
        contexts = [int(kv[r]) + 1 for r in tokens if r not in self.prompts]
        total = sum(n for _, n in chunks)
        return Work(
            prefill_requests=len(chunks),
            prefill_tokens=total,
            prefill_padded_tokens=total,
            prefill_attended=sum(n * (2.0 * (held + n) - n) for held, n in chunks),
            decode_requests=len(contexts),
            context_tokens=sum(contexts),
            longest_tokens=max(contexts, default=0),
        )
