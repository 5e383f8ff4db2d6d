"""One run on real vLLM: the clock, the client, and who waits for whom.

Groups live in this process and are stepped in turn, or each in a process of its own; only those in
processes of their own may come and go. A client thread hands requests over at their time; how late
it was is kept per request.
"""

import sys
import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import numpy as np
import ray

from harness.costs.nvml import Sampler, open_nvml
from harness.engines.live_state import LiveCluster, LiveState
from harness.engines.recorder import Recorder
from harness.engines.state import new_arrays
from harness.engines.vllm.group import Report, Submission, VllmGroup, has_gpus, new_engine
from harness.engines.vllm.groups import Groups, Served
from harness.engines.vllm.measured import Measured
from harness.engines.vllm.prompts import Prompts
from harness.engines.vllm.ray import GroupLost, RayGroup, start_ray
from harness.interface.decisions import Deployment
from harness.interface.entities import (
    Group,
    GroupId,
    LengthPrediction,
    Request,
    RequestId,
    ServiceId,
)
from harness.interface.events import Event, ServiceDrained
from harness.interface.graph import NOBODY, Graph
from harness.interface.policies import Capability, LengthPredictor, System
from harness.workloads.workload import Workload

if TYPE_CHECKING:
    from harness.engines.vllm.engine import Vllm

POLL_S = 0.002


class Run:
    """One run: the clock, the client, the groups and what is recorded of them.

    Where groups come and go the clock runs from the first request to load one; else from when all
    have loaded.
    """

    def __init__(
        self, engine: "Vllm", workload: Workload, system: System, recorder: Recorder
    ) -> None:
        self.engine, self.workload, self.system, self.recorder = engine, workload, system, recorder
        self.redeploys = Capability.REDEPLOY in system.placement.requires
        self.graph = Graph(workload.edges, workload.service)
        waits = self.graph.waits.copy()
        arrays = new_arrays(
            workload.prompt_tokens,
            workload.output_tokens,
            np.zeros(len(workload), np.int64),
            np.where(waits == 0, workload.arrival_s, np.inf),
        )
        self.state = LiveState(workload, engine.cluster, arrays, waits)
        self.services = {service.id: service for service in workload.services}
        self.view = LiveCluster(self.state, self.services)
        self.lag_s = np.full(len(workload), np.nan)
        self.inbox: SimpleQueue[tuple[float, list[int]]] = SimpleQueue()
        self.timers: list[tuple[float, RequestId, LengthPrediction]] = []
        self.left = {
            s.id: int((workload.service == i).sum()) for i, s in enumerate(workload.services)
        }
        self.measured = Measured(workload, arrays, recorder, at_once=engine.ray)
        self.owns_ray = False
        self.sampler: Sampler | None = None
        # Whether something has happened since the groups were asked last.
        self._is_news = False
        self._place_due = False
        self.wake_s: float | None = None
        self.held_back: dict[ServiceId, list[int]] = {}
        self.home: dict[int, GroupId] = {}
        self.prompts = Prompts(
            workload,
            seed=engine.seed,
            texts=engine.texts,
            forces_lengths=engine.forces_lengths,
            model_of=engine.model_path,
        )
        self.epoch_s = time.monotonic()
        self.ends = threading.Event()
        self.groups = Groups(
            engine.cluster,
            self._start_group,
            self.clock,
            lambda: self.epoch_s,
            self._account,
            self._take_back,
        )

    def clock(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.epoch_s

    def start(self) -> None:
        """Place and load the first groups, then let the client begin."""
        if self.engine.ray:
            self.owns_ray = start_ray(len(self.engine.cluster.gpus))
        self._foresee()
        self.epoch_s = time.monotonic()
        self._place()
        if not self.redeploys:
            self.groups.wait()
            self.epoch_s = time.monotonic()
            for life in self.groups.lives.values():
                life.asked_s = life.ready_s = 0.0
        if has_gpus() and (nvml := open_nvml()) is not None:
            gpus = [int(gpu) for gpu in self.engine.cluster.gpus]
            self.sampler = Sampler(nvml, gpus, self.clock)
            self.sampler.start()
        threading.Thread(target=self._client, daemon=True).start()

    def _foresee(self) -> None:
        """A predictor that knows all is asked before the first placement."""
        predictor = self.system.predictor
        if predictor is not None and predictor.foresees:
            for call in np.flatnonzero(self.workload.arrival_s <= 0).tolist():
                self.state.predicted[call] = predictor.predict(self.workload.facts(call))[0]

    def _place(self) -> None:
        """Ask for a deployment and make it so."""
        self.state.now_s = max(0.0, self.clock())
        started_s = time.perf_counter()
        deployment = self.system.placement.place(self.view)
        self.recorder.decided("place", time.perf_counter() - started_s)
        self.wake_s, self._place_due = deployment.wake_s, False
        self.state.deployment = deployment
        for service in sorted(self.groups.deploy(Deployment(deployment.groups))):
            self._hand_out(service)

    def _start_group(self, group: Group) -> Served:
        """Start a group's engine, or take one that is loaded."""
        (name,) = group.services
        service, settings = self.services[name], self.engine.settings(self.services[name], group)
        keeps = (
            self.engine.keep_answers or self.redeploys or bool(self.workload.edges.carries.any())
        )
        if self.engine.ray:
            return RayGroup.start(
                settings,
                group=group,
                service=service,
                policy=self.system.scheduling,
                keep_answers=keeps,
                on_gpus=has_gpus(),
            )
        served = self.engine.loaded.pop(settings, None)
        if served is None:
            served = VllmGroup(new_engine(settings), keeps, settings)
        served.keep_answers = keeps
        served.use(self.system.scheduling, group=group, service=service, clock=self.clock)
        return served

    def _client(self) -> None:
        """Hand over every request that waits for nobody, at its time."""
        roots = np.flatnonzero(self.graph.waits == 0)
        arrivals_s = self.workload.arrival_s[roots]
        for at_s in np.unique(arrivals_s).tolist():
            if self.ends.wait(max(0.0, at_s - self.clock())):
                return
            self.inbox.put((self.clock(), roots[arrivals_s == at_s].tolist()))

    def loop(self) -> None:
        """Until every request is answered."""
        while sum(self.left.values()):
            self._arrive()
            self._due()
            self._move()
            busy = [name for name, group in self.groups.live.items() if self._may_step(group)]
            for name in busy:
                try:
                    self.groups.live[name].step()
                except GroupLost as error:
                    self._lose(name, error)
                    break
                self._account(name, self.groups.live[name].report())
            if not busy:
                self._idle()

    def _move(self) -> None:
        """Groups that come and go. ValueError where one does not start."""
        if self._place_due or (self.wake_s is not None and self.wake_s <= self.clock()):
            self._place()
        try:
            self._is_news |= self.groups.advance()
        except GroupLost as error:
            raise ValueError(str(error)) from None
        for service in list(self.held_back):
            self._hand_out(service)

    def _lose(self, name: GroupId, error: GroupLost) -> None:
        """A process has died: give up, count its requests as lost, or start it and them anew.

        Raises ValueError where the run is to give up.
        """
        died = self.groups.live[name]
        assert isinstance(died, RayGroup)
        if self.engine.on_loss == "fail":
            raise ValueError(str(error))
        print(error, file=sys.stderr)
        unanswered = [int(request) for request in died.unanswered]
        self.measured.lost(unanswered)
        self.prompts.forget(unanswered)
        if self.engine.on_loss == "redo":
            self.groups.restart(name)
            self.groups.submit(name, [self._submission(request) for request in unanswered])
            return
        died.stop()
        died.unanswered.clear()
        for request in self._with_followers(unanswered):
            self.left[self.workload.service_of(request)] -= 1

    def _with_followers(self, requests: Sequence[int]) -> set[int]:
        """Requests, and every call that will never arrive without their answers."""
        found: set[int] = set()
        left = list(requests)
        while left:
            request = left.pop()
            if request not in found:
                found.add(request)
                left.extend(self.graph.children(request))
        return found

    def _may_step(self, group: Served) -> bool:
        wake_s = group.wake_s
        return group.has_work and (wake_s is None or wake_s <= self.clock() or self._is_news)

    def _idle(self) -> None:
        """Nothing runs: wait for the client."""
        try:
            self._take(*self.inbox.get(timeout=POLL_S))
        except Empty:
            self._is_news = False

    def _arrive(self) -> None:
        """Take what the client has handed over."""
        self._is_news = False
        while not self.inbox.empty():
            self._take(*self.inbox.get())

    def _take(self, handed_s: float, requests: list[int]) -> None:
        self.lag_s[requests] = handed_s - self.workload.arrival_s[requests]
        self._receive(requests)

    def _receive(self, requests: list[int]) -> None:
        """Requests have arrived: give them to groups of their services, and to the predictor."""
        self._is_news = True
        self.state.now_s = self.clock()
        for request in requests:
            self.held_back.setdefault(self.workload.service_of(request), []).append(request)
        for service in list(self.held_back):
            self._hand_out(service)
        if self.system.predictor is not None:
            for request in requests:
                self._predict(self.system.predictor, request)

    def _hand_out(self, service: ServiceId) -> None:
        """Dispatch a service's requests that are in no group, if it has groups."""
        homes = [g.id for g in self.groups.deployment.groups if service in g.services]
        requests = sorted(self.held_back.get(service, []))
        if not homes or not requests:
            return
        del self.held_back[service]
        self.state.now_s = self.clock()
        # The next call of a chain goes where the one before it was answered.
        known = {r: self.home.pop(r) for r in requests if r in self.home}
        known = {r: home for r, home in known.items() if home in homes}
        asked = [request for request in requests if request not in known]
        if asked:
            chosen = self.system.dispatch.dispatch(asked, service, self.view)
            known |= zip(asked, chosen, strict=True)
        for name in dict.fromkeys(known[request] for request in requests):
            given = [self._submission(r) for r in requests if known[r] == name]
            self.groups.submit(name, given)

    def _take_back(self, service: ServiceId, submissions: Sequence[Submission]) -> None:
        """Requests have left a group; they keep what they have produced."""
        requests = [int(submission.facts.id) for submission in submissions]
        self.measured.withdrawn(requests, self.clock())
        if requests:
            self.held_back.setdefault(service, []).extend(requests)

    def _submission(self, request: int) -> Submission:
        length = int(self.workload.output_tokens[request])
        forced = length if self.engine.forces_lengths else None
        return Submission(
            self.state.facts(request),
            self.prompts.prompt(request),
            forced,
            tuple(self.prompts.answers.get(request, ())),
        )

    def _predict(self, predictor: LengthPredictor, request: int) -> None:
        facts: Request = self.state.facts(request)
        length, seconds = predictor.predict(facts)
        self.timers.append((self.clock() + seconds, facts.id, length))

    def _due(self) -> None:
        """Deliver the predictions that are ready."""
        now_s = self.clock()
        for timer in [t for t in self.timers if t[0] <= now_s]:
            self.timers.remove(timer)
            self.state.predicted[timer[1]] = timer[2]
            for group in self.groups.live.values():
                group.predict(timer[1], timer[2])
            self._is_news = True

    def _account(self, name: GroupId, report: Report) -> None:
        """Write down what a group has done, and release who waited for it."""
        for event in report.events:
            self._tell(event)
        self.measured.keep(name, report.iterations)
        for request, tokens in report.answers.items():
            self.prompts.answers.setdefault(int(request), []).extend(tokens)
        for iteration in report.iterations:
            for request in iteration.finished:
                self.state.arrays.finished_s[request] = iteration.end_s
                self._finished(int(request), name)

    def _tell(self, event: Event) -> None:
        self.recorder.event(event)
        if type(event) in self.system.placement.subscribes:
            self.system.placement.observe(event)

    def _finished(self, request: int, name: GroupId) -> None:
        service = self.workload.service_of(request)
        self.left[service] -= 1
        if not self.left[service]:
            self._place_due = True
            self._tell(ServiceDrained(self.clock(), service))
        waits, released = self.state.waits, []
        for call in self.graph.children(request):
            waits[call] -= 1
            if self.graph.chain[request] != NOBODY:
                self.home[call] = name
            if waits[call] == 0:
                self.state.arrays.arrival_s[call] = self.clock()
                self.lag_s[call] = 0.0
                released.append(call)
        if released:
            self._receive(released)

    def stop(self) -> None:
        """End the client and the groups."""
        self.ends.set()
        self.groups.stop(self._keep)
        if self.owns_ray:
            ray.shutdown()

    def _keep(self, group: Served) -> bool:
        """A group of this process stays loaded if asked to and idle."""
        if not self.engine.keep_loaded or not isinstance(group, VllmGroup) or group.has_work:
            return False
        self.engine.loaded[group.settings] = group
        return True

    def write(self) -> None:
        """Hand what was measured to the recorder."""
        now_s = self.clock()
        for life in self.groups.lives.values():
            life.ready_s, life.ended_s = min(life.ready_s, now_s), min(life.ended_s, now_s)
        sampled = None if self.sampler is None else self.sampler.stop()
        self.measured.write(list(self.groups.lives.values()), sampled, self.lag_s)
        if self.engine.keep_answers:
            self.engine.answers.clear()
            self.engine.answers.update(self.prompts.answers)
