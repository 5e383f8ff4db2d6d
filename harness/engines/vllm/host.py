"""The process of a group: an actor of Ray, with an engine that a thread of its own steps."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

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
DEAD_S = 1.0  # how often a waiting caller looks whether the engine has stopped


T = TypeVar("T")


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
    """The process of one group: one thread owns the engines, others pass it what is asked.

    It is asked in the order of the numbers, from 0, whatever order the calls come in.
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

    def _pass(self, number: int, call: Callable[[], Any]) -> Future[Any]:
        """Have it done by the thread of the engine, in its turn; what it will answer."""
        answer: Future[Any] = Future()
        self._asked.put(number, (call, answer))
        return answer

    def _ask(self, number: int, call: Callable[[], Any]) -> Any:
        """What the thread of the engine answers. Raises what stopped the engine, if so."""
        answer = self._pass(number, call)
        while True:
            if self._failure is not None:
                raise self._failure
            with suppress(TimeoutError):
                return answer.result(timeout=DEAD_S)

    def begin(self, number: int, epoch_s: float) -> None:
        """Count seconds from here (`time.monotonic`, one clock for all processes)."""

        def begin() -> None:
            self._epoch_s = epoch_s

        self._pass(number, begin)

    def submit(self, number: int, submissions: Sequence[Submission]) -> None:
        """Requests come in."""
        self._pass(number, lambda: self._served.submit(submissions))

    def predict(self, number: int, request: RequestId, length: LengthPrediction) -> None:
        """A length prediction is ready."""
        self._pass(number, lambda: self._served.predict(request, length))

    def hear(self, number: int, events: Sequence[Event]) -> None:
        """What has happened elsewhere."""
        self._pass(number, lambda: self._served.hear(events))

    def change(
        self,
        number: int,
        settings: tuple[EngineSettings, ...],
        group: Group,
        services: Sequence[Service],
    ) -> Resolved:
        """Serve these services from now on; answers as `loaded` when their engines have loaded."""

        def change() -> Resolved:
            self._served.change(settings)
            self._served.use(self._policy, group=group, services=services, clock=self._clock)
            return self._served.resolved

        resolved: Resolved = self._ask(number, change)
        return resolved

    def report(self, number: int) -> Report:
        """What has been done since the last report."""
        report: Report = self._ask(number, self._served.report)
        return report

    def withdraw(self, number: int, everything: bool) -> tuple[tuple[RequestId, ...], Report]:
        """Give up requests; their ids, and what has been done since the last report."""

        def withdraw() -> tuple[tuple[RequestId, ...], Report]:
            gone = self._served.withdraw(everything=everything)
            return gone, self._served.report()

        given_up: tuple[tuple[RequestId, ...], Report] = self._ask(number, withdraw)
        return given_up
