"""A batch on its way: what it computes, how long that takes, and how much of it is over."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.costs.iteration import (
    decode_iterations_within,
    decode_run_seconds,
    work_seconds,
)
from harness.engines.iteration_log import LogRow, row_of
from harness.engines.simulator.group import LiveGroup, LiveRequest
from harness.engines.state import Ints, KvUse
from harness.engines.token_gaps import note_batch
from harness.interface.decisions import Batch
from harness.interface.entities import RequestId, Work


@dataclass(slots=True)
class Flight:
    """A batch being computed: `iterations` of it, the last of which ends at `ends_s`.

    All are alike, or those after the first compute `then`. `views` and `ids` are of the requests of
    the batch, `prompts` those that do not decode at first. Taking requests in, deciding, and
    waiting for KV to be copied take `before_s` before the first. What the first `booked` of them
    have produced is known already. All take `slows` times as long as on all SMs, alone. `use` is
    there if the log is kept.
    """

    live: LiveGroup
    batch: Batch
    views: list[LiveRequest]
    ids: Ints
    work: Work
    prompts: list[RequestId]
    table: Any
    start_s: float
    iterations: int
    ends_s: float
    then: Work | None = None
    before_s: float = 0.0
    booked: int = 0
    slows: float = 1.0
    use: KvUse | None = None

    def seconds(self, iterations: int) -> float:
        """Seconds of the first `iterations` of them, and of what is before."""
        work, then = self.work, self.then
        if then is None and work.prefill_requests == 0:
            return self.before_s + self._decodes_s(work, iterations)
        first_s = self.before_s + self.slows * work_seconds(self.table, work)
        return first_s if then is None else first_s + self._decodes_s(then, iterations - 1)

    def _decodes_s(self, first: Work, iterations: int) -> float:
        return self.slows * float(
            decode_run_seconds(
                self.table,
                first.decode_requests,
                first.context_tokens,
                first.longest_tokens,
                iterations,
            )
        )

    def rows(self) -> Iterator[LogRow]:
        """What the log has of it when it is over, if that is kept."""
        if self.use is None:
            return
        first = self.iterations if self.then is None else 1
        until_s = self.ends_s if first == self.iterations else self.start_s + self.seconds(1)
        yield row_of(self.start_s, until_s - self.start_s, first, self.work, self.use)
        if self.then is not None and self.iterations > 1:
            use = self.use._replace(held_tokens=self.use.held_tokens + len(self.batch.tokens))
            left = self.iterations - 1
            yield row_of(until_s, self.ends_s - until_s, left, self.then, use)

    def iterations_within(self, seconds: float) -> int:
        """Fewest of its iterations, all alike, that take at least so long; all if none do."""
        work = self.work
        return int(
            decode_iterations_within(
                self.table,
                work.decode_requests,
                work.context_tokens,
                work.longest_tokens,
                (seconds - self.before_s) / self.slows,
                self.iterations,
            )
        )

    def ended_by(self, now_s: float) -> int:
        """Iterations that have ended by a time before the last one does."""
        if self.iterations == 1 or self.then is not None:
            return 0
        begun = self.iterations_within(now_s - self.start_s)
        ended = begun if self.start_s + self.seconds(begun) <= now_s else begun - 1
        return min(ended, self.iterations - 1)

    def end_s(self, iterations: int) -> float:
        """When so many of them have ended, or none."""
        if iterations == self.iterations:
            return self.ends_s
        return self.start_s + self.seconds(iterations) if iterations else self.start_s

    def note_gaps(self, made: Mapping[RequestId, int], more: int, to_s: float) -> None:
        """Count the gaps between the tokens of so many further iterations, which end at `to_s`."""
        arrays, ids, first_s, second_s = self.live.state.arrays, self.ids, to_s, 0.0
        if 0 in made.values():
            ids = np.array([request for request, tokens in made.items() if tokens], np.int64)
            if not len(ids):
                return
        if more > 1:
            first_s = self.end_s(self.booked + 1)
            second_s = self.end_s(self.booked + 2) - first_s
        note_batch(arrays.rows, arrays.gaps, ids, first_s, second_s, to_s, more)


def work_of(
    views: Iterable[LiveRequest], batch: Batch, *, pads: bool
) -> tuple[Work, list[RequestId]]:
    """What a batch of requests computes, and which of them do not decode."""
    prompts = []
    decodes = tokens_in = context = longest = longest_prompt = 0
    attended = 0.0
    for view, (request, tokens) in zip(views, batch.tokens.items(), strict=True):
        held, total = view.kv_tokens, view.context_tokens
        # `is_decode`, without a call for each
        if 0 < held == total - 1 >= view.facts.prompt_tokens:
            decodes += 1
            context += total
            if total > longest:
                longest = total
        else:
            prompts.append(request)
            tokens_in += tokens
            longest_prompt = max(longest_prompt, tokens)
            attended += tokens * (2.0 * (held + tokens) - tokens)
    padded = tokens_in
    if pads:
        padded = len(prompts) * longest_prompt
        attended = len(prompts) * float(longest_prompt) ** 2
    return Work(len(prompts), tokens_in, padded, attended, decodes, context, longest), prompts


def decodes_after(views: Iterable[LiveRequest]) -> Work:
    """What each iteration after the first computes of a batch that no request joins or leaves."""
    contexts = [view.context_tokens + 1 for view in views]
    return Work(0, 0, 0, 0.0, len(contexts), sum(contexts), max(contexts))
