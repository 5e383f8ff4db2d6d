"""One step of an engine: while it is under way, and as it was timed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.engines.iteration_log import LogRow
from harness.engines.state import KvUse
from harness.interface.decisions import Batch, Decision
from harness.interface.entities import RequestId
from harness.interface.views import RequestView


@dataclass(frozen=True, slots=True)
class Iteration:
    """One step as it was timed, in seconds of the clock given.

    Decided between `start_s` and `decided_s`, scheduled by `scheduled_s`, computed by `computed_s`
    and accounted for by `end_s`. `prompts` are the requests that did not decode. `use` is of while
    it was computed.
    """

    decision: Decision
    batch: Batch
    prompts: frozenset[RequestId]
    use: KvUse
    made: Mapping[RequestId, int]
    finished: tuple[RequestId, ...]
    start_s: float
    decided_s: float
    scheduled_s: float
    computed_s: float
    end_s: float

    @property
    def times(self) -> LogRow:
        """The columns of `TIMES`."""
        tokens = self.batch.tokens
        prompt_tokens = sum([tokens[request] for request in self.prompts])
        work = (len(self.prompts), prompt_tokens, len(tokens) - len(self.prompts))
        spans = (self.start_s, self.decided_s, self.scheduled_s, self.computed_s, self.end_s)
        return (*spans, *work)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step under way, timed as an `Iteration` is.

    `before` has the tokens that each request had generated; None where all decode. `running` counts
    the engine's running requests.
    """

    decision: Decision
    batch: Batch
    prompts: frozenset[RequestId]
    use: KvUse
    before: Mapping[RequestId, int] | None
    start_s: float
    decided_s: float
    scheduled_s: float
    running: int

    def made(self, requests: Mapping[RequestId, Any]) -> Mapping[RequestId, int]:
        """Tokens that each request has produced, by the engine's own requests."""
        if self.before is None:
            return self.batch.tokens
        return {
            r: requests[r].num_output_tokens - before
            for r, before in self.before.items()
            if r in requests
        }

    def finished(self, requests: Mapping[RequestId, Any], running: int) -> tuple[RequestId, ...]:
        """Requests that are answered: these have left the `running`."""
        if running == self.running:
            return ()
        return tuple(r for r in self.batch.tokens if r in requests and requests[r].is_finished())


def prompts_of(
    batch: Batch, requests: Mapping[RequestId, Any], views: Mapping[RequestId, RequestView]
) -> frozenset[RequestId]:
    """Requests of a batch that do not decode; the engine counts the batch as computed."""
    return frozenset(
        r
        for r, n in batch.tokens.items()
        if n > 1
        or requests[r].num_computed_tokens < requests[r].num_tokens
        or requests[r].num_computed_tokens <= views[r].facts.prompt_tokens
    )
