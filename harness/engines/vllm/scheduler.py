"""vLLM's scheduler, deciding as a policy does: the only file that touches vLLM's internals.

vLLM's own `schedule()` is kept; it is led to exactly the batch that was decided. Who is to run
stands in `running`, who is to be admitted is all that the waiting queue offers, who pauses is held
out of sight, and the size of each chunk comes from the hook that aligns chunks of hybrid models.

In a server: `vllm serve MODEL --scheduler-cls harness.engines.vllm.scheduler.PolicyScheduler
--no-async-scheduling` with SCHEDULER_POLICY=FILE, a YAML file as in scenarios/policy. In process:
build an engine with this class (VLLM_ENABLE_V1_MULTIPROCESSING=0), take its scheduler and `attach`.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from multiprocessing import current_process
from pathlib import Path
from typing import Any

import yaml

from harness.build import build
from harness.engines.vllm.carried import carried, own_facts, predicted_tokens, seen_facts
from harness.engines.vllm.planned_queue import PlannedQueue
from harness.engines.vllm.served import Iteration, ServedGroup
from harness.interface.decisions import Batch, Decision
from harness.interface.entities import (
    GpuId,
    Group,
    GroupId,
    LengthPrediction,
    Request,
    RequestId,
    Service,
    ServiceId,
)
from harness.interface.events import Event
from harness.interface.policies import SchedulingPolicy

try:
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.request import RequestStatus
except ImportError as error:
    raise ImportError(f"this engine needs vLLM ({error}): make setup-vllm") from None

POLICY_FILE = "SCHEDULER_POLICY"
"""Environment variable that names the policy of a server."""


_log = logging.getLogger(__name__)

_READIES = next(
    (
        name
        for name in ("_handle_blocked_waiting_request", "_try_promote_blocked_waiting_request")
        if hasattr(Scheduler, name)
    ),
    "_handle_blocked_waiting_request",
)
"""What vLLM calls the check whether a request that was not ready is now: since 0.32, before."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step under way. `before` has the tokens generated so far; None where all decode."""

    decision: Decision
    batch: Batch
    prompts: frozenset[RequestId]
    before: Mapping[RequestId, int] | None
    start_s: float
    decided_s: float
    scheduled_s: float
    running: int


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
        # What must stay free when a request is admitted is the policy's to say.
        self.kv_cache_manager.watermark_blocks = 0
        self.served: ServedGroup | None = None
        self._requests: dict[RequestId, Any] = {}
        # Come in, but not yet ready to run (a grammar is being compiled): no policy knows of them.
        self._unready: list[Any] = []
        self._aborted: set[RequestId] = set()
        # Preempted from outside since the last step: vLLM's next output names them.
        self._lost: set[str] = set()
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
        elif current_process().name.startswith("EngineCore"):
            # vLLM has given the engine a process of its own, where nobody could attach one later.
            self._who_decides()

    def _refuse_settings(self) -> None:
        config, settings = self.vllm_config, self.scheduler_config
        groups = len(self.kv_cache_config.kv_cache_groups)
        problems = {
            "async_scheduling decides a step ahead: give --no-async-scheduling": (
                settings.async_scheduling
            ),
            "a policy counts one token per decode: no speculative decoding": (
                config.speculative_config is not None
            ),
            "a policy chooses the chunks of a prompt: chunked prefill must be on": (
                not settings.enable_chunked_prefill
            ),
            "KV moves between engines without the policy: no KV or encoder connector": (
                self.connector is not None or self.ec_connector is not None
            ),
            "adapters would bound a batch without the policy: no LoRA": bool(self.lora_config),
            "several batches would be in flight: no pipeline parallelism": self.use_pp,
            "encoder inputs would bound a batch without the policy: text models only": (
                self.max_num_encoder_input_tokens > 0
            ),
            "this model aligns its chunks itself, so a policy cannot choose them": (
                self.need_mamba_block_aligned_split
            ),
            f"a policy counts KV of one kind, this model has {groups}": groups > 1,
        }
        for problem, is_so in problems.items():
            if is_so:
                raise ValueError(problem)

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
            max_num_seqs=self.max_num_running_reqs,
            max_num_batched_tokens=self.max_num_scheduled_tokens,
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
        is_new = request.request_id not in self.requests
        super().add_request(request)
        if is_new and request.status == RequestStatus.WAITING:
            self._open(request)
        elif is_new:
            self._unready.append(request)

    def _enqueue_waiting_request(self, request: Any) -> None:
        """One queue for all: whom it shows is planned."""
        self.waiting.add_request(request)

    def _open(self, request: Any) -> None:
        """A request can run: the policy hears of it."""
        served = self._who_decides()
        known, (service,) = carried(request.sampling_params), served.services
        facts = own_facts(known, service) if self._knows_facts else self._seen(request, service)
        self._requests[facts.id] = request
        served.now_s = self._clock()
        served.open(facts, request)
        if predicted := predicted_tokens(known, self.max_model_len):
            served.predict(facts.id, LengthPrediction((predicted,)))

    def _seen(self, request: Any, service: ServiceId) -> Request:
        """What a server knows of a request."""
        # vLLM stamps arrivals with the time of day.
        age_s = max(0.0, time.time() - request.arrival_time)
        number = RequestId(self._served_before)
        self._served_before += 1
        return seen_facts(
            carried(request.sampling_params),
            service,
            number=number,
            arrival_s=self._clock() - age_s,
            prompt_tokens=request.num_prompt_tokens,
            max_output_tokens=request.max_tokens,
        )

    def _open_ready(self) -> None:
        """Open the requests that have become ready, forget those that have gone."""
        waiting = [request for request in self._unready if not request.is_finished()]
        ready = [request for request in waiting if getattr(self, _READIES)(request)]
        self._unready = [request for request in waiting if request not in ready]
        for request in ready:
            self._open(request)

    def schedule(self, *args: Any) -> Any:
        """Ask the policy and schedule exactly its batch. See vLLM's own."""
        served = self._who_decides()
        if self._unready:
            self._open_ready()
        if self.pause_state != PauseState.UNPAUSED:
            return self._schedule_planned({}, args)
        start_s = self._clock()
        decision = served.decide(start_s)
        decided_s = self._clock()
        if decision is self.decided and decision.launch and len(self.running) == len(self._planned):
            return self._repeat(served, decision, args, start_s, decided_s)
        tokens = dict(decision.launch[0].tokens) if decision.launch else {}
        preempted = self._lost | {self._requests[r].request_id for r in decision.preempt}
        self._lost.clear()
        for request in decision.preempt:
            self._preempt(self._requests[request])
        held = {r: self._requests[r].num_computed_tokens for r in tokens}
        planned = {self._requests[r].request_id: n for r, n in tokens.items()}
        output = self._schedule_planned(planned, args)
        self._verify(output, planned, preempted)
        if self._caches and tokens:
            # The ledger counts a cached prefix as held by everybody who uses it.
            gained = {r: self._requests[r].num_computed_tokens - kv for r, kv in held.items()}
            if gained != tokens:
                decision = replace(decision, launch=(replace(decision.launch[0], tokens=gained),))
        served.launch(decision)
        self.decided = decision
        self.wake_s = None if tokens else decision.wake_s
        self._flight = self._flown(served, decision, start_s, decided_s) if tokens else None
        return output

    def _repeat(
        self,
        served: ServedGroup,
        decision: Decision,
        args: tuple[Any, ...],
        start_s: float,
        decided_s: float,
    ) -> Any:
        """The batch of the step before once more: `running` has it, each decodes, nobody else is.

        Left to itself vLLM does just that, so it need not be led.
        """
        self.waiting.offer([])
        try:
            output = super().schedule(*args)
        finally:
            self.waiting.close()
        if output.num_scheduled_tokens != self._planned:
            self._verify(output, self._planned, set())
        served.launch(decision)
        self._flight = _Flight(
            decision,
            decision.launch[0],
            frozenset(),
            None,
            start_s,
            decided_s,
            self._clock(),
            len(self.running),
        )
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
        return _Flight(
            decision,
            batch,
            prompts,
            before,
            start_s,
            decided_s,
            self._clock(),
            len(self.running),
        )

    def _preempt(self, request: Any) -> None:
        """Drop a request's KV between two iterations; it may come back at once."""
        self.running.remove(request)
        self._preempt_request(request, time.monotonic())
        self.prev_step_scheduled_req_ids.discard(request.request_id)

    def _schedule_planned(self, planned: dict[str, int], args: tuple[Any, ...]) -> Any:
        """vLLM's own scheduling of these requests alone."""
        running: dict[str, Any] = {r.request_id: r for r in self.running}
        runs = [running[name] for name in planned if name in running]
        paused = [request for name, request in running.items() if name not in planned]
        admitted = [self.requests[name] for name in planned if name not in running]
        uncached = self._without_prefix(admitted, planned) if self._caches else []
        self._planned = planned
        self.running = runs
        self.waiting.offer(admitted)
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
            for request in uncached:
                request.skip_reading_prefix_cache = False

    def _without_prefix(self, admitted: list[Any], planned: Mapping[str, int]) -> list[Any]:
        """Let requests that begin with a part of their prompt compute it, cached or not.

        What was decided is how far a request gets, and that much KV is counted; a cached prefix
        may reach further. Whoever begins with its whole context is spared what is cached.
        """
        cut = [r for r in admitted if planned[r.request_id] < r.num_tokens]
        changed = [request for request in cut if not request.skip_reading_prefix_cache]
        for request in changed:
            request.skip_reading_prefix_cache = True
        return changed

    def _mamba_block_aligned_split(
        self, request: Any, num_new_tokens: int, num_new_local_computed_tokens: int = 0, *_: int
    ) -> int:
        """Tokens that the plan has for a request, less those that a cached prefix saves."""
        return self._planned[request.request_id] - num_new_local_computed_tokens

    def _verify(self, output: Any, planned: dict[str, int], preempted: set[str]) -> None:
        """Raise RuntimeError where vLLM has scheduled something else."""
        got = output.num_scheduled_tokens
        for name, tokens in planned.items():
            has = got.get(name, 0)
            if has != tokens and not (self._caches and 0 < has <= tokens):
                raise RuntimeError(f"vLLM runs {has} tokens of {name}, {tokens} were decided")
        if other := got.keys() - planned.keys():
            raise RuntimeError(f"vLLM runs {min(other)}, which was not decided")
        gone = set(output.preempted_req_ids or ())
        if other := gone - preempted:
            raise RuntimeError(f"vLLM preempts {min(other)}, which was not decided")
        # Older versions list only those that their own loop has preempted.
        output.preempted_req_ids = gone | preempted

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
        made = self._made(flight)
        served.end(flight.batch, flight.start_s, computed_s, made)
        finished = self._finished(flight)
        for request in finished:
            served.finish(request)
            del self._requests[request]
        if self._aborted:
            self._close_aborted()
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

    def _made(self, flight: _Flight) -> Mapping[RequestId, int]:
        """Tokens that each request of a step has produced."""
        if flight.before is None:
            return flight.batch.tokens
        return {
            r: self._requests[r].num_output_tokens - before
            for r, before in flight.before.items()
            if r in self._requests
        }

    def _finished(self, flight: _Flight) -> tuple[RequestId, ...]:
        """Requests of a step that are answered; who is has left `running`."""
        if len(self.running) == flight.running:
            return ()
        requests = self._requests
        return tuple(r for r in flight.batch.tokens if r in requests and requests[r].is_finished())

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        """Requests end from outside, for instance because a client has gone."""
        names = set(self.requests if request_ids is None else _names(request_ids))
        self._aborted |= {n for n, r in self._requests.items() if r.request_id in names}
        result = super().finish_requests(request_ids, finished_status)
        if self._flight is None:
            self._close_aborted()
        return result

    def _close_aborted(self) -> None:
        """Between two iterations: requests that ended from outside hold nothing any more.

        Who gave the group's facts knows why; a server's policy is told that they have ended.
        """
        served = self._who_decides()
        for number in sorted(self._aborted & self._requests.keys()):
            if self._requests[number].is_finished():
                (served.close if self._knows_facts else served.finish)(number)
                del self._requests[number]
        self._aborted.clear()

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> bool:
        """Forget cached prefixes, and the KV of those that run if asked to. See vLLM's own."""
        held = {n: r for n, r in self._requests.items() if r.num_computed_tokens > 0}
        done: bool = super().reset_prefix_cache(*args, **kwargs)
        for number, request in held.items():
            if request.num_computed_tokens == 0:
                self._who_decides().lose(number)
                self._lost.add(request.request_id)
        return done


def _names(request_ids: str | Iterable[str]) -> Iterable[str]:
    return (request_ids,) if isinstance(request_ids, str) else request_ids


def _policy_of(path: str) -> SchedulingPolicy:
    """The policy of a file. Raises ValueError with the file's name."""
    try:
        node = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        policy: SchedulingPolicy = build(node)
        policy.schedule  # noqa: B018 - what is no policy is refused here, not at the first step
    except (OSError, yaml.YAMLError, TypeError, AttributeError, ImportError) as error:
        raise ValueError(f"{POLICY_FILE}={path} holds no policy: {error}") from error
    return policy
