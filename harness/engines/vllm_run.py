"""One run on real vLLM: the clock, the client, the groups, and who waits for whom.

All groups live in this process and are stepped in turn, or each in a process of its own. A client
thread hands requests over at their time; how late it was is kept per request.
"""

import sys
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

import numpy as np
import ray

from harness.decisions import Deployment
from harness.engines.lane import new_arrays
from harness.engines.live_state import LiveCluster, LiveState
from harness.engines.measured import Measured
from harness.engines.nvml import Sampler, open_nvml
from harness.engines.vllm_group import (
    Report,
    Submission,
    VllmGroup,
    has_gpus,
    new_engine,
    tokens_of,
)
from harness.engines.vllm_ray import GroupLost, RayGroup, start_ray
from harness.entities import Group, GroupId, LengthPrediction, Request, RequestId, Service
from harness.policies import LengthPredictor, System
from harness.recorder import Recorder
from harness.workloads.graph import Graph
from harness.workloads.workload import Workload

if TYPE_CHECKING:
    from harness.engines.vllm_engine import Vllm

POLL_S = 0.002
FIRST_TOKEN_ID, VOCABULARY = 3, 900  # random prompts keep clear of special tokens


class Served(Protocol):
    """One group being served, in this process or another."""

    @property
    def has_work(self) -> bool:
        """Whether anybody is unanswered."""

    @property
    def wake_s(self) -> float | None:
        """Until when nothing will run unless something happens."""

    def submit(self, submissions: list[Submission]) -> None:
        """Requests come in."""

    def predict(self, request: RequestId, length: LengthPrediction) -> None:
        """A length prediction is ready."""

    def step(self) -> None:
        """Compute, or let compute."""

    def report(self) -> Report:
        """What has been done since the last report."""

    def stop(self) -> None:
        """End it."""


def texts_of(path: str | None) -> list[str]:
    """The lines of a file that are not empty. ValueError where it has none or is not there."""
    if path is None:
        return []
    try:
        lines = [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line]
    except OSError as error:
        raise ValueError(f"engine.texts={path} cannot be read: {error.strerror}") from None
    if not lines:
        raise ValueError(f"engine.texts={path} holds no text")
    return lines


class Run:
    """One run: the clock, the client, the groups and what is recorded of them."""

    def __init__(
        self, engine: "Vllm", workload: Workload, system: System, recorder: Recorder
    ) -> None:
        self.engine, self.workload, self.system, self.recorder = engine, workload, system, recorder
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
        self.groups: dict[GroupId, Served] = {}
        self.lag_s = np.full(len(workload), np.nan)
        self.inbox: SimpleQueue[tuple[float, list[int]]] = SimpleQueue()
        self.timers: list[tuple[float, RequestId, LengthPrediction]] = []
        self.remaining = len(workload)
        self.measured = Measured(workload, arrays, recorder)
        self.owns_ray = False
        self.sampler: Sampler | None = None
        # Whether something has happened since the groups were asked last.
        self._is_news = False
        self.answers: dict[int, list[int]] = {}
        self.texts = texts_of(engine.texts)
        self.rng = np.random.default_rng([engine.seed, 5])
        self.epoch_s = time.monotonic()
        self.ends = threading.Event()
        self.deployment = Deployment(())

    def clock(self) -> float:
        """Seconds since the run began: when every group had loaded."""
        return time.monotonic() - self.epoch_s

    def start(self) -> None:
        """Place and load the groups, then let the client begin."""
        started = time.perf_counter()
        self.deployment = self.system.placement.place(self.view)
        self.recorder.decided("place", time.perf_counter() - started)
        self.state.deployment = self.deployment
        self.epoch_s = time.monotonic()
        if self.engine.ray:
            slots = sum(group.tensor_parallel for group in self.deployment.groups)
            self.owns_ray = start_ray(slots)
        for group in self.deployment.groups:
            (name,) = group.services
            self.groups[group.id] = self._load(group, self.services[name])
        far = [group for group in self.groups.values() if isinstance(group, RayGroup)]
        for served in far:
            served.wait()
        self.epoch_s = time.monotonic()
        for served in far:
            served.begin(self.epoch_s)
        if has_gpus() and (nvml := open_nvml()) is not None:
            gpus = [int(gpu) for group in self.deployment.groups for gpu in group.gpus]
            self.sampler = Sampler(nvml, gpus, self.clock)
            self.sampler.start()
        threading.Thread(target=self._client, daemon=True).start()

    def _load(self, group: Group, service: Service) -> Served:
        """Start a group's engine, or take one that is loaded."""
        settings = self.engine.settings(service, group)
        if self.engine.ray:
            return RayGroup.start(
                settings,
                group=group,
                service=service,
                policy=self.system.scheduling,
                keep_answers=self.engine.keep_answers,
                on_gpus=has_gpus(),
            )
        served = self.engine.loaded.pop(settings, None)
        if served is None:
            served = VllmGroup(new_engine(settings), self.engine.keep_answers, settings)
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
        while self.remaining:
            self._arrive()
            self._due()
            busy = [name for name, group in self.groups.items() if self._may_step(group)]
            for name in busy:
                try:
                    self.groups[name].step()
                except GroupLost as error:
                    self._lose(name, error)
                self._account(name, self.groups[name].report())
            if not busy:
                self._idle()

    def _lose(self, name: GroupId, error: GroupLost) -> None:
        """A process has died: give up, count its requests as lost, or start it and them anew.

        Raises ValueError where the run is to give up.
        """
        died = self.groups[name]
        assert isinstance(died, RayGroup)
        if self.engine.on_loss == "fail":
            raise ValueError(str(error))
        print(error, file=sys.stderr)
        unanswered = list(died.unanswered.values())
        died.stop()
        self.measured.lost([int(s.facts.id) for s in unanswered])
        if self.engine.on_loss == "lost":
            died.unanswered.clear()
            self.remaining -= len(self._with_followers([s.facts.id for s in unanswered]))
            return
        (service,) = died.group.services
        again = self._load(died.group, self.services[service])
        assert isinstance(again, RayGroup)
        again.wait()
        again.begin(self.epoch_s)
        again.submit(unanswered)
        self.groups[name] = again

    def _with_followers(self, requests: list[RequestId]) -> set[int]:
        """Requests, and every call that will never arrive without their answers."""
        found: set[int] = set()
        left = [int(request) for request in requests]
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
        self._dispatch(requests)

    def _dispatch(self, requests: list[int]) -> None:
        """Give requests to groups of their services, and to the predictor."""
        self._is_news = True
        self.state.now_s = self.clock()
        for service in self.services:
            mine = [r for r in requests if self.workload.service_of(r) == service]
            if not mine:
                continue
            chosen = self.system.dispatch.dispatch(mine, service, self.view)
            for name in dict.fromkeys(chosen):
                given = [r for r, g in zip(mine, chosen, strict=True) if g == name]
                self.groups[name].submit([self._submission(r) for r in given])
        if self.system.predictor is not None:
            for request in requests:
                self._predict(self.system.predictor, request)

    def _submission(self, request: int) -> Submission:
        length = int(self.workload.output_tokens[request])
        forced = length if self.engine.forces_lengths else None
        return Submission(self.state.facts(request), self._prompt(request), forced)

    def _prompt(self, request: int) -> list[int]:
        """The token ids of a prompt, as many as the workload says."""
        count = int(self.workload.prompt_tokens[request])
        if not self.texts:
            ids: list[int] = self.rng.integers(FIRST_TOKEN_ID, VOCABULARY, count).tolist()
            return ids
        text = self.texts[request % len(self.texts)]
        service = self.services[self.workload.service_of(request)]
        ids = tokens_of(text, self.engine.settings(service, self.deployment.groups[0]).model)
        # A text that is too short is said again.
        return (ids * (count // max(1, len(ids)) + 1))[:count]

    def _predict(self, predictor: LengthPredictor, request: int) -> None:
        facts: Request = self.state.facts(request)
        length, seconds = predictor.predict(facts)
        self.timers.append((self.clock() + seconds, facts.id, length))

    def _due(self) -> None:
        """Deliver the predictions that are ready."""
        now_s = self.clock()
        for timer in [t for t in self.timers if t[0] <= now_s]:
            self.timers.remove(timer)
            for group in self.groups.values():
                group.predict(timer[1], timer[2])
            self._is_news = True

    def _account(self, name: GroupId, report: Report) -> None:
        """Write down what a group has done, and release who waited for it."""
        for event in report.events:
            self.recorder.event(event)
        self.measured.keep(name, report.iterations)
        for iteration in report.iterations:
            for request in iteration.finished:
                self.state.arrays.finished_s[request] = iteration.end_s
                self._finished(int(request))
        for number, tokens in report.answers.items():
            self.answers[int(number)] = tokens

    def _finished(self, request: int) -> None:
        self.remaining -= 1
        waits, released = self.state.waits, []
        for call in self.graph.children(request):
            waits[call] -= 1
            if waits[call] == 0:
                self.state.arrays.arrival_s[call] = self.clock()
                self.lag_s[call] = 0.0
                released.append(call)
        if released:
            self._dispatch(released)

    def stop(self) -> None:
        """End the client and the groups."""
        self.ends.set()
        for group in self.groups.values():
            if self.engine.keep_loaded and isinstance(group, VllmGroup) and not group.has_work:
                self.engine.loaded[group.settings] = group
            else:
                group.stop()
        if self.owns_ray:
            ray.shutdown()

    def write(self) -> None:
        """Hand what was measured to the recorder."""
        sampled = None if self.sampler is None else self.sampler.stop()
        self.measured.write(self.deployment.groups, sampled, self.lag_s)
