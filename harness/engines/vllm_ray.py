"""A group as a Ray actor in a placement group: one CPU slot or GPU per shard, a process of its own.

The actor steps its engine by itself; whoever owns the group sends requests and takes reports.
"""

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from harness.engines.vllm_group import EngineSettings, Report, Submission, VllmGroup, new_engine
from harness.entities import Group, LengthPrediction, RequestId, Service
from harness.policies import SchedulingPolicy
from harness.record import ROOT

POLL_S = 0.002
START_S = 300.0  # within which an engine must have loaded

_EMPTY = Report((), (), {})


class GroupLost(RuntimeError):  # noqa: N818 - it says what has happened
    """The process of a group has died; the message names it."""


def start_ray(slots: int) -> bool:
    """Join a cluster, or start one of so many CPU slots. False where one was joined already."""
    if ray.is_initialized():
        return False
    ray.init(
        num_cpus=slots,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={
            "env_vars": {
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            }
        },
    )
    return True


@ray.remote(max_concurrency=2, max_restarts=0)
class _Host:
    """The process of one group: one thread steps the engine, another answers calls."""

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
        self._lock = threading.Lock()
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
                    time.sleep(POLL_S)
                    continue
                with self._lock:
                    self._served.step()
        except BaseException as error:
            self._failure = error

    def submit(self, submissions: Sequence[Submission]) -> None:
        """Requests come in, between two iterations."""
        with self._lock:
            self._served.submit(submissions)

    def predict(self, request: RequestId, length: LengthPrediction) -> None:
        """A length prediction is ready."""
        with self._lock:
            self._served.predict(request, length)

    def report(self) -> Report:
        """What has been done since the last report. Raises what stopped the engine, if so."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            return self._served.report()

    def stop(self) -> None:
        """End the loop and free the engine."""
        self._ends.set()
        with self._lock:
            self._served.stop()


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
        slot = {"CPU": 1.0} | ({"GPU": 1.0} if on_gpus else {})
        place = placement_group([slot] * group.tensor_parallel, strategy="STRICT_PACK")
        strategy = PlacementGroupSchedulingStrategy(place, placement_group_capture_child_tasks=True)
        shards = group.tensor_parallel
        actor = _Host.options(  # type: ignore[attr-defined]
            num_cpus=shards, num_gpus=shards if on_gpus else 0, scheduling_strategy=strategy
        ).remote(settings, keep_answers, group, service, policy)
        return cls(group, settings, actor, place)

    def wait(self) -> None:
        """Until the engine has loaded.

        Raises GroupLost where its process dies, or no slot for it comes free, before that.
        """
        try:
            ray.get(self.actor.loaded.remote(), timeout=START_S)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
            raise GroupLost(f"{self.group.id} did not start: {error}") from None

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

    def step(self) -> None:
        """Take the report that is under way, if it has come. GroupLost if the process died."""
        if self.next_report is None:
            self.next_report = self.actor.report.remote()
        ready, _ = ray.wait([self.next_report], timeout=POLL_S)
        if not ready:
            return
        self.next_report = None
        try:
            self.latest = ray.get(ready[0])
        except ray.exceptions.RayActorError as error:
            waiting = len(self.unanswered)
            raise GroupLost(
                f"the process of {self.group.id} died with {waiting} requests unanswered: "
                f"{str(error).splitlines()[0]}"
            ) from None
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None

    def report(self) -> Report:
        """The report taken by the last step."""
        report, self.latest = self.latest, _EMPTY
        for iteration in report.iterations:
            for request in iteration.finished:
                self.unanswered.pop(request, None)
        return report

    def stop(self) -> None:
        """End the process and give its slots back."""
        ray.kill(self.actor)
        remove_placement_group(self.place)
