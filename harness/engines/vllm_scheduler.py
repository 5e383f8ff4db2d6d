"""vLLM's scheduler, deciding as a policy does: the only file that touches vLLM's internals.

vLLM's own `schedule()` is kept; it is led to exactly the batch that was decided. Who is to run
stands in `running`, who is to be admitted is all that the waiting queue offers, who pauses is held
out of sight, and the size of each chunk comes from the hook that aligns chunks of hybrid models.

In a server: `vllm serve MODEL --scheduler-cls harness.engines.vllm_scheduler.PolicyScheduler
--no-async-scheduling` with SCHEDULER_POLICY=FILE, a YAML file as in scenarios/policy. In process:
build an engine with this class (VLLM_ENABLE_V1_MULTIPROCESSING=0), take its scheduler and `attach`.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from harness.decisions import Batch, Decision
from harness.engines.served import ServedGroup
from harness.entities import (
    AppId,
    GpuId,
    Group,
    GroupId,
    LengthPrediction,
    Request,
    RequestId,
    Service,
    ServiceId,
    TenantId,
)
from harness.events import Event
from harness.nodes import build
from harness.policies import SchedulingPolicy

try:
    from vllm.v1.core.sched.request_queue import RequestQueue
    from vllm.v1.core.sched.scheduler import Scheduler
except ImportError as error:
    raise ImportError(f"this engine needs vLLM ({error}): make setup-vllm") from None

POLICY_FILE = "SCHEDULER_POLICY"
"""Environment variable that names the policy of a server."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Iteration:
    """One step as it was timed, in seconds of the clock given.

    Decided between `start_s` and `decided_s`, scheduled by `scheduled_s`, computed by `computed_s`
    and accounted for by `end_s`. `prompts` are the requests that did not decode.
    """

    decision: Decision
    batch: Batch
    prompts: frozenset[RequestId]
    made: Mapping[RequestId, int]
    finished: tuple[RequestId, ...]
    start_s: float
    decided_s: float
    scheduled_s: float
    computed_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step under way."""

    decision: Decision
    batch: Batch
    prompts: frozenset[RequestId]
    before: Mapping[RequestId, int]
    start_s: float
    decided_s: float
    scheduled_s: float


class PlannedQueue(RequestQueue):  # type: ignore[misc]
    """All waiting requests; while a step is scheduled, only those that it admits, in order."""

    def __init__(self) -> None:
        self._waiting: dict[str, Any] = {}
        self._offered: list[Any] | None = None

    def offer(self, requests: list[Any]) -> None:
        """Show only these until `close`."""
        self._offered = requests[::-1]

    def close(self) -> None:
        """Show all again."""
        self._offered = None

    def add_request(self, request: Any) -> None:
        """One more."""
        self._waiting[request.request_id] = request

    prepend_request = add_request

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Several more."""
        for request in requests:
            self.add_request(request)

    def peek_request(self) -> Any:
        """The first one shown. IndexError if there is none."""
        if self._offered is not None:
            return self._offered[-1]
        if not self._waiting:
            raise IndexError("nobody waits")
        return next(iter(self._waiting.values()))

    def pop_request(self) -> Any:
        """Remove the first one shown."""
        request = self.peek_request()
        if self._offered is not None:
            self._offered.pop()
        return self._waiting.pop(request.request_id)

    def remove_request(self, request: Any) -> None:
        """Remove one."""
        del self._waiting[request.request_id]

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Remove those of them that wait."""
        for request in requests:
            self._waiting.pop(request.request_id, None)

    def __bool__(self) -> bool:
        return bool(self._waiting if self._offered is None else self._offered)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._waiting.values()))


def _nobody(event: Event) -> None:
    """Nobody listens."""


def _not_timed(iteration: Iteration) -> None:
    """Nobody keeps it."""


class PolicyScheduler(Scheduler):  # type: ignore[misc]
    """vLLM's scheduler under a policy; see the module."""

    running: list[Any]
    block_size: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As vLLM builds it; takes the policy that SCHEDULER_POLICY names, if set.

        Raises ValueError for settings under which the decided batch would not be the one computed.
        """
        super().__init__(*args, **kwargs)
        self._refuse_settings()
        self.waiting = PlannedQueue()
        self.served: ServedGroup | None = None
        self._requests: dict[RequestId, Any] = {}
        self._planned: dict[str, int] = {}
        self._flight: _Flight | None = None
        self._clock: Callable[[], float] = time.perf_counter
        self._on_iteration: Callable[[Iteration], None] = _not_timed
        self._knows_facts = False
        # When the policy wants to be asked again if nothing happens; None while a batch runs.
        self.wake_s: float | None = None
        self.decided = Decision()
        self._served_before = 0
        self._caches = bool(self.cache_config.enable_prefix_caching)
        self._fits_whole = bool(self.vllm_config.scheduler_config.scheduler_reserve_full_isl)
        if path := os.environ.get(POLICY_FILE):
            self.attach(policy=_policy_of(path))

    def _refuse_settings(self) -> None:
        config = self.scheduler_config
        if config.async_scheduling:
            raise ValueError("async_scheduling decides a step ahead: give --no-async-scheduling")
        if self.vllm_config.speculative_config is not None:
            raise ValueError("a policy counts one token per decode: no speculative decoding")
        if self.need_mamba_block_aligned_split:
            raise ValueError("this model aligns its chunks itself, so a policy cannot choose them")

    def attach(
        self,
        *,
        policy: SchedulingPolicy,
        group: Group | None = None,
        service: Service | None = None,
        tell: Callable[[Event], None] = _nobody,
        clock: Callable[[], float] = time.perf_counter,
        on_iteration: Callable[[Iteration], None] = _not_timed,
    ) -> None:
        """Decide by this policy from now on.

        A group given means that the requests carry the facts of the project's own (see
        `extra_args_of`); else they are what a server knows. Raises ValueError where the policy
        needs what vLLM does not offer.
        """
        self._knows_facts = group is not None
        name = ServiceId(str(self.vllm_config.model_config.model))
        service = service or Service(name, self._kv_bytes_per_token(), self.max_model_len)
        self._clock, self._on_iteration = clock, on_iteration
        self.served = ServedGroup(
            policy=policy,
            group=group or Group(GroupId("server"), frozenset({service.id}), (GpuId(0),)),
            service=service,
            # one block stands for "none" and is never given out
            kv_blocks=self.kv_cache_manager.block_pool.num_gpu_blocks - 1,
            block_tokens=self.block_size,
            max_batch_requests=self.max_num_running_reqs,
            max_batch_tokens=self.max_num_scheduled_tokens,
            tell=tell,
        )

    def _kv_bytes_per_token(self) -> int:
        groups = self.kv_cache_config.kv_cache_groups
        page: int = sum(len(g.layer_names) * g.kv_cache_spec.page_size_bytes for g in groups)
        return max(1, page // self.block_size)

    def predict(self, request: RequestId, length: LengthPrediction) -> None:
        """A length prediction is ready."""
        served = self._who_decides()
        served.now_s = self._clock()
        served.predict(request, length)

    def _who_decides(self) -> ServedGroup:
        if self.served is None:
            raise ValueError(f"no policy: set {POLICY_FILE} to a policy file, or attach one")
        return self.served

    def add_request(self, request: Any) -> None:
        """A request comes in."""
        served = self._who_decides()
        is_new = request.request_id not in self.requests
        super().add_request(request)
        if not is_new:
            return
        facts = self._facts(served, request)
        self._requests[facts.id] = request
        served.now_s = self._clock()
        served.open(facts, request)
        predicted = _field(_arguments(request), "predicted_tokens", int)
        if predicted is not None and predicted > 0:
            served.predict(facts.id, LengthPrediction((predicted,)))

    def _facts(self, served: ServedGroup, request: Any) -> Request:
        """What is known of a request; never the length it will be cut to."""
        known = _arguments(request)
        (service,) = served.services
        if self._knows_facts:
            number, arrival_s = known["id"], known["arrival_s"]
            prompt_tokens, longest = known["prompt_tokens"], known["max_output_tokens"]
        else:
            number, arrival_s = self._served_before, self._clock()
            prompt_tokens, longest = request.num_prompt_tokens, request.max_tokens
            self._served_before += 1
        app = _field(known, "app", int)
        return Request(
            id=RequestId(number),
            service=service,
            app=AppId(number if app is None else app),
            tenant=TenantId(_field(known, "tenant", str) or ""),
            arrival_s=arrival_s,
            prompt_tokens=prompt_tokens,
            max_output_tokens=longest,
            deadline_s=_field(known, "deadline_s", float),
            unit=_field(known, "unit", str) or "",
        )

    def schedule(self, *args: Any) -> Any:
        """Ask the policy and schedule exactly its batch. See vLLM's own."""
        served = self._who_decides()
        start_s = self._clock()
        decision = served.decide(start_s)
        decided_s = self._clock()
        tokens = dict(decision.launch[0].tokens) if decision.launch else {}
        evicted = {self._requests[r].request_id for r in decision.evict}
        for request in decision.evict:
            self._evict(self._requests[request])
        held = {r: self._requests[r].num_computed_tokens for r in tokens}
        planned = {self._requests[r].request_id: n for r, n in tokens.items()}
        output = self._schedule_planned(planned, args)
        self._verify(output, planned, evicted)
        if self._caches and tokens:
            # The ledger counts a cached prefix as held by everybody who uses it.
            gained = {r: self._requests[r].num_computed_tokens - kv for r, kv in held.items()}
            decision = replace(decision, launch=(replace(decision.launch[0], tokens=gained),))
        served.launch(decision)
        self.decided = decision
        self.wake_s = None if tokens else decision.wake_s
        self._flight = self._flown(served, decision, start_s, decided_s) if tokens else None
        return output

    def _flown(
        self, served: ServedGroup, decision: Decision, start_s: float, decided_s: float
    ) -> _Flight:
        """What is under way; vLLM has counted the batch as computed already."""
        (batch,) = decision.launch
        before = {r: self._requests[r].num_output_tokens for r in batch.tokens}
        prompts = frozenset(
            r
            for r, n in batch.tokens.items()
            if n > 1
            or self._requests[r].num_computed_tokens < self._requests[r].num_tokens
            or self._requests[r].num_computed_tokens <= served.requests[r].facts.prompt_tokens
        )
        return _Flight(decision, batch, prompts, before, start_s, decided_s, self._clock())

    def _evict(self, request: Any) -> None:
        """Drop a request's KV between two iterations; it may come back at once."""
        self.running.remove(request)
        self._preempt_request(request, time.monotonic())
        self.prev_step_scheduled_req_ids.discard(request.request_id)

    def _schedule_planned(self, planned: dict[str, int], args: tuple[Any, ...]) -> Any:
        """vLLM's own scheduling of these requests alone."""
        running: dict[str, Any] = {r.request_id: r for r in self.running}
        runs = [running[name] for name in planned if name in running]
        paused = [request for name, request in running.items() if name not in planned]
        self._planned = planned
        self.running = runs
        self.waiting.offer([self.requests[name] for name in planned if name not in running])
        self.need_mamba_block_aligned_split = True
        # Whether a prompt must fit whole is the policy's to say; the ledger has the last word.
        self.scheduler_reserve_full_isl = False
        try:
            return super().schedule(*args)
        finally:
            self.need_mamba_block_aligned_split = False
            self.scheduler_reserve_full_isl = self._fits_whole
            self.waiting.close()
            self.running = [*self.running, *paused]

    def _mamba_block_aligned_split(
        self, request: Any, num_new_tokens: int, num_new_local_computed_tokens: int = 0, *_: int
    ) -> int:
        """Tokens that the plan has for a request, less those that a cached prefix saves."""
        wanted = self._planned[request.request_id] - num_new_local_computed_tokens
        return min(num_new_tokens, max(1, wanted))

    def _verify(self, output: Any, planned: dict[str, int], evicted: set[str]) -> None:
        """Raise RuntimeError where vLLM has scheduled something else."""
        got = output.num_scheduled_tokens
        for name, tokens in planned.items():
            has = got.get(name, 0)
            if has != tokens and not (self._caches and 0 < has <= tokens):
                raise RuntimeError(f"vLLM runs {has} tokens of {name}, {tokens} were decided")
        if other := got.keys() - planned.keys():
            raise RuntimeError(f"vLLM runs {min(other)}, which was not decided")
        gone = set(output.preempted_req_ids or ())
        if other := gone - evicted:
            raise RuntimeError(f"vLLM preempts {min(other)}, which was not decided")
        # Older versions list only those that their own loop has preempted.
        output.preempted_req_ids = gone | evicted

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Account for a step. See vLLM's own."""
        computed_s = self._clock()
        result = super().update_from_output(scheduler_output, model_runner_output)
        if self._flight is not None:
            self._land(self._flight, computed_s)
        return result

    def _land(self, flight: _Flight, computed_s: float) -> None:
        """Tell of a step that is over, and of the requests that it ended."""
        served, end_s = self._who_decides(), self._clock()
        self._flight = None
        requests = {r: self._requests.get(r) for r in flight.batch.tokens}
        made = {
            r: request.num_output_tokens - flight.before[r]
            for r, request in requests.items()
            if request is not None
        }
        served.end(flight.batch, flight.start_s, computed_s, made)
        finished = tuple(
            r for r, request in requests.items() if request is not None and request.is_finished()
        )
        for request in finished:
            served.finish(request)
            del self._requests[request]
        self._on_iteration(
            Iteration(
                flight.decision,
                flight.batch,
                flight.prompts,
                made,
                finished,
                flight.start_s,
                flight.decided_s,
                flight.scheduled_s,
                computed_s,
                end_s,
            )
        )

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        """Requests end from outside, for instance because a client has gone."""
        result = super().finish_requests(request_ids, finished_status)
        if self._flight is None:
            for number, request in list(self._requests.items()):
                if request.is_finished():
                    self._who_decides().close(number)
                    del self._requests[number]
        return result


def extra_args_of(facts: Request) -> dict[str, object]:
    """Facts as sampling parameters carry them to the scheduler."""
    known = {
        "id": int(facts.id),
        "app": int(facts.app),
        "tenant": str(facts.tenant),
        "arrival_s": facts.arrival_s,
        "prompt_tokens": facts.prompt_tokens,
        "max_output_tokens": facts.max_output_tokens,
        "unit": facts.unit,
    }
    return known if facts.deadline_s is None else known | {"deadline_s": facts.deadline_s}


def _policy_of(path: str) -> SchedulingPolicy:
    """The policy of a file. Raises ValueError with the file's name."""
    try:
        node = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        policy: SchedulingPolicy = build(node)
        policy.schedule  # noqa: B018 - what is no policy is refused here, not at the first step
    except (OSError, yaml.YAMLError, TypeError, AttributeError, ImportError) as error:
        raise ValueError(f"{POLICY_FILE}={path} holds no policy: {error}") from error
    return policy


def _arguments(request: Any) -> Mapping[str, Any]:
    """What a request carries beside its parameters."""
    parameters = request.sampling_params
    return (parameters.extra_args if parameters else None) or {}


def _field(known: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    """A field of the kind asked for; anything else is left out with a warning."""
    value: object = known.get(name)
    if kind is float and isinstance(value, int):
        value = float(value)
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    _log.warning("%s=%r of a request is not a %s and is ignored", name, value, kind.__name__)
    return None
