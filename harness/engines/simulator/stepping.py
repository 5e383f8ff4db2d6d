"""Groups stepped decision by decision: ask the policy, apply its decision, end its batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from harness.core.draft import after
from harness.core.fill import is_decode
from harness.engines.ask import ask_schedule, refuse_idling, refuse_shares
from harness.engines.live import LiveState
from harness.engines.overruns import overruns, within_promises
from harness.engines.recorder import GpuUse, Recorder, use_of
from harness.engines.simulator.cached_contents import NEEDS_WHOLE_PROMPTS, CachedContents
from harness.engines.simulator.deciding import Deciding
from harness.engines.simulator.flight import Flight
from harness.engines.simulator.group import LiveGroup
from harness.engines.simulator.kernel import running
from harness.engines.simulator.rules import is_compiled
from harness.engines.simulator.timeline import Due, Timeline
from harness.engines.state import KvUse
from harness.engines.told_keys import Heard
from harness.interface.decisions import Batch, Decision, Until
from harness.interface.entities import RequestId
from harness.interface.events import Event, Finished, Iterated, Overran
from harness.interface.policies import Capability, CostModel, SchedulingPolicy


@dataclass(slots=True, kw_only=True)
class Stepper:
    """Runs one policy over all groups that are not compiled.

    `hears` are the events that any policy observes, `heard` counts those of the scheduling policy.
    `flights` is by `id` of the live group: a stopping one and its successor may share a name.
    `stirred` has those with batches in flight in which something has happened since they were asked
    last. A batch takes longer on a share of the SMs by `costs`; `slows_beyond_all` says whether it
    does where the shares in flight exceed 1. `contents` are what calls read as they begin.
    """

    state: LiveState
    timeline: Timeline
    policy: SchedulingPolicy
    recorder: Recorder
    supports: frozenset[Capability]
    fast_forward: bool
    deciding: Deciding
    costs: CostModel
    slows_beyond_all: bool
    hears: frozenset[type[Event]]
    heard: Heard
    tell: Callable[[Event], None]
    finish: Callable[[int], None]
    flights: dict[int, list[Flight]] = field(default_factory=dict)
    stirred: set[int] = field(default_factory=set)
    contents: CachedContents | None = None

    def under_way(self, live: LiveGroup) -> Sequence[Flight]:
        """The batches of a group that are being computed."""
        return self.flights.get(id(live), ())

    def is_under_way(self, flight: Flight) -> bool:
        """Whether no shorter one has replaced it."""
        return any([one is flight for one in self.under_way(flight.live)])

    def _has_room(self, live: LiveGroup) -> bool:
        """Whether a group that computes may begin more: it has SMs to share and was stirred."""
        return (
            id(live) in self.stirred
            and live.window.free_share > 0
            and Capability.GPU_SHARE in self.policy.requires
        )

    def ask(self, live: LiveGroup) -> Decision | None:
        """Ask about a group with free SMs and apply the answer; returns one that holds an order.

        Raises IllegalDecision when the policy breaks a rule.
        """
        if live.in_flight:
            self.keep_told(live)
            if not self._has_room(live):
                return None
            self._book_ended(self.under_way(live))
        if not (live.members or live.inbox):
            return None
        self.stirred.discard(id(live))
        live.refresh()
        window = live.window
        decision, seconds = ask_schedule(self.policy, window, window, supports=self.supports)
        priority_order = decision.priority_order
        # A group that has been stepped stays so: what it has begun is not compiled.
        stands = decision.wake_s is None and not live.is_stepped
        if priority_order is not None:
            stands &= is_compiled(priority_order, live.group.services, caches=live.kv.caches)
            # Compiled code tells no iterations.
            stands &= not (priority_order.renews and Iterated in self.policy.subscribes)
        if priority_order is not None and stands and self.fast_forward:
            self.recorder.decided("schedule", seconds)
            return decision
        live.absorb()
        pads = False
        if priority_order is None:
            live.told.order = None
        else:
            pads, started_s = priority_order.rule.pads_prompts, perf_counter()
            decision = live.told.batch(window, priority_order, self.heard, decision.wake_s)
            live.told.predictions = len(self.state.predicted)
            decision = live.told.until_due(decision)
            seconds += perf_counter() - started_s
        self.recorder.decided("schedule", seconds)
        self.apply(live, decision, pads=pads, seconds=seconds)
        return None

    def keep_told(self, live: LiveGroup) -> None:
        """Ask the keys that are due while a batch is computed; a run of iterations ends then."""
        told = live.told
        if told.order is None or not told.order.asks:
            return
        predictions, here = len(self.state.predicted), len(live.members) + len(live.inbox)
        as_told = (len(told), told.predictions) == (here, predictions)
        if as_told and not told.are_stale(self.heard, self.state.now_s):
            return
        self.catch_up()
        due_s, told.predictions = told.due_s, predictions
        told.look(live.window.table, told.order, self.heard, self.state.now_s)
        if told.due_s != due_s:
            live.wake_s = told.due_s
            self.timeline.add(told.due_s, Due.GROUP_WAKES, live)
        self.interrupt(live)

    def apply(self, live: LiveGroup, decision: Decision, *, pads: bool, seconds: float) -> None:
        """Preempt, swap in, reserve, launch what was decided in so many seconds."""
        refuse_shares(self.policy, live.window, decision)
        for request, how in decision.preempt.items():
            live.preempt(request, how)
        live.kv = after(decision, live.kv, live.members)
        if live.kv.caches:
            self._find_cached(live, decision)
        for request in decision.swap_in:
            live.bring_back(request)
            self._start(request)
        for batch in decision.launch:
            flight = self._flight(live, batch, pads=pads, seconds=seconds)
            self._launch(flight, decision)
        if decision.preempt and self.under_way(live):
            self._cut(live)
        live.wake_s, live.is_stepped = decision.wake_s, True
        if decision.wake_s is not None:
            self.timeline.add(decision.wake_s, Due.GROUP_WAKES, live)
        if not live.in_flight:
            refuse_idling(self.policy, live.window, decision)

    def _find_cached(self, live: LiveGroup, decision: Decision) -> None:
        """Requests that begin hold what is cached of their contexts, beside what they compute."""
        for batch in decision.launch:
            for request, tokens in batch.tokens.items():
                held = live.members[request].kv_tokens
                if held <= 0 and (found := live.kv.holding(request) - tokens):
                    live.find(request, found)
                    self._start(request)

    def _flight(self, live: LiveGroup, batch: Batch, *, pads: bool, seconds: float) -> Flight:
        """A batch that is about to begin, with what slows it and what is before it."""
        whole = batch.until is not Until.ITERATION
        table = self.deciding.record(batch.service, live.group.tensor_parallel, whole=whole)
        flight = Flight.of(live, batch, table, pads=pads)
        before_s = 0.0
        if self.contents is not None and flight.has_prompts:
            before_s = self._read(self.contents, flight, pads=pads)
        share_in_flight = 0.0
        if self.slows_beyond_all:
            share_in_flight = sum(other.gpu_share for other in live.in_flight)
        if batch.gpu_share < 1.0 or share_in_flight:
            alone = self.deciding.record(batch.service, live.group.tensor_parallel, whole=True)
            flight.slow(self.costs, alone, share_in_flight)
        if live.host.idle_s > self.state.now_s:
            before_s += live.host.longer_s(self.state.now_s, flight.first_s)
        before_s += self.deciding.before_s(seconds, whole=whole) + live.receiving_s
        live.receiving_s = 0.0
        if before_s:
            flight.row["before_s"] = before_s
        return flight

    def _read(self, contents: CachedContents, flight: Flight, *, pads: bool) -> float:
        """Calls begin that read what is cached; seconds until all have it.

        ValueError where their prompts are not whole.
        """
        batch = flight.batch
        tokens = {
            request: batch.tokens[request]
            for request, view in zip(batch.tokens, flight.views, strict=True)
            if not is_decode(view)
        }
        if pads or flight.row["is_cut"] or flight.is_whole:
            raise ValueError(NEEDS_WHOLE_PROMPTS)
        work, read_s = contents.read(tokens, flight.work, self.state.now_s)
        flight.compute(work)
        return read_s

    def _launch(self, flight: Flight, decision: Decision) -> None:
        live, batch = flight.live, flight.batch
        if live.in_flight and (flight.has_prompts or not live.kv.fits(self._to_grow(live))):
            self._cut(live)
        iterations = 1
        if flight.is_whole:
            name = "fewest_left" if batch.until is Until.FIRST else "most_left"
            iterations = int(flight.row[name])
        elif decision.steady and self.fast_forward and self._goes_on(flight, decision):
            iterations = self._steady_iterations(flight, decision)
        if self.deciding.is_timed:
            self.recorder.timed_iterations += iterations
        if self.recorder.keep_iterations:
            flight.uses = self._uses(flight)
        if batch.until is Until.FIRST:
            self._pass_over(live, batch)
        live.in_flight = (*live.in_flight, batch)
        self.flights.setdefault(id(live), []).append(flight)
        flight.begin(iterations)
        self.timeline.add(flight.ends_s, Due.BATCH_ENDS, flight)

    def _goes_on(self, flight: Flight, decision: Decision) -> bool:
        """Whether what is steady needs no look after the first iteration of a flight.

        That is so where its prompts are whole, it is alone, and no KV is copied meanwhile.
        """
        if not flight.has_prompts:
            return True
        live = flight.live
        is_alone = len(decision.launch) == 1 and Capability.GPU_SHARE not in self.policy.requires
        return is_alone and not flight.row["is_cut"] and live.host.idle_s <= self.state.now_s

    def _uses(self, flight: Flight) -> tuple[KvUse, KvUse]:
        """KV of a group in the first iteration of a flight, and in its second, if there is one."""
        live, batch = flight.live, flight.batch
        use, then = use_of(live.window, batch.service, batch.tokens), live.kv.copy()
        then.grow_all(dict.fromkeys(batch.tokens, 1))
        held, free = use.held_tokens + len(batch.tokens), then.uncommitted_tokens(batch.service)
        return use, use._replace(held_tokens=held, free_tokens=free)

    def _start(self, request: RequestId) -> None:
        """Note that a request begins to run, first or again."""
        running.start(self.state.arrays.rows, request, self.state.now_s)

    def _pass_over(self, live: LiveGroup, batch: Batch) -> None:
        """Preempt requests that have begun and are not in the next batch; they keep their KV."""
        arrays, now_s = self.state.arrays, self.state.now_s
        for request, view in live.members.items():
            if request in batch.tokens:
                self._start(request)
            elif view.kv_tokens > 0 and np.isnan(arrays.preempted_at_s[request]):
                arrays.preemptions[request] += 1
                arrays.preempted_at_s[request] = now_s

    def _steady_iterations(self, flight: Flight, decision: Decision) -> int:
        """Iterations until a finish, short KV, or `wake_s`; events cut the run short later."""
        live, batch = flight.live, flight.batch
        most = int(flight.row["fewest_left"])
        if decision.at_most is not None:
            most = min(most, decision.at_most)
        if decision.wake_s is not None:
            most = flight.within(decision.wake_s - self.state.now_s, most)
        # The KV of the first one is in the ledger already.
        kv, requests, others = live.kv, batch.tokens.keys(), self._to_grow(live)
        if Overran in self.hears:
            most = within_promises(flight.views, kv, most)
        if kv.fits({**others, **dict.fromkeys(requests, most - 1)}):
            return most
        fits = 1
        while fits + 1 < most:
            tried = (fits + most) // 2
            if kv.fits({**others, **dict.fromkeys(requests, tried - 1)}):
                fits = tried
            else:
                most = tried
        return fits

    def _to_grow(self, live: LiveGroup) -> dict[RequestId, int]:
        """Tokens that batches in flight will add to those of which the ledger knows."""
        found: dict[RequestId, int] = {}
        for flight in self.under_way(live):
            left = flight.iterations - 1 - flight.booked
            found.update(dict.fromkeys(flight.batch.tokens, left))
        return found

    def interrupt(self, live: LiveGroup) -> None:
        """Something happened to a group: its runs of iterations end at their next boundaries."""
        self._cut(live)
        if self.under_way(live):
            self.stirred.add(id(live))

    def _cut(self, live: LiveGroup) -> None:
        """End runs of iterations at their next boundaries."""
        for flight in self.under_way(live):
            if flight.cut(self.state.now_s):
                self.timeline.add(flight.ends_s, Due.BATCH_ENDS, flight)

    def end(self, flight: Flight) -> bool:
        """A batch is done: grow, produce, finish. False if a shorter flight replaced it."""
        live, ends_s = flight.live, flight.ends_s
        if not self.is_under_way(flight):
            return False
        self._record_busy(live, ends_s)
        self._land(flight)
        self.note_ran(flight)
        for row in flight.log_rows():
            self.recorder.iteration(live.group, row)
        made, answered = self._book(flight, flight.iterations)
        if (answered or flight.has_prompts) and live.in_flight:
            self._cut(live)
        arrays = self.state.arrays
        if self.contents is not None:
            for request in sorted(answered):
                context = int(arrays.prompt[request] + arrays.generated[request])
                self.contents.store(request, context, ends_s)
        if Finished in self.hears:
            live.refresh()
        for request in answered:
            arrays.finished_s[request] = ends_s
            live.close(request)
            self.finish(request)
        if Overran in self.hears:
            live.refresh()
            for event in overruns(live.members, made, live.kv, live.group.id, ends_s):
                self.tell(event)
        return True

    def note_ran(self, flight: Flight) -> None:
        """A batch has run: promotions count that, and services starve from then on."""
        flight.live.told.note_ran(flight.batch, flight.iterations, flight.ends_s)

    def _record_busy(self, live: LiveGroup, until_s: float) -> None:
        """A group has computed since its batches in flight began; what is recorded is not again."""
        begun_s = min([flight.start_s for flight in self.under_way(live)])
        span_s = np.array([[max(begun_s, live.busy_until_s), until_s]])
        live.busy_until_s = until_s
        self.recorder.intervals(live.group, GpuUse.BUSY, span_s)

    def _land(self, flight: Flight) -> None:
        """A batch is no longer in flight; others of its group may be."""
        live = flight.live
        others = [one for one in self.under_way(live) if one is not flight]
        live.in_flight = tuple(other.batch for other in others)
        if others:
            self.flights[id(live)] = others
            self.stirred.add(id(live))
        else:
            del self.flights[id(live)]
            self.stirred.discard(id(live))

    def catch_up(self) -> None:
        """Book the iterations that have ended, before policies are told or asked.

        The last of a run is booked by `end`.
        """
        self._book_ended([one for flights in self.flights.values() for one in flights])
        for flights in self.flights.values():
            flights[0].live.refresh()

    def _book_ended(self, flights: Sequence[Flight]) -> None:
        now_s = self.state.now_s
        ended = [(flight, flight.ended_by(now_s)) for flight in flights]
        due = [(flight, count) for flight, count in ended if count > flight.booked]
        for flight, count in sorted(due, key=lambda one: one[0].end_s(one[1])):
            self._book(flight, count)

    def cut_off(self) -> None:
        """The run ends now: what is in flight has been computed up to here."""
        self.catch_up()
        now_s = self.state.now_s
        for flights in self.flights.values():
            ends_s = max(flight.ends_s for flight in flights)
            self._record_busy(flights[0].live, min(ends_s, now_s))

    def _book(
        self, flight: Flight, iterations: int
    ) -> tuple[Mapping[RequestId, int], list[RequestId]]:
        """Iterations of a flight are over: tokens and time up to there.

        Returns the tokens that each has produced in those counted last, and which are answered.
        """
        hears = Iterated in self.hears
        is_mixed = flight.has_prompts and not flight.is_whole
        if hears and is_mixed and flight.booked == 0 and iterations > 1:
            # Prompts and the decodes after them are told apart.
            self._book(flight, 1)
        live, tokens, more = flight.live, flight.batch.tokens, iterations - flight.booked
        if flight.booked and is_mixed:
            tokens = dict.fromkeys(tokens, 1)
        answered = flight.book(iterations)
        made = dict(zip(tokens, flight.made.tolist(), strict=True))
        # The KV of the first iteration is in the ledger since the launch; if this was not the last
        # one, that of the next enters it now.
        if iterations < flight.iterations:
            live.kv.grow_all(made)
        elif more > 1:
            live.kv.grow_all({request: count - 1 for request, count in made.items()})
        if hears and more:
            live.refresh()
            to_s, spent_s = float(flight.row["booked_s"]), float(flight.row["spent_s"])
            batch = replace(flight.batch, tokens=tokens)
            self.tell(Iterated(to_s, live.group.id, batch, spent_s, made, more))
        return made, answered
