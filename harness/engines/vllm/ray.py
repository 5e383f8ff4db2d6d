"""A group as a Ray actor in a placement group: a CPU slot or GPU per shard, a process of its own.

The actor steps its engine by itself; whoever owns the group sends requests and takes reports.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from harness.engines import own_ray
from harness.engines.vllm.group import EngineSettings, Report, Submission, VllmGroup, new_engine
from harness.interface.entities import Group, LengthPrediction, RequestId, Service
from harness.interface.events import Event
from harness.interface.policies import SchedulingPolicy
from harness.paths import ROOT
from harness.scratch import temporary_folder

POLL_S = 0.002
START_S = 300.0  # within which an engine must have loaded
DEAD_S = 1.0  # how often somebody who waits looks whether the engine has stopped

_EMPTY = Report((), (), {})


def _joined(first: Report, second: Report) -> Report:
    """Two reports of one group as one."""
    answers = {request: list(tokens) for request, tokens in first.answers.items()}
    for request, tokens in second.answers.items():
        answers.setdefault(request, []).extend(tokens)
    return Report(first.iterations + second.iterations, first.events + second.events, answers)


class GroupLost(RuntimeError):  # noqa: N818 - it says what has happened
    """The process of a group has died; the message names it."""


@contextmanager
def slots_of_ray(slots: int) -> Iterator[None]:
    """The cluster that was joined, or one of so many CPU slots which ends with this."""
    if ray.is_initialized():
        yield
        return
    with temporary_folder(own_ray.PREFIX) as folder:
        variables = {
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            # What engines leave in it goes with the cluster.
            "TMPDIR": str(folder),
        }
        try:
            own_ray.start_ray(slots, runtime_env={"env_vars": variables}, _temp_dir=str(folder))
            yield
        finally:
            ray.shutdown()


@ray.remote(max_concurrency=2, max_restarts=0)
class _Host:
    """The process of one group: one thread owns the engine, others pass it what is asked."""

    def __init__(
        self,
        settings: EngineSettings,
        keep_answers: bool,
        group: Group,
        service: Service,
        policy: SchedulingPolicy,
    ) -> None:
        self._epoch_s = time.monotonic()
        self._served = VllmGroup(new_engine(settings), keep_answers, settings)
        self._served.use(policy, group=group, service=service, clock=self._clock)
        self._asked: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._ends = threading.Event()
        self._failure: BaseException | None = None

    def _clock(self) -> float:
        return time.monotonic() - self._epoch_s

    def loaded(self) -> bool:
        """Answers when the engine has loaded."""
        return True

    def begin(self, epoch_s: float) -> None:
        """Count seconds from here (`time.monotonic`, one clock for all processes) and go."""
        self._epoch_s = epoch_s
        threading.Thread(target=self._loop, daemon=True).start()

    def _loop(self) -> None:
        try:
            while not self._ends.is_set():
                wake_s = self._served.wake_s
                if not self._served.has_work or (wake_s is not None and wake_s > self._clock()):
                    self._answer(POLL_S)
                    continue
                self._answer(0.0)
                if self._served.has_work:
                    self._served.step()
        except BaseException as error:
            self._failure = error

    def _answer(self, wait_s: float) -> None:
        """Do what is asked, between two iterations; wait so long for the first to ask."""
        with suppress(Empty):
            while True:
                call, answer = self._asked.get(timeout=wait_s) if wait_s else self._asked.get(False)
                wait_s = 0.0
                answer.set_result(call())

    def _ask(self, call: Callable[[], Any]) -> Any:
        """Have it done by the thread of the engine. Raises what stopped the engine, if so."""
        answer: Future[Any] = Future()
        self._asked.put((call, answer))
        while True:
            if self._failure is not None:
                raise self._failure
            with suppress(TimeoutError):
                return answer.result(timeout=DEAD_S)

    def submit(self, submissions: Sequence[Submission]) -> None:
        """Requests come in."""
        self._ask(lambda: self._served.submit(submissions))

    def predict(self, request: RequestId, length: LengthPrediction) -> None:
        """A length prediction is ready."""
        self._ask(lambda: self._served.predict(request, length))

    def hear(self, events: Sequence[Event]) -> None:
        """What has happened elsewhere; nobody waits until the thread of the engine has heard."""
        self._asked.put((lambda: self._served.hear(events), Future()))

    def report(self) -> Report:
        """What has been done since the last report."""
        report: Report = self._ask(self._served.report)
        return report

    def withdraw(self, everything: bool) -> tuple[tuple[RequestId, ...], Report]:
        """Give up requests; who they are, and what has been done since the last report."""

        def withdraw() -> tuple[tuple[RequestId, ...], Report]:
            gone = self._served.withdraw(everything=everything)
            return gone, self._served.report()

        given_up: tuple[tuple[RequestId, ...], Report] = self._ask(withdraw)
        return given_up


@dataclass(slots=True)
class RayGroup:
    """A group in another process. `unanswered` holds what it has been given and not finished."""

    group: Group
    settings: EngineSettings
    actor: Any
    place: Any
    unanswered: dict[RequestId, Submission] = field(default_factory=dict)
    next_report: Any = None
    latest: Report = _EMPTY
    loading: Any = None
    leaving: Any = None

    @classmethod
    def start(
        cls,
        settings: EngineSettings,
        *,
        group: Group,
        service: Service,
        policy: SchedulingPolicy,
        keep_answers: bool,
        on_gpus: bool,
    ) -> "RayGroup":
        """Ask for the slots of a group and start its process; `wait` until it has loaded."""
        shards = group.tensor_parallel
        # One bundle: an actor cannot take the slots of several, and its shards are its children.
        slots = {"CPU": float(shards)} | ({"GPU": float(shards)} if on_gpus else {})
        place = placement_group([slots], strategy="STRICT_PACK")
        strategy = PlacementGroupSchedulingStrategy(place, placement_group_capture_child_tasks=True)
        # The group has its own GPUs, not any that Ray finds free.
        devices = {
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, group.gpus)),
            "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
        }
        actor = _Host.options(  # type: ignore[attr-defined]
            num_cpus=shards,
            num_gpus=shards if on_gpus else 0,
            scheduling_strategy=strategy,
            runtime_env={"env_vars": devices} if on_gpus else {},
        ).remote(settings, keep_answers, group, service, policy)
        return cls(group, settings, actor, place, loading=actor.loaded.remote())

    def wait(self) -> None:
        """Until the engine has loaded.

        Raises GroupLost where its process dies, or no slot for it comes free, before that.
        """
        try:
            ray.get(self.loading, timeout=START_S)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
            raise GroupLost(f"{self.group.id} did not start: {error}") from None

    @property
    def has_loaded(self) -> bool:
        """Whether the engine has loaded. Raises GroupLost where its process has died."""
        if not ray.wait([self.loading], timeout=0)[0]:
            return False
        self.wait()
        return True

    def begin(self, epoch_s: float) -> None:
        """Count seconds from here and go."""
        self.actor.begin.remote(epoch_s)

    @property
    def has_work(self) -> bool:
        """Whether anybody is unanswered."""
        return bool(self.unanswered)

    @property
    def wake_s(self) -> float | None:
        """None: the actor wakes itself."""
        return None

    def submit(self, submissions: Sequence[Submission]) -> None:
        """Send requests."""
        self.unanswered.update({s.facts.id: s for s in submissions})
        self.actor.submit.remote(submissions)

    def predict(self, request: RequestId, length: LengthPrediction) -> None:
        """Send a prediction."""
        self.actor.predict.remote(request, length)

    def hear(self, events: Sequence[Event]) -> None:
        """Send what has happened elsewhere to this group's copy of the policy."""
        self.actor.hear.remote(events)

    def step(self) -> None:
        """Take the report that is under way, if it has come. GroupLost if the process died."""
        if self.next_report is None:
            self.next_report = self.actor.report.remote()
        ready, _ = ray.wait([self.next_report], timeout=POLL_S)
        if not ready:
            return
        self.next_report = None
        self.latest = _joined(self.latest, self._got(ready[0]))

    def _got(self, promised: Any) -> Any:
        """What the process has answered. GroupLost if it died."""
        try:
            return ray.get(promised)
        except ray.exceptions.RayActorError as error:
            waiting = len(self.unanswered)
            raise GroupLost(
                f"the process of {self.group.id} died with {waiting} requests unanswered: "
                f"{str(error).splitlines()[0]}"
            ) from None
        except ray.exceptions.RayTaskError as error:
            error.cause.add_note(str(error))  # where in the other process
            raise error.cause from None

    def report(self) -> Report:
        """The report taken by the last step."""
        report, self.latest = self.latest, _EMPTY
        for iteration in report.iterations:
            for request in iteration.finished:
                self.unanswered.pop(request, None)
        return report

    def leave(self, *, everything: bool) -> None:
        """Ask it to give up its requests, or those that hold no KV yet; see `left`."""
        self.leaving = self.actor.withdraw.remote(everything)

    def left(self) -> tuple[Submission, ...] | None:
        """Requests given up since `leave`, once they are; None before. GroupLost if it died.

        The last report of the group comes with them.
        """
        if not ray.wait([self.leaving], timeout=0)[0]:
            return None
        if self.next_report is not None:
            earlier = self._got(self.next_report)
            self.latest, self.next_report = _joined(self.latest, earlier), None
        gone, last = self._got(self.leaving)
        self.latest, self.leaving = _joined(self.latest, last), None
        return tuple(self.unanswered.pop(request) for request in gone)

    def stop(self) -> None:
        """End the process and give its slots back."""
        ray.kill(self.actor)
        remove_placement_group(self.place)
