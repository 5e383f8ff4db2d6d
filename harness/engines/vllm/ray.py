"""A group as a Ray actor in a placement group: a CPU slot or GPU per shard, a process of its own.

The actor (`Host`) steps its engine by itself; the owner of the group (`RayGroup`) sends requests
and takes reports. Ray calls an actor of several threads in any order, so what is sent to one is
numbered.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from harness.config.paths import ROOT
from harness.config.scratch import temporary_folder
from harness.engines import ray_session
from harness.engines.vllm.group import (
    EngineSettings,
    Report,
    Resolved,
    Submission,
    VllmGroup,
    new_engines,
)
from harness.interface.entities import Group, LengthPrediction, RequestId, Service
from harness.interface.events import Event
from harness.interface.policies import SchedulingPolicy

POLL_S = 0.002
START_S = 300.0  # within which an engine must have loaded
ANSWER_S = 600.0  # within which it must have ended an iteration
DEAD_S = 1.0  # how often a waiting caller looks whether the engine has stopped

T = TypeVar("T")

_EMPTY = Report((), (), {})


def _joined(first: Report, second: Report) -> Report:
    """Two reports of one group as one."""
    answers = {request: list(tokens) for request, tokens in first.answers.items()}
    for request, tokens in second.answers.items():
        answers.setdefault(request, []).extend(tokens)
    counts = first.counts.copy()
    counts.update(second.counts)
    iterations = first.iterations + second.iterations
    return Report(iterations, first.events + second.events, answers, counts)


class GroupLost(RuntimeError):  # noqa: N818 - it says what has happened
    """The process of a group has died; the message names it."""


@contextmanager
def slots_of_ray(slots: int) -> Iterator[None]:
    """The cluster that was joined, or one of so many CPU slots which ends with this."""
    import ray

    if ray.is_initialized():
        yield
        return
    with temporary_folder(ray_session.PREFIX) as folder:
        variables = {
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            # What engines leave in it goes with the cluster.
            "TMPDIR": str(folder),
        }
        try:
            ray_session.start_ray(slots, runtime_env={"env_vars": variables}, _temp_dir=str(folder))
            yield
        finally:
            ray.shutdown()


class InTurn(Generic[T]):
    """A queue from which things come in the order of their numbers, from 0, however they came."""

    def __init__(self) -> None:
        self._early: dict[int, T] = {}
        self._next, self._lock = 0, threading.Lock()
        self._ready: SimpleQueue[T] = SimpleQueue()

    def put(self, number: int, thing: T) -> None:
        """Keep it until all before it are there."""
        with self._lock:
            self._early[number] = thing
            while self._next in self._early:
                self._ready.put(self._early.pop(self._next))
                self._next += 1

    def get(self, wait_s: float) -> T:
        """The next one. Raises `Empty` where it does not come within this time."""
        return self._ready.get(timeout=wait_s) if wait_s else self._ready.get(False)


class Host:
    """The process of one group: one thread owns the engines, and calls methods as it is asked to.

    It is asked in the order of the numbers, from 0, whatever order the calls come in. The methods
    are those below, or else of `VllmGroup`.
    """

    def __init__(
        self,
        settings: tuple[EngineSettings, ...],
        keep_answers: bool,
        group: Group,
        services: Sequence[Service],
        policy: SchedulingPolicy,
    ) -> None:
        self._epoch_s = time.monotonic()
        self._served = VllmGroup(new_engines(settings), keep_answers, settings)
        self._policy = policy
        self._served.use(policy, group=group, services=services, clock=self._clock)
        self._asked = InTurn[tuple[Callable[[], Any], Future[Any]]]()
        self._failure: BaseException | None = None
        threading.Thread(target=self._loop, daemon=True).start()

    def _clock(self) -> float:
        return time.monotonic() - self._epoch_s

    def loaded(self) -> Resolved:
        """Answers when the engine has loaded: how it was configured."""
        return self._served.resolved

    def _loop(self) -> None:
        try:
            while True:
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
                call, answer = self._asked.get(wait_s)
                wait_s = 0.0
                answer.set_result(call())

    def tell(self, number: int, what: str, *about: Any) -> None:
        """Have a method called by the thread of the engine, in its turn."""
        self._pass(number, what, about)

    def ask(self, number: int, what: str, *about: Any) -> Any:
        """What the method returns. Raises what stopped the engine, if so."""
        answer = self._pass(number, what, about)
        while True:
            if self._failure is not None:
                raise self._failure
            with suppress(TimeoutError):
                return answer.result(timeout=DEAD_S)

    def _pass(self, number: int, what: str, about: Sequence[Any]) -> Future[Any]:
        method = getattr(self, what, None) or getattr(self._served, what)
        answer: Future[Any] = Future()
        self._asked.put(number, (partial(method, *about), answer))
        return answer

    def begin(self, epoch_s: float) -> None:
        """Count seconds from here (`time.monotonic`, one clock for all processes)."""
        self._epoch_s = epoch_s

    def change(
        self, settings: tuple[EngineSettings, ...], group: Group, services: Sequence[Service]
    ) -> Resolved:
        """Serve these services from now on; answers as `loaded` when their engines have loaded."""
        self._served.change(settings)
        self._served.use(self._policy, group=group, services=services, clock=self._clock)
        return self._served.resolved

    def withdraw(self, everything: bool) -> tuple[tuple[RequestId, ...], Report]:
        """Give up requests; their ids, and what has been done since the last report."""
        gone = self._served.withdraw(everything=everything)
        return gone, self._served.report()


@dataclass(slots=True, eq=False)
class RayGroup:
    """A group in another process. `unanswered` holds what it has been given and not finished.

    `leaving` has what it was asked to give up. Meanwhile no report is asked for: what has been done
    comes in its order.
    """

    group: Group
    actor: Any
    place: Any
    unanswered: dict[RequestId, Submission] = field(default_factory=dict)
    next_report: Any = None
    latest: Report = _EMPTY
    loading: Any = None
    leaving: list[Any] = field(default_factory=list)
    has_begun: bool = False
    sent: int = 0
    asked_s: float = 0.0

    @classmethod
    def start(
        cls,
        settings: tuple[EngineSettings, ...],
        *,
        group: Group,
        services: Sequence[Service],
        policy: SchedulingPolicy,
        keep_answers: bool,
        on_gpus: bool,
    ) -> "RayGroup":
        """Ask for the slots of a group and start its process; `wait` until it has loaded."""
        import ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

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
        # Two calls may wait for the thread of the engine, a report and leaving requests; all else
        # passes them.
        actor = (
            ray.remote(max_concurrency=3, max_restarts=0)(Host)
            .options(
                num_cpus=shards,
                num_gpus=shards if on_gpus else 0,
                scheduling_strategy=strategy,
                runtime_env={"env_vars": devices} if on_gpus else {},
            )
            .remote(settings, keep_answers, group, services, policy)
        )
        return cls(group, actor, place, loading=actor.loaded.remote())

    def wait(self) -> None:
        """Until the engine has loaded.

        Raises GroupLost where its process dies, or no slot for it comes free, before that.
        """
        import ray

        try:
            ray.get(self.loading, timeout=START_S)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
            raise GroupLost(f"{self.group.id} did not start: {error}") from None

    @property
    def has_loaded(self) -> bool:
        """Whether the engine has loaded. Raises GroupLost where its process has died."""
        import ray

        if not ray.wait([self.loading], timeout=0)[0]:
            return False
        self.wait()
        return True

    @property
    def resolved(self) -> Resolved:
        """How the engines that have loaded were configured."""
        import ray

        resolved: Resolved = ray.get(self.loading)
        return resolved

    def _tell(self, what: str, *about: Any) -> None:
        """Have the process call a method of `Host`, or of its group."""
        self.actor.tell.remote(self.sent, what, *about)
        self.sent += 1

    def _ask(self, what: str, *about: Any) -> Any:
        """The same; what the method will return, between two iterations."""
        self.asked_s = time.monotonic()
        promised = self.actor.ask.remote(self.sent, what, *about)
        self.sent += 1
        return promised

    def _has_come(self, promised: Any, wait_s: float) -> bool:
        """Whether it has answered. GroupLost where it should have for long."""
        import ray

        if ray.wait([promised], timeout=wait_s)[0]:
            return True
        if time.monotonic() - self.asked_s > ANSWER_S:
            raise GroupLost(f"the process of {self.group.id} has not answered for {ANSWER_S:g} s")
        return False

    def begin(self, epoch_s: float) -> None:
        """Count seconds from here."""
        self.has_begun = True
        self._tell("begin", epoch_s)

    @property
    def has_work(self) -> bool:
        """Whether a request is unanswered."""
        return bool(self.unanswered)

    @property
    def wake_s(self) -> float | None:
        """None: the actor wakes itself."""
        return None

    def submit(self, submissions: Sequence[Submission]) -> None:
        """Send requests."""
        self.unanswered.update({s.facts.id: s for s in submissions})
        self._tell("submit", submissions)

    def predict(self, request: RequestId, length: LengthPrediction) -> None:
        """Send a prediction."""
        self._tell("predict", request, length)

    def hear(self, events: Sequence[Event]) -> None:
        """Send what has happened elsewhere to this group's copy of the policy."""
        self._tell("hear", events)

    def step(self) -> None:
        """Take the report that is under way, if it has come. GroupLost if the process is lost."""
        if self.next_report is None and self.leaving:
            self._has_come(self.leaving[-1], POLL_S)
            return
        if self.next_report is None:
            self.next_report = self._ask("report")
        if not self._has_come(self.next_report, POLL_S):
            return
        promised, self.next_report = self.next_report, None
        self.latest = _joined(self.latest, self._got(promised))

    def _got(self, promised: Any) -> Any:
        """What the process has answered. GroupLost if it died."""
        import ray

        try:
            return ray.get(promised)
        except ray.exceptions.RayActorError as error:
            reason = str(error).splitlines()[0]
            raise GroupLost(f"the process of {self.group.id} died: {reason}") from None
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
        """Ask it to give up its requests, or the ones that hold no KV yet; see `left`."""
        self.leaving.append(self._ask("withdraw", everything))

    def left(self) -> tuple[Submission, ...] | None:
        """Requests given up since `leave`, once they are; None before. GroupLost if it died.

        The last report of the group comes with them.
        """
        if not self._has_come(self.leaving[-1], 0.0):
            return None
        if self.next_report is not None:
            earlier = self._got(self.next_report)
            self.latest, self.next_report = _joined(self.latest, earlier), None
        gone: list[RequestId] = []
        while self.leaving:
            given_up, last = self._got(self.leaving[0])
            self.latest = _joined(self.latest, last)
            gone += given_up
            del self.leaving[0]
        return tuple(self.unanswered.pop(request) for request in gone)

    def change(
        self, settings: tuple[EngineSettings, ...], *, group: Group, services: Sequence[Service]
    ) -> None:
        """Serve these services in the same process, which has no request left.

        Engines that fit stay loaded. It has loaded when all have.
        """
        self.group = group
        self.loading = self._ask("change", settings, group, services)

    def stop(self) -> None:
        """End the process and give its slots back."""
        import ray
        from ray.util.placement_group import remove_placement_group

        ray.kill(self.actor)
        remove_placement_group(self.place)
