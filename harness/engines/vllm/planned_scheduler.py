"""vLLM's scheduler, which runs exactly the batch of a plan.

vLLM's own `schedule()` is kept. Requests to run stand in `running`, requests to admit are all
that the waiting queue offers, paused ones are held out of sight, and the size of each chunk comes
from the hook that aligns chunks of hybrid models. This file and `scheduler.py` are the only ones
that touch vLLM's internals.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

try:
    from vllm.v1.core.sched.scheduler import Scheduler
except ImportError as error:
    raise ImportError(f"this engine needs vLLM ({error}): make setup-vllm") from None


READY_CHECK = next(
    (
        name
        for name in ("_handle_blocked_waiting_request", "_try_promote_blocked_waiting_request")
        if hasattr(Scheduler, name)
    ),
    "_handle_blocked_waiting_request",
)
"""What vLLM calls the check whether a request that was not ready is now: since 0.32, before."""


class PlannedBatchScheduler(Scheduler):  # type: ignore[misc]
    """Computes the batches of a plan; a subclass makes the plan."""

    running: list[Any]
    block_size: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As vLLM builds it.

        Raises ValueError for settings under which the decided batch would not be the one computed.
        """
        super().__init__(*args, **kwargs)
        self._refuse_settings()
        self.waiting = PlannedQueue()
        # What must stay free when a request is admitted is the policy's to say.
        self.kv_cache_manager.watermark_blocks = 0
        self._planned: dict[str, int] = {}
        self.caches = bool(self.cache_config.enable_prefix_caching)
        # Whether plans say what is computed beside what is cached, or how far a request gets.
        self.knows_cached = False
        self._late: list[tuple[int, Any]] = []
        self._scheduled = 0
        self._fits_whole = bool(self.vllm_config.scheduler_config.scheduler_reserve_full_isl)

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

    @property
    def kv_blocks(self) -> int:
        """Blocks that requests may hold: one stands for "none" and is never given out."""
        return int(self.kv_cache_manager.block_pool.num_gpu_blocks) - 1

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV of a token in all layers, of a shard."""
        groups = self.kv_cache_config.kv_cache_groups
        page: int = sum(len(g.layer_names) * g.kv_cache_spec.page_size_bytes for g in groups)
        return max(1, page // self.block_size)

    def share_blocks(self, other: "PlannedBatchScheduler") -> None:
        """Give out KV blocks of the pool of another scheduler, whose blocks have as many bytes.

        Neither may cache prefixes: equal tokens of two models are not equal KV.
        """
        pool, manager = other.kv_cache_manager.block_pool, self.kv_cache_manager
        manager.block_pool = manager.coordinator.block_pool = pool
        for kind in manager.coordinator.single_type_managers:
            kind.block_pool, kind._null_block = pool, pool.null_block

    def _enqueue_waiting_request(self, request: Any) -> None:
        """One queue for all: the requests that it shows are planned."""
        self.waiting.add_request(request)

    def is_ready(self, request: Any) -> bool:
        """Whether a request that could not run when it came now can."""
        return bool(getattr(self, READY_CHECK)(request))

    @property
    def runs_as_planned(self) -> bool:
        """Whether exactly the requests planned last run."""
        return len(self.running) == len(self._planned)

    def schedule_again(self, args: tuple[Any, ...]) -> Any:
        """The batch of the step before once more: `running` has it, each decodes, no other is.

        Left to itself vLLM does just that, so it needs no plan.
        """
        self.waiting.offer([])
        try:
            output = super().schedule(*args)
        finally:
            self.waiting.close()
        if output.num_scheduled_tokens != self._planned:
            self.verify(output, set())
        return output

    def preempt(self, request: Any) -> None:
        """Drop a request's KV between two iterations; it may come back at once."""
        self.running.remove(request)
        self._preempt_request(request, time.monotonic())
        self.prev_step_scheduled_req_ids.discard(request.request_id)

    def schedule_planned(
        self,
        planned: dict[str, int],
        args: tuple[Any, ...],
        late: Sequence[tuple[int, Any]] = (),
    ) -> Any:
        """vLLM's own scheduling of these requests alone.

        The `late` are preempted meanwhile, each when so many have been given their KV.
        """
        self._late, self._scheduled = list(late), 0
        running: dict[str, Any] = {r.request_id: r for r in self.running}
        runs = [running[name] for name in planned if name in running]
        gone = {request.request_id for _, request in late}
        paused = [r for name, r in running.items() if name not in planned and name not in gone]
        admitted = [self.requests[name] for name in planned if name not in running]
        guesses = self.caches and not self.knows_cached
        uncached = self._without_prefix(admitted, planned) if guesses else []
        self._planned = planned
        self.running = runs
        self.waiting.offer(admitted)
        self.need_mamba_block_aligned_split = True
        # Whether a prompt must fit whole is the policy's to say; the ledger has the last word.
        self.scheduler_reserve_full_isl = False
        try:
            output = super().schedule(*args)
            self._preempt_late(None)
            return output
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
        may reach further. A request that begins with its whole context is spared what is cached.
        """
        cut = [r for r in admitted if planned[r.request_id] < r.num_tokens]
        changed = [request for request in cut if not request.skip_reading_prefix_cache]
        for request in changed:
            request.skip_reading_prefix_cache = True
        return changed

    def _mamba_block_aligned_split(
        self, request: Any, num_new_tokens: int, num_new_local_computed_tokens: int = 0, *_: int
    ) -> int:
        """Tokens that the plan has for a request, less the tokens that a cached prefix saves."""
        self._preempt_late(self._scheduled)
        self._scheduled += 1
        spared = 0 if self.knows_cached else num_new_local_computed_tokens
        return self._planned[request.request_id] - spared

    def _preempt_late(self, scheduled: int | None) -> None:
        """Preempt the requests that are due after so many have their KV; None for all."""
        while self._late and (scheduled is None or self._late[0][0] <= scheduled):
            _, request = self._late.pop(0)
            self._preempt_request(request, time.monotonic())
            self.prev_step_scheduled_req_ids.discard(request.request_id)
            self.reset_preempted_req_ids.discard(request.request_id)

    def verify(self, output: Any, preempted: set[str]) -> None:
        """Raise RuntimeError where vLLM has scheduled something else."""
        got, planned = output.num_scheduled_tokens, self._planned
        for name, tokens in planned.items():
            has = got.get(name, 0)
            guesses = self.caches and not self.knows_cached
            if has != tokens and not (guesses and 0 < has <= tokens):
                raise RuntimeError(f"vLLM runs {has} tokens of {name}, {tokens} were decided")
        if other := got.keys() - planned.keys():
            raise RuntimeError(f"vLLM runs {min(other)}, which was not decided")
        gone = set(output.preempted_req_ids or ())
        if other := gone - preempted:
            raise RuntimeError(f"vLLM preempts {min(other)}, which was not decided")
        # Older versions list only requests that their own loop has preempted.
        output.preempted_req_ids = gone | preempted


class PlannedQueue:
    """All waiting requests; while a step is scheduled, only the ones that it admits, in order.

    Does what vLLM asks of a `RequestQueue`.
    """

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
            raise IndexError("no request waits")
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
