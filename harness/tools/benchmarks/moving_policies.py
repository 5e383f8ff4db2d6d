"""Policies made up for benchmarks and tests.

Priority orders that move with progress, that hold requests together, or that set KV aside, and
plain policies that decide every iteration through a `Draft`.
"""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from harness.core.draft import Draft
from harness.core.fill import run_in_order
from harness.interface.decisions import (
    ContinuousBatching,
    Decision,
    Displaced,
    PriorityOrder,
    StaticBatching,
)
from harness.interface.events import Event, Overran
from harness.interface.moving import MovingKey, Progress
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView, RequestView


class Unaware:
    """A policy that observes nothing."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def observe(self, event: Event) -> None:
        """Nothing to learn."""


class Ordered(Unaware):
    """A scheduling policy that is a priority order and nothing else."""

    def __init__(self, priority_order: PriorityOrder) -> None:
        self._decision = Decision(priority_order=priority_order)

    def schedule(self, view: GroupView) -> Decision:
        """The order."""
        return self._decision


class OrderedByPrediction(Ordered):
    """One that rests on predicted lengths."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})


class DraftFcfs(Unaware):
    """First come, first served; holders of KV keep their places."""

    def schedule(self, view: GroupView) -> Decision:
        """Holders, then newcomers, both in order of arrival; the same again while all run."""
        draft = Draft(view)
        requests = view.requests.values()
        holders = [request for request in requests if request.kv_tokens > 0]
        newcomers = [request for request in requests if request.kv_tokens == 0]
        run_in_order(draft, holders + newcomers)
        return draft.decision(steady=draft.runs_all)


class DraftSrpt(Unaware):
    """Shortest predicted remainder first; only the first `max_num_seqs` keep their KV (recompute).

    Predictions are made up, as uneven over equal requests as those of a poor predictor: newcomers
    overtake and preempt.
    """

    def __init__(self, max_num_seqs: int) -> None:
        self._max_num_seqs = max_num_seqs

    def schedule(self, view: GroupView) -> Decision:
        """Sort all requests, preempt those without a slot, run the others."""
        draft = Draft(view)
        order = sorted(view.requests.values(), key=_remaining_tokens)
        for request in order[self._max_num_seqs :]:
            if request.kv_tokens > 0:
                draft.preempt(request)
        run_in_order(draft, order[: self._max_num_seqs])
        return draft.decision()


def _remaining_tokens(request: RequestView) -> int:
    """Predicted output, by a hash of the id between nothing and twice the limit, less the done."""
    facts = request.facts
    return facts.id * 7919 % 97 * 2 * facts.max_output_tokens // 97 - request.generated_tokens


def predicted_tokens(table: RequestTable) -> Floats:
    """Predicted answers; the limit where there is no prediction."""
    predicted = table.predicted_mean_tokens
    return np.where(np.isnan(predicted), table.max_output_tokens.astype(np.float64), predicted)


def remaining_tokens(table: RequestTable) -> MovingKey:
    """Predicted tokens less those generated; 1 once that is all that is left, or overrun."""
    return _remaining(predicted_tokens(table))


def uneven_remaining_tokens(table: RequestTable) -> MovingKey:
    """The same of made-up predictions, as uneven over equal requests as a poor predictor's are."""
    made_up = table.id * 7919 % 97 * 2 * table.max_output_tokens // 97
    return _remaining(made_up.astype(np.float64))


def _remaining(predicted: Floats) -> MovingKey:
    one, never = np.ones_like(predicted), np.full_like(predicted, np.inf)
    return MovingKey(
        value=np.stack([predicted, one], axis=1),
        slope=np.tile([-1.0, 0.0], (len(one), 1)),
        until=np.stack([predicted - 1.0, never], axis=1),
    )


def attained_tokens(table: RequestTable) -> MovingKey:
    """Tokens generated."""
    one = np.ones((len(table.id), 1))
    return MovingKey(value=0.0 * one, slope=one, until=np.inf * one)


def attained_seconds(table: RequestTable) -> MovingKey:
    """GPU seconds attained, up to two; then first come first served.

    Without an end, two requests whose KV does not fit at once would take each other's before either
    has computed its prompt, for ever: seconds pass in prompts, too.
    """
    columns = np.array([[0.0, 1e9], [1.0, 0.0], [2.0, np.inf]])
    value, slope, until = (np.tile(column, (len(table.id), 1)) for column in columns)
    value[:, 1] += table.arrival_s
    return MovingKey(value=value, slope=slope, until=until, by=Progress.GPU_S)


def attained_quanta(table: RequestTable) -> MovingKey:
    """Whole quanta of 32 tokens generated: four are told, and four more when these are over."""
    ends = 32.0 * (table.generated_tokens // 32)[:, None] + np.array([32.0, 64.0, 96.0, 128.0])
    return MovingKey(value=ends, slope=0.0 * ends, until=ends)


def queue_of_five(table: RequestTable) -> MovingKey:
    """The queue that a request has sunk to, first come first served in each.

    The first of five queues lasts 8 tokens, each of the others twice as long, and the last for
    ever; long prompts skip the first.
    """
    return _queue(table, 8.0, Progress.TOKENS)


def queue_of_five_s(table: RequestTable) -> MovingKey:
    """The same of GPU seconds, of which the first queue lasts a tenth."""
    return _queue(table, 0.1, Progress.GPU_S)


def _queue(table: RequestTable, first: float, by: Progress) -> MovingKey:
    rows, later = len(table.id), 1e9
    ends = first * np.array([1.0, 3.0, 7.0, 15.0, np.inf])
    queue = np.maximum(np.arange(5.0), (table.prompt_tokens[:, None] > 64).astype(float))
    return MovingKey(
        value=later * queue + table.arrival_s[:, None],
        slope=np.zeros((rows, 5)),
        until=np.tile(ends, (rows, 1)),
        by=by,
    )


def doubling_budget_s(table: RequestTable) -> MovingKey:
    """GPU seconds left of a request's budget, which doubles whenever it is used up.

    The first is the mean and a standard deviation of what requests of its service take: 0.4 and
    0.2 s here. The twelfth, of 20 minutes, is the last.
    """
    # Budgets of 1, 2, 4 ... times the first end at 1, 3, 7 ... times.
    ends = np.tile(0.6 * (np.exp2(np.arange(1.0, 13.0)) - 1.0), (len(table.id), 1))
    until = ends.copy()
    until[:, -1] = np.inf
    return MovingKey(value=ends, slope=-np.ones_like(ends), until=until, by=Progress.GPU_S)


def to_the_predicted_end(table: RequestTable) -> Floats:
    """The context with which a request is predicted to end."""
    return table.prompt_tokens + predicted_tokens(table)


class LearntAllocation(OrderedByPrediction):
    """Sets aside what is predicted, and a tenth more for all after every overrun."""

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Overran})

    def __init__(self, rule: ContinuousBatching, displaces: Displaced | None = None) -> None:
        super().__init__(PriorityOrder(predicted_tokens, rule, displaces, self._aside))
        self._padding = 1.0

    def observe(self, event: Event) -> None:
        """Predictions are too short."""
        self._padding += 0.1

    def _aside(self, table: RequestTable) -> Floats:
        padded = self._padding * predicted_tokens(table)
        wanted: Floats = table.prompt_tokens + np.minimum(padded, table.max_output_tokens)
        return wanted


def moving(rule: ContinuousBatching) -> dict[str, Ordered]:
    """Policies whose orders move with progress."""
    pause, recompute = Displaced.PAUSE, Displaced.RECOMPUTE
    return {
        "shortest_remaining": OrderedByPrediction(PriorityOrder(remaining_tokens, rule, recompute)),
        "shortest_remaining_uneven": Ordered(
            PriorityOrder(uneven_remaining_tokens, rule, recompute)
        ),
        "shortest_remaining_paused": Ordered(PriorityOrder(uneven_remaining_tokens, rule, pause)),
        "least_attained_quanta": Ordered(PriorityOrder(attained_quanta, rule, pause)),
        "five_queues": Ordered(PriorityOrder(queue_of_five, rule, pause)),
        "five_queues_of_seconds": Ordered(PriorityOrder(queue_of_five_s, rule, recompute)),
        "doubling_budget": Ordered(PriorityOrder(doubling_budget_s, rule, pause)),
        "five_queues_admitting": Ordered(PriorityOrder(queue_of_five, rule)),
    }


def moving_every_token(rule: ContinuousBatching) -> dict[str, Ordered]:
    """Policies under which another request may be first after every single token."""
    return {
        "least_attained_tokens": Ordered(PriorityOrder(attained_tokens, rule, Displaced.PAUSE)),
        "least_attained_seconds": Ordered(PriorityOrder(attained_seconds, rule, Displaced.PAUSE)),
    }


def allocating(rule: ContinuousBatching, max_context_tokens: int) -> dict[str, Ordered]:
    """Policies that set KV aside for the longest context, or for the predicted one."""
    return {
        "max_allocation": Ordered(PriorityOrder(None, rule, None, max_context_tokens)),
        "exact_allocation": OrderedByPrediction(
            PriorityOrder(predicted_tokens, rule, None, to_the_predicted_end)
        ),
        "learnt_allocation": LearntAllocation(rule),
    }


def static(max_num_seqs: int) -> dict[str, Ordered]:
    """Policies of batches of whole requests."""
    rule = StaticBatching(
        max_num_seqs=max_num_seqs, max_wait_s=0.0, refills=False, pads_prompts=True
    )
    return {
        "static": Ordered(PriorityOrder(None, rule)),
        "static_refilled": Ordered(PriorityOrder(None, replace(rule, refills=True))),
        "static_by_prediction": OrderedByPrediction(PriorityOrder(predicted_tokens, rule)),
    }
