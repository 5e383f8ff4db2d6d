"""Real vLLM under the policies: arrivals on the wall clock, seconds measured.

All groups live in this process and are stepped in turn; `ray` puts each into a process of its own.
A client thread hands requests over at their time; how late it was is kept per request.
"""

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import ClassVar, Protocol

import numpy as np
import pandas as pd
import ray

from harness.decisions import Deployment
from harness.engines.engine import refuse_unmet_needs
from harness.engines.frames import request_frame
from harness.engines.lane import LOG_COLUMNS, forget, new_arrays
from harness.engines.live_state import LiveCluster, LiveState
from harness.engines.nvml import Sampler, open_nvml
from harness.engines.vllm_group import (
    EngineSettings,
    Report,
    Submission,
    VllmGroup,
    engine_name,
    has_gpus,
    new_engine,
    tokens_of,
)
from harness.engines.vllm_ray import GroupLost, RayGroup, start_ray
from harness.engines.vllm_scheduler import Iteration, PolicyScheduler
from harness.entities import (
    Cluster,
    Group,
    GroupId,
    LengthPrediction,
    Request,
    RequestId,
    Service,
)
from harness.policies import Capability, LengthPredictor, System
from harness.record import ROOT
from harness.recorder import GpuUse, Recorder
from harness.workloads.graph import Graph
from harness.workloads.workload import Workload

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Vllm:
    """An engine: vLLM, measured.

    `models` says for each service which model stands for it, a folder or a name; services it does
    not list are asked for under their own name. With `load_format` dummy the weights are random.
    `kv_blocks` and `block_tokens` are vLLM's own choice where they are None. With `keep_loaded` the
    next run in this process finds its models loaded. With `ray` every group is an actor in a
    placement group of its own; if its process dies, `on_loss` says what becomes of its requests:
    fail (the run ends), lost (they count as unfinished) or redo (the process is started again).

    Prompts are random tokens of the workload's lengths, or the `texts` of a file, one a line, in
    turn, cut to those lengths by the model's own tokenizer. Answers have the workload's lengths, or
    with `forces_lengths` off end where the model ends them, at the limit at the latest.
    """

    offers: ClassVar[frozenset[Capability]] = frozenset()

    cluster: Cluster
    seed: int
    models: Mapping[str, str]
    load_format: str
    dtype: str
    max_batch_requests: int
    max_batch_tokens: int
    kv_blocks: int | None
    block_tokens: int | None
    prefix_caching: bool
    eager: bool
    keep_answers: bool
    keep_loaded: bool
    ray: bool
    on_loss: str
    texts: str | None
    forces_lengths: bool
    loaded: dict[EngineSettings, VllmGroup] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is none of the three."""
        if self.on_loss not in ("fail", "lost", "redo"):
            raise ValueError(f"engine.on_loss={self.on_loss} is none of fail, lost and redo")

    @property
    def about(self) -> str:
        """Its seconds are measured."""
        return f"measured on {engine_name()}"

    def run(self, workload: Workload, system: System, recorder: Recorder) -> None:
        """Serve the workload in real time. See `Engine.run`."""
        refuse_unmet_needs(self, system)
        run = _Run(self, workload, system, recorder)
        try:
            run.start()
            run.loop()
        finally:
            run.stop()
        run.write()

    def settings(self, service: Service, group: Group) -> EngineSettings:
        """How the engine of a group is built."""
        model = self.models.get(str(service.id), str(service.id))
        folder = ROOT / "scenarios" / "models" / model
        return EngineSettings(
            model=str(folder) if folder.is_dir() else model,
            load_format=self.load_format,
            dtype=self.dtype,
            max_context_tokens=service.max_context_tokens,
            max_batch_requests=self.max_batch_requests,
            max_batch_tokens=self.max_batch_tokens,
            kv_blocks=self.kv_blocks,
            block_tokens=self.block_tokens,
            prefix_caching=self.prefix_caching,
            eager=self.eager,
            tensor_parallel=group.tensor_parallel,
            scheduler=PolicyScheduler,
        )


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


@dataclass(slots=True)
class _Account:
    """What a group's iterations add up to."""

    busy_s: list[tuple[float, float]] = field(default_factory=list)
    rows: list[tuple[float, ...]] = field(default_factory=list)


class _Run:
    """One run: the clock, the client, the groups and what is recorded of them."""

    def __init__(
        self, engine: Vllm, workload: Workload, system: System, recorder: Recorder
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
        self.accounts: dict[GroupId, _Account] = {}
        self.lag_s = np.full(len(workload), np.nan)
        self.inbox: SimpleQueue[tuple[float, list[int]]] = SimpleQueue()
        self.timers: list[tuple[float, RequestId, LengthPrediction]] = []
        self.remaining = len(workload)
        # None marks where a group's process died.
        self.iterations: list[tuple[GroupId, Iteration | None]] = []
        self.lost: list[tuple[GroupId, RequestId]] = []
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
            self.accounts[group.id] = _Account()
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
        self.lost.extend((name, s.facts.id) for s in unanswered)
        self.iterations.append((name, None))
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
        # What is not needed to go on is worked out when nobody waits for it any more.
        self.iterations.extend((name, iteration) for iteration in report.iterations)
        for iteration in report.iterations:
            for request in iteration.finished:
                self._finished(int(request))
        for number, tokens in report.answers.items():
            self.answers[int(number)] = tokens

    def _forget(self, name: GroupId) -> None:
        """What a process that died had done for requests it never answered is gone."""
        numbers = np.array([r for group, r in self.lost if group == name], np.int64)
        arrays = self.state.arrays
        unanswered = numbers[np.isnan(arrays.finished_s[numbers])]
        arrival_s = arrays.arrival_s[unanswered]
        forget(arrays, unanswered)
        arrays.arrival_s[unanswered] = arrival_s
        arrays.preemptions[unanswered] += 1

    def _note(self, name: GroupId, iteration: Iteration) -> None:
        arrays, account = self.state.arrays, self.accounts[name]
        for request in iteration.decision.evict:
            arrays.preemptions[request] += 1
            arrays.evicted_s[request] = iteration.start_s
            arrays.kv[request] = 0
        self.recorder.decided("schedule", iteration.decided_s - iteration.start_s)
        seconds = iteration.end_s - iteration.start_s
        account.busy_s.append((iteration.scheduled_s, iteration.computed_s))
        account.rows.append(self._row(iteration))
        for request, tokens in iteration.batch.tokens.items():
            if np.isnan(arrays.started_s[request]):
                arrays.started_s[request] = iteration.start_s
            elif not np.isnan(arrays.evicted_s[request]):
                arrays.preempted_s[request] += iteration.start_s - arrays.evicted_s[request]
                arrays.evicted_s[request] = np.nan
            arrays.kv[request] += tokens
            arrays.gpu_s[request] += seconds
            if request in iteration.prompts:
                arrays.prefill_s[request] += seconds
            made = iteration.made.get(request, 0)
            if made and arrays.generated[request] == 0:
                arrays.first_token_s[request] = iteration.end_s
            arrays.generated[request] += made
        for request in iteration.finished:
            arrays.finished_s[request] = iteration.end_s
            arrays.kv[request] = 0

    def _row(self, iteration: Iteration) -> tuple[float, ...]:
        """The iteration as a row of the log."""
        kv = self.state.arrays.kv
        tokens = iteration.batch.tokens
        chunks = [(int(kv[r]), n) for r, n in tokens.items() if r in iteration.prompts]
        contexts = [int(kv[r]) + 1 for r in tokens if r not in iteration.prompts]
        total = sum(n for _, n in chunks)
        return (
            iteration.start_s,
            iteration.end_s - iteration.start_s,
            1,
            len(chunks),
            total,
            total,
            sum(n * (2.0 * (held + n) - n) for held, n in chunks),
            len(contexts),
            sum(contexts),
            max(contexts, default=0),
        )

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
        for name, iteration in self.iterations:
            if iteration is None:
                self._forget(name)
            else:
                self._note(name, iteration)
        for group in self.deployment.groups:
            account = self.accounts[group.id]
            if self.sampler is None:
                self.recorder.intervals(group, GpuUse.BUSY, np.array(account.busy_s, np.float64))
            rows = pd.DataFrame(account.rows, columns=list(LOG_COLUMNS))
            self.recorder.iterations(group, rows)
        if self.sampler is not None:
            self._write_sampled(self.sampler)
        self.recorder.requests = self._frame()

    def _write_sampled(self, sampler: Sampler) -> None:
        """Busy intervals of each GPU as its driver counts them."""
        spans = sampler.stop()
        for group in self.deployment.groups:
            for gpu in group.gpus:
                self.recorder.intervals(replace(group, gpus=(gpu,)), GpuUse.BUSY, spans[int(gpu)])

    def _frame(self) -> pd.DataFrame:
        """One row per request; `lag_s` is how late the client handed it over."""
        return request_frame(self.workload, self.state.arrays).assign(lag_s=self.lag_s)
