"""One run on real vLLM: the clock, the client, and which calls wait for which.

Groups live in this process and are stepped in turn, or each in a process of its own; only those in
processes of their own may come and go. Between two steps the loop takes in the requests that have
come by the clock; how late it looked is kept per request.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from harness.costs.nvml import Sampler, open_nvml
from harness.engines.ask import ask_deployment, ask_prewarming, counts_of, refuse_standstill
from harness.engines.lifecycle import Lifecycle
from harness.engines.listeners import Listeners
from harness.engines.recorder import Recorder
from harness.engines.state import Ints
from harness.engines.vllm.client import Client
from harness.engines.vllm.group import Report, Submission
from harness.engines.vllm.groups import GroupHandle, GroupLoader, Groups
from harness.engines.vllm.measured import Measured
from harness.engines.vllm.options import VllmOptions
from harness.engines.vllm.outside import Outside
from harness.engines.vllm.predictions import Predictions
from harness.engines.vllm.processor import has_gpus
from harness.engines.vllm.prompts import Prompts
from harness.engines.vllm.ray import GroupLost, RayGroup, slots_of_ray
from harness.interface.decisions import Deployment
from harness.interface.entities import Group, GroupId, ServiceId
from harness.interface.events import Event
from harness.interface.policies import Capability, System
from harness.workloads.workload import Workload

POLL_S = 0.002


class VllmRun:
    """One run: the clock, the client, the groups and what is recorded of them."""

    def __init__(
        self, *, options: VllmOptions, workload: Workload, system: System, recorder: Recorder
    ) -> None:
        self.options, self.workload, self.system = options, workload, system
        self.recorder = recorder
        self.lifecycle = self._lifecycle()
        self.state = self.lifecycle.state
        self.client = self.new_client()
        self.predictions = Predictions(self.lifecycle, self.clock)
        self.units = self._units()
        self.measured = Measured(workload, self.state.arrays, recorder, at_once=options.ray)
        self.ray = ExitStack()
        self.sampler: Sampler | None = None
        # Whether something has happened since the groups were asked last.
        self._is_news = self._place_due = False
        self.wake_s: float | None = None
        self.prewarm_s: float | None = None
        self.prompts = Prompts(workload, options)
        self.epoch_s = time.monotonic()
        self.loader = self._loader()
        self.told = Listeners(system, recorder, heard=self.loader.heard)
        self.groups = Groups(
            cluster=options.cluster,
            loader=self.loader,
            clock=self.clock,
            epoch_s=lambda: self.epoch_s,
            account=self._account,
            give_back=self._take_back,
            lost=self._lost,
        )
        # Timers of the placement that have ended since something was under way.
        self.wakes = 0

    def new_client(self) -> Client:
        """What says which requests have come."""
        return Client(self.workload, self.lifecycle.roots, self.clock)

    def _lifecycle(self) -> Lifecycle:
        # What its groups hold is in them: policies that see the whole cluster see none of it.
        return Lifecycle(
            self.workload,
            self.options.cluster,
            self.system,
            groups={},
            deliver=self._deliver,
            unanswered=lambda group: self.groups.unanswered(group),
            catch_up=lambda: self.measured.work_out(),
        )

    def _units(self) -> Outside | None:
        if self.workload.apps is None:
            return None
        return Outside(
            self.state,
            self.workload.apps,
            lambda event: self._tell([event]),
            self.clock,
            self.system.predictor,
            self.options.containers,
        )

    def _loader(self) -> GroupLoader:
        moves = Capability.REDEPLOY in self.system.placement.requires
        moves |= self.options.on_loss == "redo"
        carries = bool(self.workload.edges.carries.any())
        return GroupLoader(
            options=self.options,
            policy=self.system.scheduling,
            services=dict(self.lifecycle.services),
            clock=self.clock,
            keeps_answers=self.options.keep_answers or moves or carries,
        )

    def clock(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.epoch_s

    def serve(self) -> None:
        """Start, serve all and stop, whatever happens."""
        try:
            self.start()
            self.loop()
        finally:
            self.stop()

    def start(self) -> None:
        """Place and load the first groups; requests come meanwhile or, `loads_first`, after."""
        if self.options.ray:
            self.ray.enter_context(slots_of_ray(len(self.options.cluster.gpus)))
        self.predictions.foresee()
        self.epoch_s = time.monotonic()
        if not self.options.loads_first:
            self.client.start()
        self._place()
        if not self.options.ray:
            self.client.was_busy()
        if self.options.loads_first:
            self.groups.wait()
            self.epoch_s = time.monotonic()
            # Groups of other processes hear when the clock starts as they are noted.
            self.groups.advance()
            for life in self.groups.lives:
                life.asked_s = life.ready_s = 0.0
            self.client.start()
        if has_gpus() and (nvml := open_nvml()) is not None:
            gpus = [int(gpu) for gpu in self.options.cluster.gpus]
            self.sampler = Sampler(nvml, gpus, self.clock)
            self.sampler.start()

    def _place(self) -> None:
        """Ask for a deployment and make it so."""
        self.state.now_s = max(0.0, self.clock())
        deployment = ask_deployment(self.system.placement, self.lifecycle.view, self.recorder)
        self.wake_s, self._place_due = deployment.wake_s, False
        self.state.deployment = deployment
        for service in sorted(self.groups.deploy(Deployment(deployment.groups))):
            self._hand_out(service)

    def loop(self) -> None:
        """Until all is answered, or the horizon. ValueError when some never can be answered."""
        horizon_s = self.options.horizon_s
        while not self.lifecycle.is_over:
            if horizon_s is not None and self.clock() >= horizon_s:
                self.recorder.cut_off_s = horizon_s
                return
            self._arrive()
            self._prewarm()
            self._due()
            self._move()
            busy = [name for name, group in self.groups.live.items() if self._may_step(group)]
            for name in busy:
                served = self.groups.live[name]
                try:
                    served.step()
                except GroupLost as error:
                    assert isinstance(served, RayGroup)
                    self.groups.lose(served, error)
                    break
                self._account(served.group, served.report())
            if not busy:
                self._idle()
            elif not self.options.ray:
                self.client.was_busy()

    def _prewarm(self) -> None:
        """Ask which backends to load, after events and when it is time."""
        policy, units = self.system.prewarm, self.units
        if policy is None or units is None:
            return
        is_time = self.prewarm_s is not None and self.prewarm_s <= self.clock()
        if units.prewarming_is_due or is_time:
            units.prewarming_is_due = False
            self.state.now_s = self.clock()
            decision = ask_prewarming(policy, self.lifecycle.view, self.recorder)
            self.prewarm_s = decision.wake_s
            units.prewarm(decision)

    def _move(self) -> None:
        """Groups that come and go. ValueError where one does not start."""
        if self._place_due or (self.wake_s is not None and self.wake_s <= self.clock()):
            self._refuse_standstill(has_timer=True)
            self._place()
        try:
            self._is_news |= self.groups.advance()
        except GroupLost as error:
            raise ValueError(str(error)) from None
        for service in list(self.lifecycle.held_back):
            self._hand_out(service)

    def _lost(self, died: RayGroup, error: GroupLost) -> None:
        """A process has died: fail, count its requests as lost, or serve them again.

        Raises ValueError where the run is to give up.
        """
        unanswered = tuple(died.unanswered.values())
        died.unanswered.clear()
        problem = f"{error}; {len(unanswered)} of its requests are unanswered"
        if self.options.on_loss == "fail":
            raise ValueError(problem)
        print(problem, file=sys.stderr)
        if self.options.on_loss == "redo":
            self.groups.restart(died)
            self._take_back(unanswered)
            return
        lost = [int(submission.facts.id) for submission in unanswered]
        self.lifecycle.give_up(lost)
        if self.workload.is_closed_loop:
            # The clients of lost requests go on.
            self.state.now_s = self.clock()
            self._release(np.array(lost, np.int64))

    def _may_step(self, group: GroupHandle) -> bool:
        wake_s = group.wake_s
        return group.has_work and (wake_s is None or wake_s <= self.clock() or self._is_news)

    def _idle(self) -> None:
        """Nothing runs: wait for what comes next."""
        if requests := self.client.wait(POLL_S):
            self._receive(requests)
            self.client.was_busy()
        else:
            self._is_news = False
            # The last call may have been one outside any LLM, which `_arrive` has taken.
            if self.wake_s is None and not self._place_due and not self.lifecycle.is_over:
                self._refuse_standstill(has_timer=False)

    def _refuse_standstill(self, *, has_timer: bool) -> None:
        """A timer has ended, or there is none. ValueError where no group serves what is left.

        A run that has a horizon may wait for it.
        """
        waits = not self.client.is_through or self.predictions.are_awaited
        waits |= self.units is not None and self.units.is_working
        if waits or self.groups.have_work or self.options.horizon_s is not None:
            self.wakes = 0
        elif has_timer:
            self.wakes += 1
            refuse_standstill(self.lifecycle.remaining, wakes=self.wakes, now_s=self.clock())
        elif not self.groups.come_and_go:
            refuse_standstill(self.lifecycle.remaining, wakes=None, now_s=self.clock())

    def _arrive(self) -> None:
        """Take in what has come."""
        self._is_news = False
        for requests in self.client.arrived():
            self._receive(requests)
        if self.units is not None and (over := self.units.over()):
            self._finished(over)

    def _receive(self, requests: list[int]) -> None:
        """Requests have arrived: give them to groups of their services, and to the predictor."""
        self._is_news = True
        if self.units is not None:
            requests = self.units.begin(requests)
        for request in requests:
            self.lifecycle.hold_back(self.workload.service_of(request), [request])
        for service in list(self.lifecycle.held_back):
            self._hand_out(service)
        if self.system.predictor is not None:
            self.predictions.ask(self.system.predictor, requests)

    def _hand_out(self, service: ServiceId) -> None:
        self.state.now_s = self.clock()
        self.lifecycle.hand_out(service)

    def _deliver(self, requests: Sequence[int], groups: Sequence[GroupId]) -> None:
        """Requests go to their groups, those of one together."""
        for name in dict.fromkeys(groups):
            own = [r for r, group in zip(requests, groups, strict=True) if group == name]
            self.groups.submit(name, [self.prompts.submission(self.state.facts(r)) for r in own])

    def _take_back(self, submissions: Sequence[Submission]) -> None:
        """Requests have left a group; they keep what they have produced."""
        requests = [int(submission.facts.id) for submission in submissions]
        self.measured.withdrawn(requests, self.clock())
        for request in requests:
            self.lifecycle.hold_back(self.workload.service_of(request), [request])

    def _due(self) -> None:
        """Deliver the predictions that are ready."""
        for request, length in self.predictions.ready():
            self.state.predict(request, length)
            self.groups.predict(request, length)
            self._is_news = True

    def _account(self, group: Group, report: Report) -> None:
        """Write down what a group has done, and release calls that waited for it."""
        self._tell(report.events, by=group.id)
        self.measured.keep(group, report.iterations)
        if self.options.ray:
            self.recorder.counts.update(report.counts)
        for request, tokens in report.answers.items():
            self.prompts.answers.setdefault(int(request), []).extend(tokens)
        for iteration in report.iterations:
            finished = [int(request) for request in iteration.finished]
            self.state.arrays.finished_s[finished] = iteration.end_s
            if finished:
                self._finished(finished)

    def _tell(self, events: Sequence[Event], *, by: GroupId | None = None) -> None:
        """Report events, `by` a group that has told its own policy already.

        Groups of this process share the policy here; others have copies, which begin with what
        the one here has heard, and then hear of each other's events.
        """
        scheduling = self.system.scheduling
        has_heard = by is not None and not self.options.ray
        for event in events:
            self.told.tell(event, has_heard=has_heard)
        if told := [event for event in events if type(event) in scheduling.subscribes]:
            self.groups.hear(told, but=by)

    def _finished(self, calls: list[int]) -> None:
        """Calls are answered, or over: tell of what ends with them, and take calls that come."""
        self.state.now_s = self.clock()
        answered = np.array(calls, np.int64)
        if self.units is not None:
            self.units.answered(answered, self.state.now_s)
        self._place_due |= self.lifecycle.answered(answered)
        self._release(answered)

    def _release(self, answered: Ints) -> None:
        """Take the calls that waited for these, or the next requests of a closed loop."""
        think_s = self.workload.think_s or 0.0
        released = self.lifecycle.released(answered, after_s=think_s)
        if released and think_s:
            self.client.later(self.state.now_s + think_s, released)
        elif released:
            self.client.lag_s[released] = 0.0
            self._receive(released)

    def stop(self) -> None:
        """End the groups, and what runs outside them."""
        if self.units is not None:
            self.units.stop()
        self.groups.stop()
        self.ray.close()

    def write(self) -> None:
        """Hand what was measured to the recorder."""
        now_s = self.clock()
        for life in self.groups.lives:
            life.ready_s, life.ended_s = min(life.ready_s, now_s), min(life.ended_s, now_s)
        sampled = None if self.sampler is None else self.sampler.stop()
        if not self.options.ray:
            promotions = self.loader.heard.promotions
            self.recorder.counts.update(counts_of(self.system.scheduling, promotions))
        if self.groups.dead:
            self.recorder.counts["groups_lost"] = len(self.groups.dead)
        self.measured.write(self.groups.lives, sampled, self.client.lag_s)
        self.recorder.engines = {str(name): dict(it) for name, it in self.groups.resolved.items()}
        if self.units is not None and self.units.backends is not None:
            self.recorder.backends = self.units.backends.frame()
            self.recorder.counts["units_failed"] = self.units.failed
        if self.options.keep_answers:
            self.options.answers.clear()
            self.options.answers.update(self.prompts.answers)
