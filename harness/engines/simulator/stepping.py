"""Groups stepped decision by decision: ask the policy, apply its decision, end its batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from harness.costs.iteration import (
    IterationTable,
    decode_iterations_within,
    decode_run_seconds,
    work_seconds,
)
from harness.engines.ask import ask_schedule, one_batch, refuse_idling
from harness.engines.live import LiveState
from harness.engines.recorder import GpuUse, Recorder
from harness.engines.simulator.group import LiveGroup
from harness.engines.simulator.promises import Promises
from harness.engines.simulator.timeline import Kind, Timeline
from harness.interface.decisions import Batch, ContinuousBatching, Decision, Until
from harness.interface.draft import after
from harness.interface.entities import RequestId, Work
from harness.interface.events import Event, Iterated
from harness.interface.filling import in_priority_order
from harness.interface.policies import Capability, SchedulingPolicy


@dataclass(slots=True)
class Flight:
    """A batch being computed: `iterations` of it, the last of which ends at `ends_s`.

    All are alike, or those after the first compute `then`. `prompts` are the requests of the batch
    that do not decode at first.
    """

    live: LiveGroup
    batch: Batch
    work: Work
    prompts: list[RequestId]
    table: IterationTable
    start_s: float
    iterations: int
    ends_s: float
    then: Work | None = None

    def seconds(self, iterations: int) -> float:
        """Seconds of the first `iterations` of them."""
        if self.then is not None:
            later = self.then
            more_s = decode_run_seconds(
                self.table,
                later.decode_requests,
                later.context_tokens,
                later.longest_tokens,
                iterations - 1,
            )
            return float(work_seconds(self.table, self.work) + more_s)
        work = self.work
        if work.prefill_requests == 0:
            return float(
                decode_run_seconds(
                    self.table,
                    work.decode_requests,
                    work.context_tokens,
                    work.longest_tokens,
                    iterations,
                )
            )
        return work_seconds(self.table, work)


class GroupStepper(Protocol):
    """Runs groups decision by decision; see `Stepper`."""

    @property
    def flights(self) -> Mapping[int, Flight]:
        """Batches being computed, by `id` of their live group."""

    def ask(self, live: LiveGroup) -> Decision | None:
        """Ask about an idle group and apply the answer; returns one that holds a priority order."""

    def interrupt(self, live: LiveGroup) -> None:
        """Something happened to a group."""

    def end(self, flight: Flight) -> bool:
        """A batch is done."""


@dataclass(slots=True, kw_only=True)
class Stepper:
    """Runs one policy over all groups that are not replicas.

    `flights` is by `id` of the live group: a stopping one and its successor may share a name.
    """

    state: LiveState
    timeline: Timeline
    policy: SchedulingPolicy
    recorder: Recorder
    supports: frozenset[Capability]
    fast_forward: bool
    table_of: Callable[[LiveGroup, Batch], IterationTable]
    tell: Callable[[Event], None]
    finish: Callable[[int], None]
    flights: dict[int, Flight] = field(default_factory=dict)
    promises: Promises = field(default_factory=Promises)

    def ask(self, live: LiveGroup) -> Decision | None:
        """Ask about an idle group and apply the answer; returns one that holds a priority order.

        Raises IllegalDecision when the policy breaks a rule.
        """
        if live.in_flight or not (live.members or live.inbox):
            return None
        if (promised := self.promises.take(live)) is not None:
            self.apply(live, promised, pads=False)
            return None
        decision, seconds = ask_schedule(self.policy, live.window, live, supports=self.supports)
        self.recorder.decided("schedule", seconds)
        priority_order = decision.priority_order
        if (
            priority_order is not None
            and isinstance(priority_order.rule, ContinuousBatching)
            and self.fast_forward
        ):
            return decision
        live.absorb()
        if priority_order is None:
            self.apply(live, decision, pads=False)
        else:
            rule = priority_order.rule
            batch = one_batch(live, rule, in_priority_order(live, priority_order))
            self.apply(live, batch, pads=rule.pads_prompts)
        return None

    def apply(self, live: LiveGroup, decision: Decision, *, pads: bool) -> None:
        """Preempt, reserve, launch."""
        for request in decision.preempt:
            live.preempt(request)
        live.kv = after(decision, live.kv)
        for batch in decision.launch:
            self._launch(live, batch, decision, pads=pads)
        if decision.wake_s is not None:
            self.timeline.add(decision.wake_s, Kind.GROUP_WAKES, live)
        refuse_idling(self.policy, live, decision)

    def _launch(self, live: LiveGroup, batch: Batch, decision: Decision, *, pads: bool) -> None:
        work, prompts = work_of(live, batch, pads=pads)
        flight = Flight(live, batch, work, prompts, self.table_of(live, batch), live.now_s, 1, 0.0)
        if decision.steady and self.fast_forward and not prompts:
            flight.iterations = self._steady_iterations(live, flight, decision)
        elif decision.steady and self.fast_forward:
            self.promises.note(live, decision, prompts)
        if batch.until is not Until.ITERATION:
            flight.then = _decodes_after(live, batch)
            left = live.tokens_left(batch.tokens)
            flight.iterations = min(left) if batch.until is Until.FIRST else max(left)
        if batch.until is Until.FIRST:
            self._pass_over(live, batch)
        for request in prompts:
            self._start(request)
        live.in_flight = (batch,)
        self.flights[id(live)] = flight
        flight.ends_s = live.now_s + flight.seconds(flight.iterations)
        self.timeline.add(flight.ends_s, Kind.BATCH_ENDS, flight)

    def _start(self, request: RequestId) -> None:
        """Note when a request begins to run, first or again."""
        arrays, now_s = self.state.arrays, self.state.now_s
        if np.isnan(arrays.started_s[request]):
            arrays.started_s[request] = now_s
        elif not np.isnan(arrays.preempted_at_s[request]):
            arrays.preempted_s[request] += now_s - arrays.preempted_at_s[request]
            arrays.preempted_at_s[request] = np.nan

    def _pass_over(self, live: LiveGroup, batch: Batch) -> None:
        """Who has begun and is not in the next of these batches is preempted, and keeps its KV."""
        arrays, now_s = self.state.arrays, self.state.now_s
        for request, view in live.members.items():
            if request in batch.tokens:
                self._start(request)
            elif view.kv_tokens > 0 and np.isnan(arrays.preempted_at_s[request]):
                arrays.preemptions[request] += 1
                arrays.preempted_at_s[request] = now_s

    def _steady_iterations(self, live: LiveGroup, flight: Flight, decision: Decision) -> int:
        """Iterations until a finish, short KV, or `wake_s`; events cut the run short later."""
        batch, wake_s = flight.batch, decision.wake_s
        most = min(live.tokens_left(batch.tokens))
        if decision.at_most is not None:
            most = min(most, decision.at_most)
        if wake_s is not None:
            work = flight.work
            most = decode_iterations_within(
                flight.table,
                work.decode_requests,
                work.context_tokens,
                work.longest_tokens,
                wake_s - live.now_s,
                most,
            )
        # The KV of the first one is in the ledger already.
        kv, requests = live.kv, batch.tokens.keys()
        if kv.fits(dict.fromkeys(requests, most - 1)):
            return most
        fits = 1
        while fits + 1 < most:
            tried = (fits + most) // 2
            if kv.fits(dict.fromkeys(requests, tried - 1)):
                fits = tried
            else:
                most = tried
        return fits

    def interrupt(self, live: LiveGroup) -> None:
        """Something happened to a group: its run of iterations ends at the next boundary."""
        self.promises.end(live)
        flight = self.flights.get(id(live))
        if flight is None or flight.iterations == 1 or flight.then is not None:
            return
        work, since_s = flight.work, self.state.now_s - flight.start_s
        iterations = decode_iterations_within(
            flight.table,
            work.decode_requests,
            work.context_tokens,
            work.longest_tokens,
            since_s,
            flight.iterations,
        )
        if iterations < flight.iterations:
            cut = replace(flight, iterations=iterations)
            cut.ends_s = flight.start_s + cut.seconds(iterations)
            self.flights[id(live)] = cut
            self.timeline.add(cut.ends_s, Kind.BATCH_ENDS, cut)

    def end(self, flight: Flight) -> bool:
        """A batch is done: grow, produce, finish. False if a shorter flight replaced it."""
        live, batch = flight.live, flight.batch
        if self.flights.get(id(live)) is not flight:
            return False
        del self.flights[id(live)]
        live.in_flight = ()
        duration_s = flight.ends_s - flight.start_s
        self.recorder.intervals(
            live.group, GpuUse.BUSY, np.array([[flight.start_s, flight.ends_s]])
        )
        seconds = duration_s * batch.gpu_share
        first_s = flight.ends_s
        if batch.until is Until.FIRST:
            first_s = flight.start_s + flight.seconds(1)
        new_tokens, answered = live.produce(batch, flight.iterations, seconds, first_s)
        arrays = self.state.arrays
        if flight.prompts:
            alone_s = seconds if flight.then is None else flight.seconds(1) * batch.gpu_share
            arrays.prefill_s[flight.prompts] += alone_s
        if Iterated in self.policy.subscribes:
            self.tell(
                Iterated(
                    flight.ends_s, live.group.id, batch, duration_s, new_tokens, flight.iterations
                )
            )
        for request in answered:
            self.promises.end(live)
            arrays.finished_s[request] = flight.ends_s
            live.close(request)
            self.finish(request)
        return True


def work_of(live: LiveGroup, batch: Batch, *, pads: bool) -> tuple[Work, list[RequestId]]:
    """What a batch computes, and which of its requests do not decode."""
    members, prompts = live.members, []
    decodes = tokens_in = context = longest = longest_prompt = 0
    attended = 0.0
    for request, tokens in batch.tokens.items():
        view = members[request]
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


def _decodes_after(live: LiveGroup, batch: Batch) -> Work:
    """What each iteration after the first computes of a batch that nobody joins or leaves."""
    contexts = [live.members[request].context_tokens + 1 for request in batch.tokens]
    return Work(0, 0, 0, 0.0, len(contexts), sum(contexts), max(contexts))
