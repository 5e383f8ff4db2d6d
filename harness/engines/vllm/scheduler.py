"""vLLM's scheduler, deciding as a policy does.

In a server: `vllm serve MODEL --scheduler-cls harness.engines.vllm.scheduler.PolicyScheduler
--no-async-scheduling` with SCHEDULER_POLICY=FILE, a YAML file as in scenarios/policy. In process:
build an engine with this class (VLLM_ENABLE_V1_MULTIPROCESSING=0), take its scheduler and `attach`.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from multiprocessing import current_process
from typing import Any

from harness.config.engine_limits import LIMITS
from harness.core.draft import ran_before
from harness.engines.recorder import use_of
from harness.engines.vllm.carried import carried, own_facts, predicted_tokens, seen_facts
from harness.engines.vllm.planned_scheduler import PlannedBatchScheduler
from harness.engines.vllm.policy_file import POLICY_FILE, policy_of
from harness.engines.vllm.served import ServedGroup
from harness.engines.vllm.shared_blocks import ledger_of
from harness.engines.vllm.step import Iteration
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
from harness.interface.policies import SchedulingPolicy

# After ours, whose import says what is missing where vLLM is.
from vllm.v1.core.sched.interface import PauseState  # isort: skip
from vllm.v1.request import RequestStatus  # isort: skip


def _unkept(iteration: Iteration) -> None:
    """For a scheduler whose steps are not timed."""


class PolicyScheduler(PlannedBatchScheduler):
    """vLLM's scheduler under a policy; see the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As vLLM builds it; takes the policy that SCHEDULER_POLICY names, if set.

        Raises ValueError for settings under which the decided batch would not be the one computed.
        """
        super().__init__(*args, **kwargs)
        self.served: ServedGroup | None = None
        self._requests: dict[RequestId, Any] = {}
        # Come in, but not yet ready to run (a grammar is being compiled): no policy knows of them.
        self._unready: list[Any] = []
        self._aborted: set[RequestId] = set()
        # Preempted from outside since the last step: vLLM's next output names them.
        self._lost: set[str] = set()
        self._under_way: Iteration | None = None
        # Tokens that each of its requests had generated before it; None where all decode.
        self._generated: Mapping[RequestId, int] | None = None
        # Running requests when it began.
        self._ran = 0
        self._clock: Callable[[], float] = time.perf_counter
        self._on_iteration: Callable[[Iteration], None] = _unkept
        self._knows_facts = False
        self.decided = Decision()
        # What `decide` has left for the next `schedule`, with the times before and after.
        self._next: tuple[Decision, float, float] | None = None
        # The schedulers of the group, by service: this one, and the ones that share its blocks.
        self._peers: Mapping[ServiceId, PolicyScheduler] = {}
        self._served_before = 0
        if path := os.environ.get(POLICY_FILE):
            most = self.max_num_running_reqs, self.max_num_scheduled_tokens
            self.attach(policy=policy_of(path, dict(zip(LIMITS, most, strict=True))))
        elif current_process().name.startswith("EngineCore"):
            # vLLM has given the engine a process of its own, where none can be attached later.
            self._who_decides()

    def attach(
        self,
        *,
        policy: SchedulingPolicy,
        group: Group | None = None,
        service: Service | None = None,
        clock: Callable[[], float] = time.perf_counter,
        on_iteration: Callable[[Iteration], None] = _unkept,
    ) -> None:
        """Decide by this policy from now on.

        A group given means that the requests carry the facts of the project's own (see
        `extra_args_of`); else they are what a server knows. Raises ValueError where the policy
        needs what vLLM does not offer.
        """
        name = ServiceId(str(self.vllm_config.model_config.model))
        service = service or Service(name, self.kv_bytes_per_token, self.max_model_len)
        served = ServedGroup(
            policy=policy,
            group=group or Group(GroupId("server"), frozenset({service.id}), (GpuId(0),)),
            services={service.id: service},
            kv=ledger_of({service.id: self}, [service]),
            max_num_seqs=self.max_num_running_reqs,
            max_num_batched_tokens=self.max_num_scheduled_tokens,
        )
        self.attach_with({service.id: self}, served, clock=clock, on_iteration=on_iteration)
        self._knows_facts = group is not None

    def attach_with(
        self,
        peers: Mapping[ServiceId, "PolicyScheduler"],
        served: ServedGroup,
        *,
        clock: Callable[[], float],
        on_iteration: Callable[[Iteration], None] = _unkept,
    ) -> None:
        """Decide as `served` for the schedulers of all services of a group, this one included.

        They share the KV blocks of this one, which the ledger of `served` counts; `decide` says
        whose turn it is.
        """
        for service, peer in peers.items():
            if peer is not self:
                peer.share_blocks(self)
            peer.served, peer._peers, peer._service = served, peers, service
            peer._clock, peer._on_iteration, peer._knows_facts = clock, on_iteration, True
            peer.knows_cached = served.kv.caches

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

    def _open(self, request: Any) -> None:
        """A request can run: the policy hears of it."""
        served = self._who_decides()
        known, service = carried(request.sampling_params), self._service
        facts = own_facts(known, service) if self._knows_facts else self._seen(request, service)
        self._requests[facts.id] = request
        served.now_s = self._clock()
        served.open(facts, request, moved=self._knows_facts and known["moved"])
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
        """Open the requests that have become ready, forget the ones that have gone."""
        waiting = [request for request in self._unready if not request.is_finished()]
        ready = [request for request in waiting if self.is_ready(request)]
        self._unready = [request for request in waiting if request not in ready]
        for request in ready:
            self._open(request)

    def decide(self) -> "PolicyScheduler":
        """Ask the policy; returns the scheduler of the group whose next `schedule` is its batch."""
        served, turn = self._who_decides(), self
        for peer in self._peers.values():
            if peer._unready:
                peer._open_ready()
        start_s = self._clock()
        decision = served.decide(start_s)
        if len(self._peers) > 1 and served.requests:
            first = next(iter(served.requests.values())).facts.service
            turn = self._peers[decision.launch[0].service if decision.launch else first]
        turn._next = decision, start_s, self._clock()
        return turn

    def schedule(self, *args: Any) -> Any:
        """Schedule exactly the batch of the policy, which may have been asked. See vLLM's own."""
        served = self._who_decides()
        if self.pause_state != PauseState.UNPAUSED:
            return self.schedule_planned({}, args)
        if self._next is None:
            self.decide()
        assert self._next is not None  # A group of several services is asked before.
        (decision, start_s, decided_s), self._next = self._next, None
        if decision is self.decided and decision.launch and self.runs_as_planned:
            output = self.schedule_again(args)
            served.launch(decision)
            self._begin(served, start_s, decided_s, all_decode=True)
            return output
        tokens = dict(decision.launch[0].tokens) if decision.launch else {}
        late = self._preempt_decided(served, decision)
        preempted, self._lost = self._lost, set()
        held = {r: self._requests[r].num_computed_tokens for r in tokens}
        planned = {self._requests[r].request_id: n for r, n in tokens.items()}
        output = self.schedule_planned(planned, args, late)
        self.verify(output, preempted)
        if self.caches and tokens and not self.knows_cached:
            # The ledger counts a cached prefix as held by every request that uses it.
            gained = {r: self._requests[r].num_computed_tokens - kv for r, kv in held.items()}
            if gained != tokens:
                decision = replace(decision, launch=(replace(decision.launch[0], tokens=gained),))
        served.launch(decision)
        if self.knows_cached:
            self._refuse_other_hits(served, tokens)
        self.decided = decision
        served.wake_s = None if tokens else decision.wake_s
        self._under_way = None
        if tokens:
            self._begin(served, start_s, decided_s, all_decode=False)
        return output

    def _preempt_decided(self, served: ServedGroup, decision: Decision) -> list[tuple[int, Any]]:
        """Preempt what was decided; where hits depend on the order, the rest is preempted later."""
        late, before = [], ran_before(decision)
        for request in decision.preempt:
            peer = self._peers[served.requests[request].facts.service]
            if self.knows_cached and before[request]:
                late.append((before[request], peer._requests[request]))
            else:
                peer.preempt(peer._requests[request])
            peer._lost.add(peer._requests[request].request_id)
        return late

    def _refuse_other_hits(self, served: ServedGroup, tokens: Iterable[RequestId]) -> None:
        """Raise RuntimeError where vLLM has found more or less cached than was decided by."""
        for request in tokens:
            has, decided = self._requests[request].num_computed_tokens, served.kv.holding(request)
            if has != decided:
                raise RuntimeError(
                    f"vLLM computes or finds {has} tokens of r{request}, the policy {decided}: vLLM"
                    " gives blocks to holders of KV before newcomers, and so should a batch"
                )

    def _begin(
        self, served: ServedGroup, start_s: float, decided_s: float, *, all_decode: bool
    ) -> None:
        """The batch of the last decision is under way."""
        (batch,) = self.decided.launch
        prompts, self._generated, self._ran = frozenset[RequestId](), None, len(self.running)
        if not all_decode:
            self._generated = {r: self._requests[r].num_output_tokens for r in batch.tokens}
            prompts = self._prompts(served, batch)
        self._under_way = Iteration(
            # Without its draft, which sees the group as it changes: steps go to other processes.
            decision=replace(self.decided, draft=None),
            batch=batch,
            prompts=prompts,
            use=use_of(served, batch.service, batch.tokens),
            start_s=start_s,
            decided_s=decided_s,
            scheduled_s=self._clock(),
        )

    def _prompts(self, served: ServedGroup, batch: Batch) -> frozenset[RequestId]:
        """Requests of a batch that do not decode; the engine counts the batch as computed."""
        requests, views = self._requests, served.requests
        return frozenset(
            r
            for r, n in batch.tokens.items()
            if n > 1
            or requests[r].num_computed_tokens < requests[r].num_tokens
            or requests[r].num_computed_tokens <= views[r].facts.prompt_tokens
        )

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Account for a step. See vLLM's own."""
        computed_s = self._clock()
        result = super().update_from_output(scheduler_output, model_runner_output)
        if self._under_way is not None:
            self._end(self._under_way, computed_s)
        return result

    def _end(self, step: Iteration, computed_s: float) -> None:
        """Tell of a step that is over, and of the requests that it ended."""
        served, requests, self._under_way = self._who_decides(), self._requests, None
        step.computed_s, step.end_s = computed_s, self._clock()
        step.made = step.batch.tokens
        if self._generated is not None:
            generated = self._generated.items()
            step.made = {
                r: requests[r].num_output_tokens - before
                for r, before in generated
                if r in requests
            }
        served.end(step.batch, step.start_s, computed_s, step.made)
        # Those that are answered have left the running ones.
        if len(self.running) != self._ran:
            step.finished = tuple(
                r for r in step.batch.tokens if r in requests and requests[r].is_finished()
            )
        for request in step.finished:
            served.finish(request)
            del requests[request]
        served.outgrown(step.made)
        if self._aborted:
            self._close_aborted()
        self._on_iteration(step)

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        """Requests end from outside, for instance because a client has gone."""
        names = set(self.requests if request_ids is None else _names(request_ids))
        self._aborted |= {n for n, r in self._requests.items() if r.request_id in names}
        result = super().finish_requests(request_ids, finished_status)
        if self._under_way is None:
            self._close_aborted()
        return result

    def _close_aborted(self) -> None:
        """Between two iterations: requests that ended from outside hold nothing any more.

        The giver of the group's facts knows why; a server's policy is told that they have ended.
        """
        served = self._who_decides()
        for number in sorted(self._aborted & self._requests.keys()):
            if self._requests[number].is_finished():
                (served.close if self._knows_facts else served.finish)(number)
                del self._requests[number]
        self._aborted.clear()

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> bool:
        """Forget cached prefixes, and the KV of running requests if asked to. See vLLM's own."""
        held = {n: r for n, r in self._requests.items() if r.num_computed_tokens > 0}
        done: bool = super().reset_prefix_cache(*args, **kwargs)
        for number, request in held.items():
            if request.num_computed_tokens == 0:
                self._who_decides().lose(number)
                self._lost.add(request.request_id)
        return done


def _names(request_ids: str | Iterable[str]) -> Iterable[str]:
    return (request_ids,) if isinstance(request_ids, str) else request_ids
