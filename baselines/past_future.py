"""Past-Future: admit requests while the peak of KV, with answers as long as past ones, fits.

Paper      Gong et al., Past-Future Scheduler for LLM Serving under SLA Guarantees, ASPLOS 2025,
           arXiv 2507.10150; its artefact is WuSiYu/lightllm-ae, a version of LightLLM.
Idea       The lengths of recent answers say how long the running and the waiting ones will be. From
           that follows how much KV they hold when each of them ends, and the next request is
           admitted if the largest of these sums is below the capacity.
Map        past: conditional distribution of lengths  -> `_sampled`
           future: KV at each future time             -> `peak_tokens`
           admission, first come first served         -> `_admissible`
Constants  `window`, `spare`, `most_samples` and `least_lengths`: WINDOW_SIZE, REVERSED,
           MAXIMUM_LISTS and MINIMUM_SAMPLES of its artefact's req_queue.py; see
           scenarios/policy/past_future.yaml
Differs    its artefact admits one request every two decodes, here as many as pass are admitted
           before every iteration. It has one history for a server, here there is one for a service,
           of all its groups. At first half of the history has the limit of a request as its length,
           there the longest answer that the server allows. A request is admitted if nothing else
           holds KV, where its artefact would draw again until it fits. A prompt that is longer than
           a batch is cut; KV is counted in tokens, what blocks waste must lie within `spare`.
           Aborting requests that have missed their limits is left out. What is claimed of
           evictions, queueing and goodput of the scheduler can be tested here
Checked    baselines/tests/test_past_future.py::test_peak_by_hand
           baselines/tests/test_past_future.py::test_past_answers_decide_admission_by_hand
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from harness.core.draft import Draft
from harness.core.fill import is_decode, run_in_order
from harness.interface.decisions import Decision
from harness.interface.entities import ServiceId
from harness.interface.events import Event, Finished
from harness.interface.policies import Capability
from harness.interface.tables import Floats, Ints
from harness.interface.views import GroupView, RequestView


class PastFuture:
    """Scheduling policy: asked every iteration in which requests wait."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Finished})

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        window: int,
        spare: float,
        most_samples: int,
        least_lengths: int,
        seed: int = 0,
    ) -> None:
        """`window`: answers in the history; `spare`: share of KV that no peak may reach into.

        Peaks are drawn `most_samples` times, fewer times where fewer make `least_lengths` lengths.
        ValueError for numbers below 1 and another share.
        """
        counts = {
            "max_num_seqs": max_num_seqs,
            "max_num_batched_tokens": max_num_batched_tokens,
            "window": window,
            "most_samples": most_samples,
            "least_lengths": least_lengths,
        }
        for name, value in counts.items():
            if value < 1:
                raise ValueError(f"policy.{name} is {value}, it must be at least 1")
        if not 0.0 <= spare < 1.0:
            raise ValueError(f"policy.spare is {spare}, it must be at least 0 and below 1")
        self._max_num_seqs, self._max_num_batched_tokens = max_num_seqs, max_num_batched_tokens
        self._spare, self._seed = spare, seed
        self._most_samples, self._least_lengths = most_samples, least_lengths
        # Infinite stands for the limit of a request.
        start = partial(deque[float], [np.inf] * (window // 2), maxlen=window)
        self._history: defaultdict[ServiceId, deque[float]] = defaultdict(start)
        self._finished = 0

    def observe(self, event: Event) -> None:
        """Note the length of an answer."""
        if isinstance(event, Finished):
            self._history[event.request.service].append(event.output_tokens)
            self._finished += 1

    def schedule(self, view: GroupView) -> Decision:
        """Run prompts of admitted requests, whole and alone; else decodes.

        ValueError for a group of several services.
        """
        if len(view.services) > 1:
            raise ValueError(
                f"past_future serves one service, {view.group.id} has {len(view.services)}"
            )
        draft = Draft(view)
        holders = [request for request in view.requests.values() if request.kv_tokens > 0]
        waiting = [request for request in view.requests.values() if request.kv_tokens <= 0]
        prompts = [request for request in holders if not is_decode(request)]
        if waiting:
            prompts += waiting[: self._admissible(view, holders, waiting)]
        self._run_prompts(draft, prompts)
        if draft.is_empty:
            run_in_order(draft, holders, itself=True)
        return draft.decision(steady=draft.runs_all and not prompts)

    def _run_prompts(self, draft: Draft, prompts: Sequence[RequestView]) -> None:
        """Whole prompts in order; one that is longer than a batch is cut."""
        left = min(self._max_num_batched_tokens, draft.tokens_left)
        for request in prompts:
            tokens = draft.missing_tokens(request)
            if tokens > left and not draft.is_empty:
                return
            if not draft.try_run(request, min(tokens, left)):
                return
            left -= min(tokens, left)

    def _admissible(
        self, view: GroupView, holders: Sequence[RequestView], waiting: Sequence[RequestView]
    ) -> int:
        """How many waiting requests may be admitted, in order."""
        slots = min(self._max_num_seqs, view.max_num_seqs) - len(holders)
        waiting = waiting[: max(0, slots)]
        if not waiting:
            return 0
        service = waiting[0].facts.service
        room = view.kv.capacity_blocks(service) * view.kv.tokens_of_block(service)
        lengths = self._lengths(view, holders, waiting)
        held, left = _held_and_left([*holders, *waiting], lengths)
        for admitted in range(len(waiting)):
            count = len(holders) + admitted + 1
            peak = max(peak_tokens(held[:count], row) for row in left[:, :count])
            if peak >= room * (1 - self._spare) and count > 1:
                return admitted
        return len(waiting)

    def _lengths(
        self, view: GroupView, holders: Sequence[RequestView], waiting: Sequence[RequestView]
    ) -> Floats:
        """Lengths of answers of holders and waiting requests, drawn some times: a row each."""
        history = np.sort(self._history[waiting[0].facts.service])
        samples = self._most_samples
        if holders:
            samples = min(samples, self._least_lengths // len(holders) + 1)
        # The same state of a group has the same draws, however often it is asked.
        done = sum(request.context_tokens for request in view.requests.values())
        rng = np.random.default_rng([self._seed, self._finished, done])
        drawn = _sampled(history, holders, rng.random((samples, len(holders))))
        limits = np.array([request.facts.max_output_tokens for request in waiting], np.float64)
        fresh = np.full((samples, len(waiting)), np.inf)
        if len(history):
            fresh = history[rng.integers(0, len(history), fresh.shape)]
        return np.concatenate([drawn, np.minimum(fresh, limits)], axis=1)


def _sampled(history: Floats, holders: Sequence[RequestView], shares: Floats) -> Floats:
    """Lengths of answers that are longer than what holders have generated.

    A share of the way from that through all longer lengths of the ascending history to the limit,
    linear in between.
    """
    done = np.array([request.generated_tokens for request in holders], np.float64)
    limits = np.array([request.facts.max_output_tokens for request in holders], np.float64)
    first = np.searchsorted(history, done, side="right")
    longer = len(history) - first
    ends = np.isinf(history[-1:]).any() or (history[-1:] >= limits[:, None]).all(axis=1)
    points = longer + np.where((longer > 0) & ends, 0, 1)
    way = shares * points
    place = np.minimum(way.astype(np.int64), np.maximum(points - 1, 0))

    def at(place: Ints) -> Floats:
        padded = np.append(history, np.inf)
        past = padded[np.clip(first + place - 1, 0, len(history))]
        past = np.where(place > longer, np.inf, past)
        return np.where(place == 0, done, np.where(np.isinf(past), limits, past))

    low, high = at(place), at(place + 1)
    drawn: Floats = np.minimum(np.rint(low + (high - low) * (way - place)), limits)
    return drawn


def _held_and_left(requests: Sequence[RequestView], lengths: Floats) -> tuple[Ints, Ints]:
    """KV that each holds after its next token, and tokens that follow, a row per sample."""
    held = np.array([request.context_tokens for request in requests])
    done = np.array([request.generated_tokens for request in requests])
    # A request that must compute its prompt makes a token of its answer with it.
    comes = np.array([request.kv_tokens <= 0 for request in requests])
    left = np.maximum(lengths.astype(np.int64) - done - 1 - comes, 0)
    return held + comes, left


def peak_tokens(held: Ints, left: Ints) -> int:
    """The most KV that requests hold together, if each holds a token more with each iteration.

    Just before a request ends, all with at least as much left have grown by what it had left.
    """
    order = np.argsort(-left, kind="stable")
    sums = np.cumsum(held[order]) + left[order] * np.arange(1, len(left) + 1)
    return int(sums.max())
