"""A batch that a policy has written, on its way; what it computes is counted in compiled code."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.costs.iteration import MAX_REQUESTS
from harness.engines.recorder import LogRow, row_of
from harness.engines.simulator.group import LiveGroup, LiveRequest
from harness.engines.simulator.kernel import given
from harness.engines.simulator.kernel.layout import ALL, FIRST
from harness.engines.state import Ints, KvUse
from harness.interface.decisions import Batch, Until
from harness.interface.entities import RequestId, Work
from harness.interface.policies import CostModel

_UNTIL = {Until.ITERATION: 0, Until.FIRST: FIRST, Until.ALL: ALL}


@dataclass(slots=True, eq=False)
class Flight:
    """A batch being computed: a record of `given.FLIGHT`, which compiled code writes.

    `rows` has that record, `row`, alone; `table` has the costs. `views`, `ids` and `tokens` are of
    the requests of the batch; `made` has what each has produced in the iterations counted last.
    `iterations`, `booked` and `ends_s` repeat the record, for Python to read them at a small cost.
    `uses`, of its first iteration and of its second, are there if the log is kept.
    """

    live: LiveGroup
    batch: Batch
    views: list[LiveRequest]
    ids: Ints
    tokens: Ints
    table: NDArray[np.void]
    rows: NDArray[np.void]
    row: Any
    made: Ints
    has_prompts: bool
    start_s: float
    iterations: int = 1
    booked: int = 0
    ends_s: float = inf
    uses: tuple[KvUse, KvUse] | None = None

    @classmethod
    def of(cls, live: LiveGroup, batch: Batch, table: NDArray[np.void], *, pads: bool) -> "Flight":
        """One that is not under way, of members of a group. ValueError for more than costs know."""
        if len(batch.tokens) > MAX_REQUESTS:
            raise ValueError(
                f"a batch of {len(batch.tokens)} requests, costs go up to {MAX_REQUESTS}"
            )
        views = [live.members[request] for request in batch.tokens]
        ids = np.fromiter(batch.tokens, np.int64, len(views))
        tokens = np.fromiter(batch.tokens.values(), np.int64, len(views))
        made, rows = np.empty(len(views), np.int64), np.zeros(1, given.FLIGHT)
        share, until = batch.gpu_share, _UNTIL[batch.until]
        requests, now_s = live.state.arrays.rows, live.state.now_s
        has_prompts = given.fill(requests, rows, ids, tokens, now_s, share, until, pads)
        row = rows[0]
        return cls(live, batch, views, ids, tokens, table, rows, row, made, has_prompts, now_s)

    @property
    def first_s(self) -> float:
        """Seconds of the first of them, without what is before it."""
        return float(self.row["slows"]) * float(given.first_s(self.table, self.rows))

    @property
    def is_whole(self) -> bool:
        """Whether its requests stay together until answers are there."""
        return self.batch.until is not Until.ITERATION

    @property
    def work(self) -> Work:
        """What its first iteration computes."""
        return Work(*self.row.item()[: given.WORKS])

    def compute(self, work: Work) -> None:
        """Its first iteration computes this instead."""
        for name in Work.__slots__:
            self.row[name] = getattr(work, name)

    def begin(self, iterations: int) -> None:
        """So many of it are computed from now on."""
        requests, self.iterations = self.live.state.arrays.rows, iterations
        self.ends_s = given.begin(requests, self.table, self.rows, self.ids, iterations)

    def cut(self, now_s: float) -> bool:
        """Something has happened: it ends at its next boundary. Whether that is earlier."""
        if self.iterations == 1 or self.is_whole:
            return False
        iterations = given.cut(self.table, self.rows, now_s)
        if iterations == self.iterations:
            return False
        self.iterations, self.ends_s = iterations, float(self.row["ends_s"])
        return True

    def ended_by(self, now_s: float) -> int:
        """How many have ended by a time before the last one does."""
        if self.iterations == 1 or self.is_whole:
            return 0
        return int(given.ended_by(self.table, self.rows, now_s))

    def within(self, seconds: float, most: int) -> int:
        """Fewest iterations, of `most`, that take at least so long; `most` if none do."""
        return int(given.within(self.table, self.rows, seconds, most))

    def end_s(self, iterations: int) -> float:
        """When so many of it have ended."""
        return float(given.end_s(self.table, self.rows, iterations))

    def slow(self, costs: CostModel, alone: NDArray[np.void], share_in_flight: float) -> None:
        """It takes longer on its share of the SMs, and as what is in flight has more than all.

        Both tables are of the same costs, `alone` without what deciding takes.
        """
        batch, slows = self.batch, 1.0
        if batch.gpu_share < 1.0:
            degree = self.live.group.tensor_parallel
            slows = costs.iteration_s(batch.service, degree, self.work, gpu_share=batch.gpu_share)
            slows /= given.first_s(alone, self.rows)
        self.row["slows"] = slows * max(1.0, batch.gpu_share + share_in_flight)

    def book(self, iterations: int) -> list[RequestId]:
        """Count tokens and time up to the iteration `iterations`; returns requests answered."""
        arrays, answered = self.live.state.arrays, np.empty_like(self.ids)
        count = given.book(
            arrays.rows,
            arrays.gaps,
            self.table,
            self.rows,
            self.ids,
            self.tokens,
            iterations,
            self.made,
            answered,
        )
        self.booked = iterations
        self.live.note_behind(self.views, self.ids)
        found: list[RequestId] = answered[:count].tolist()
        return found

    def log_rows(self) -> Iterator[LogRow]:
        """What the log has of it when it is over, if that is kept."""
        if self.uses is None:
            return
        first = 1 if self.has_prompts or self.is_whole else self.iterations
        until_s = self.end_s(first)
        yield row_of(self.start_s, until_s - self.start_s, first, self.work, self.uses[0])
        if left := self.iterations - first:
            context, longest = self.row["later_context_tokens"], self.row["later_longest_tokens"]
            later = Work(0, 0, 0, 0.0, len(self.ids), int(context), int(longest))
            yield row_of(until_s, self.ends_s - until_s, left, later, self.uses[1])
