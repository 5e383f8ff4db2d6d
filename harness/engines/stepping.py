"""Groups stepped decision by decision: ask the policy, apply its decision, end its batch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from harness.checks import IllegalDecision, check
from harness.costs import (
    IterationTable,
    decode_iterations_within,
    decode_run_seconds,
    work_seconds,
)
from harness.decisions import Batch, Decision
from harness.draft import Draft, fill, is_decode, standing_order
from harness.engines.live_state import LiveGroup, LiveState
from harness.engines.timeline import Kind, Timeline
from harness.entities import RequestId, Work
from harness.events import Event, Iterated
from harness.policies import Capability, SchedulingPolicy
from harness.recorder import GpuUse, Recorder


@dataclass(slots=True)
class Flight:
    """A batch being computed: `iterations` equal ones, the last of which ends at `ends_s`."""

    live: LiveGroup
    batch: Batch
    work: Work
    table: IterationTable
    start_s: float
    iterations: int
    ends_s: float


@dataclass(slots=True)
class Stepper:
    """Runs one policy over all groups that are not lanes.

    `flights` is by `id` of the live group: a stopping one and its successor may share a name.
    """

    state: LiveState
    timeline: Timeline
    policy: SchedulingPolicy
    recorder: Recorder
    offers: frozenset[Capability]
    fast_forward: bool
    table_of: Callable[[LiveGroup, Batch], IterationTable]
    tell: Callable[[Event], None]
    finish: Callable[[LiveGroup, int], None]
    flights: dict[int, Flight] = field(default_factory=dict)

    def ask(self, live: LiveGroup) -> Decision | None:
        """Ask about an idle group and apply the answer; returns one that holds a standing order.

        Raises IllegalDecision when the policy breaks a rule.
        """
        if live.in_flight or not (live.members or live.inbox):
            return None
        started = perf_counter()
        decision = self.policy.schedule(live.window)
        self.recorder.decided("schedule", perf_counter() - started)
        self._refuse(live, check(decision, live, offers=self.offers))
        if decision.standing is not None and self.fast_forward:
            return decision
        live.absorb()
        if decision.standing is not None:
            self._follow(live, decision)
        else:
            self._apply(live, decision, pads=False)
        return None

    def _follow(self, live: LiveGroup, decision: Decision) -> None:
        """One iteration under a standing order, decided in the open."""
        standing = decision.standing
        assert standing is not None
        draft = Draft(live)
        fill(draft, standing_order(live, standing), standing.rule)
        self._apply(live, draft.decision(), pads=standing.rule.pads_prompts)

    def _refuse(self, live: LiveGroup, problems: list[str]) -> None:
        if problems:
            raise IllegalDecision(
                f"{type(self.policy).__name__} in {live.group.id} at {live.now_s:.3f} s: "
                + "; ".join(problems)
            )

    def _apply(self, live: LiveGroup, decision: Decision, *, pads: bool) -> None:
        """Evict, reserve, launch."""
        arrays = self.state.arrays
        for request in decision.evict:
            live.kv.evict(request)
            arrays.kv[request] = 0
            arrays.preemptions[request] += 1
            arrays.evicted_s[request] = self.state.now_s
        for request, promise in decision.reserve.items():
            live.kv.reserve(request, promise)
        for batch in decision.launch:
            self._launch(live, batch, decision, pads=pads)
        if decision.wake_s is not None:
            self.timeline.add(decision.wake_s, Kind.GROUP_WAKES, live)
        elif not decision.launch:
            self._refuse(
                live,
                [f"{len(live.members)} requests wait, nothing runs and no time to wake is given"],
            )

    def _launch(self, live: LiveGroup, batch: Batch, decision: Decision, *, pads: bool) -> None:
        work = work_of(live, batch, pads=pads)
        table = self.table_of(live, batch)
        flight = Flight(live, batch, work, table, live.now_s, 1, 0.0)
        if decision.steady and self.fast_forward and work.prefill_requests == 0:
            flight.iterations = self._steady_iterations(live, batch, flight, decision.wake_s)
        for request, tokens in batch.tokens.items():
            live.kv.grow(request, tokens)
            self._start(request)
        live.in_flight = (batch,)
        self.flights[id(live)] = flight
        flight.ends_s = live.now_s + _seconds(flight, flight.iterations)
        self.timeline.add(flight.ends_s, Kind.BATCH_ENDS, flight)

    def _start(self, request: RequestId) -> None:
        """Note when a request begins to run, first or again."""
        arrays, now_s = self.state.arrays, self.state.now_s
        if np.isnan(arrays.started_s[request]):
            arrays.started_s[request] = now_s
        elif not np.isnan(arrays.evicted_s[request]):
            arrays.preempted_s[request] += now_s - arrays.evicted_s[request]
            arrays.evicted_s[request] = np.nan

    def _steady_iterations(
        self, live: LiveGroup, batch: Batch, flight: Flight, wake_s: float | None
    ) -> int:
        """Iterations until a finish, short KV, or `wake_s`; events cut the run short later."""
        ids = np.fromiter(batch.tokens, np.int64)
        arrays = self.state.arrays
        most = int((arrays.output[ids] - arrays.generated[ids]).min())
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
        fits = 1
        while fits < most:
            tried = (fits + most + 1) // 2
            if self._kv_allows(live, batch, tried):
                fits = tried
            else:
                most = tried - 1
        return fits

    @staticmethod
    def _kv_allows(live: LiveGroup, batch: Batch, iterations: int) -> bool:
        trial = live.kv.copy()
        return all(trial.try_grow(request, iterations) for request in batch.tokens)

    def interrupt(self, live: LiveGroup) -> None:
        """Something happened to a group: its run of iterations ends at the next boundary."""
        flight = self.flights.get(id(live))
        if flight is None or flight.iterations == 1:
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
            cut = Flight(live, flight.batch, work, flight.table, flight.start_s, iterations, 0.0)
            cut.ends_s = flight.start_s + _seconds(cut, iterations)
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
        new_tokens = {
            request: self._grow(
                live, request, tokens, flight.iterations, duration_s * batch.gpu_share
            )
            for request, tokens in batch.tokens.items()
        }
        if Iterated in self.policy.hears:
            self.tell(
                Iterated(
                    flight.ends_s, live.group.id, batch, duration_s, new_tokens, flight.iterations
                )
            )
        arrays = self.state.arrays
        for request in batch.tokens:
            if arrays.generated[request] == arrays.output[request]:
                arrays.finished_s[request] = flight.ends_s
                live.kv.close(request)
                arrays.kv[request] = 0
                del live.members[request]
                self.finish(live, request)
        return True

    def _grow(
        self, live: LiveGroup, request: RequestId, tokens: int, iterations: int, gpu_s: float
    ) -> int:
        """Tokens that one request of the batch produced."""
        arrays = self.state.arrays
        arrays.gpu_s[request] += gpu_s
        if not is_decode(live.members[request]):
            arrays.prefill_s[request] += gpu_s
        if iterations > 1:
            live.kv.grow(request, iterations - 1)
        arrays.kv[request] += tokens + iterations - 1
        if arrays.kv[request] < arrays.prompt[request] + arrays.generated[request]:
            return 0
        if arrays.generated[request] == 0:
            arrays.first_token_s[request] = self.state.now_s
        arrays.generated[request] += iterations
        return iterations


def work_of(live: LiveGroup, batch: Batch, *, pads: bool) -> Work:
    """What a batch computes."""
    prompts = decodes = tokens_in = context = longest = longest_prompt = 0
    attended = 0.0
    for request, tokens in batch.tokens.items():
        view = live.members[request]
        held, total = view.kv_tokens, view.context_tokens
        if is_decode(view):
            decodes += 1
            context += total
            longest = max(longest, total)
        else:
            prompts += 1
            tokens_in += tokens
            longest_prompt = max(longest_prompt, tokens)
            attended += tokens * (2.0 * (held + tokens) - tokens)
    if pads:
        attended = prompts * float(longest_prompt) ** 2
    padded = prompts * longest_prompt if pads else tokens_in
    return Work(prompts, tokens_in, padded, attended, decodes, context, longest)


def _seconds(flight: Flight, iterations: int) -> float:
    """Seconds of the first `iterations` of a flight."""
    work = flight.work
    if work.prefill_requests == 0:
        return float(
            decode_run_seconds(
                flight.table,
                work.decode_requests,
                work.context_tokens,
                work.longest_tokens,
                iterations,
            )
        )
    return work_seconds(flight.table, work)
