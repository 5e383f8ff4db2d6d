"""One group on real vLLM: engines in this process that are stepped by its owner."""

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from harness.config.scratch import temporary_files
from harness.engines.ask import counts_of
from harness.engines.told_keys import Heard
from harness.engines.vllm.carried import extra_args_of
from harness.engines.vllm.processor import native_dtype
from harness.engines.vllm.served import ServedGroup
from harness.engines.vllm.shared_blocks import equal_blocks, ledger_of
from harness.engines.vllm.shared_buffer import BLOCK_BY_BLOCK, one_buffer
from harness.engines.vllm.step import Iteration
from harness.interface.entities import (
    Group,
    LengthPrediction,
    Request,
    RequestId,
    Service,
    ServiceId,
)
from harness.interface.events import Event
from harness.interface.policies import SchedulingPolicy

from vllm import SamplingParams  # isort: skip
from vllm import __version__ as vllm_version  # isort: skip
from vllm.engine.arg_utils import EngineArgs  # isort: skip
from vllm.sampling_params import RequestOutputKind  # isort: skip
from vllm.v1.engine.llm_engine import LLMEngine  # isort: skip
from vllm.v1.executor import Executor  # isort: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How a vLLM engine is built. `model` is a folder or a name; None leaves a choice open.

    As `dtype` it is what this machine computes fastest, else vLLM's own. Without a `scheduler` of
    ours vLLM's own may schedule a step while the one before it is computed (`asynchronous`).
    """

    model: str
    load_format: str
    dtype: str | None
    max_context_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int | None
    block_tokens: int | None
    prefix_caching: bool
    eager: bool
    tensor_parallel: int
    scheduler: type | None
    asynchronous: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    """A request to be served: what policies may know, its prompt, and the length forced on it.

    `output_tokens` is None where the model ends its answer itself. A request that comes in again
    has `produced` tokens of its answer already: they are computed with the prompt. One that has
    `moved` was in another group, or in this one before.
    """

    facts: Request
    prompt: Sequence[int]
    output_tokens: int | None
    produced: Sequence[int] = ()
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """What a group has done since it was asked last; new tokens are there if they are kept.

    `counts` are what its policy has counted meanwhile.
    """

    iterations: tuple[Iteration, ...]
    events: tuple[Event, ...]
    answers: dict[RequestId, list[int]]
    counts: Counter[str] = field(default_factory=Counter)


@contextmanager
def without_lazy_library() -> Iterator[None]:
    """Hide a module from vLLM's walk over all modules.

    On a CPU vLLM 0.32 takes `vars()` of whatever it finds in any module, and the LLVM binding below
    numba answers that with an object that is no dictionary.
    """
    hidden = sys.modules.pop("llvmlite.binding.ffi", None)
    try:
        yield
    finally:
        if hidden is not None:
            sys.modules["llvmlite.binding.ffi"] = hidden


_alive: "WeakKeyDictionary[Any, Any]" = WeakKeyDictionary()
"""Engines of this process, each with the buffer of its KV, or None where that is its own.

They share what vLLM sets up for torch's process groups.
"""


def new_engines(
    settings: Sequence[EngineSettings], loaded: Iterable[tuple[EngineSettings, Any]] = ()
) -> tuple[Any, ...]:
    """vLLM engines in this process; where there are several, their KV is in one buffer.

    Blocks have as many tokens as make their bytes equal, at least `block_tokens`. Of engines that
    are `loaded` and idle, the ones that fit are taken and the others stopped. ValueError where
    blocks would have too many tokens.
    """
    configs = [_config(each) for each in settings]
    if len(settings) == 1:
        (engine,) = _taken(settings, [configs[0].cache_config.block_size], loaded)
        return (engine or _new_engine(configs[0]),)
    block_tokens = equal_blocks(
        [_kv_bytes_per_token(config) for config in configs],
        [each.model for each in settings],
        least_tokens=configs[0].cache_config.block_size,
    )
    engines = _taken(settings, block_tokens, loaded)
    with one_buffer(next((_alive[e] for e in engines if e is not None), None)) as one:
        for place, (each, tokens) in enumerate(zip(settings, block_tokens, strict=True)):
            if engines[place] is None:
                config = _config(replace(each, block_tokens=tokens))
                config.cache_config.kv_cache_layout = BLOCK_BY_BLOCK
                engines[place] = _new_engine(config)
                _alive[engines[place]] = one.buffer
    return tuple(engines)


def _taken(
    settings: Sequence[EngineSettings],
    block_tokens: Sequence[int],
    loaded: Iterable[tuple[EngineSettings, Any]],
) -> list[Any]:
    """For each of the settings an engine that is loaded, or None; the rest of these stop."""
    spare, taken = list(loaded), list[Any]()
    for each, tokens in zip(settings, block_tokens, strict=True):
        fits = [
            place
            for place, (other, engine) in enumerate(spare)
            if other == each
            and scheduler_of(engine).block_size == tokens
            and (len(settings) == 1 or _alive[engine] is not None)
        ]
        taken.append(spare.pop(fits[0])[1] if fits else None)
    for _, engine in spare:
        _stop(engine)
    return taken


def _kv_bytes_per_token(config: Any) -> int:
    """Keys and values of a token in all layers, of a shard."""
    model, shards = config.model_config, config.parallel_config
    heads = model.get_num_layers(shards) * model.get_num_kv_heads(shards)
    return int(2 * heads * model.get_head_size() * model.dtype.itemsize)


def _config(settings: EngineSettings) -> Any:
    """The configuration of a vLLM engine."""
    more: dict[str, Any] = {}
    if settings.kv_blocks is not None:
        # One block stands for "none" and is never given out.
        more["num_gpu_blocks_override"] = settings.kv_blocks + 1
        more["kv_cache_memory_bytes"] = 1 << 30
    if settings.block_tokens is not None:
        more["block_size"] = settings.block_tokens
    if settings.scheduler is not None:
        more["scheduler_cls"] = settings.scheduler
    return EngineArgs(
        model=settings.model,
        load_format=settings.load_format,
        skip_tokenizer_init=True,
        enforce_eager=settings.eager,
        max_model_len=settings.max_context_tokens,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        dtype=settings.dtype or native_dtype(),
        enable_prefix_caching=settings.prefix_caching,
        async_scheduling=settings.asynchronous,
        tensor_parallel_size=settings.tensor_parallel,
        disable_log_stats=True,
        **more,
    ).create_engine_config()


def _new_engine(config: Any) -> Any:
    with without_lazy_library(), temporary_files():
        engine = LLMEngine(
            vllm_config=config,
            executor_class=Executor.get_class(config),
            log_stats=False,
            multiprocess_mode=False,
        )
    _alive[engine] = None
    return engine


def scheduler_of(engine: Any) -> Any:
    """The scheduler inside an engine of this process."""
    return engine.engine_core.engine_core.scheduler


Resolved: TypeAlias = Mapping[ServiceId, Mapping[str, Any]]
"""By service, how vLLM has resolved the configuration of its engine, and its KV blocks."""


def resolved(engine: Any) -> dict[str, Any]:
    """What vLLM made of the settings of an engine, of all that its seconds and KV follow from."""
    config = engine.vllm_config
    compiled, scheduled, scheduler = (
        config.compilation_config,
        config.scheduler_config,
        scheduler_of(engine),
    )
    return {
        "vllm": vllm_version,
        "model": Path(config.model_config.model).name,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "max_context_tokens": int(config.model_config.max_model_len),
        "max_num_seqs": int(scheduled.max_num_seqs),
        "max_num_batched_tokens": int(scheduled.max_num_batched_tokens),
        "asynchronous": bool(scheduled.async_scheduling),
        "tensor_parallel": int(config.parallel_config.tensor_parallel_size),
        "block_tokens": int(scheduler.block_size),
        "kv_bytes_per_token": int(scheduler.kv_bytes_per_token),
        "prefix_caching": bool(config.cache_config.enable_prefix_caching),
        "eager": bool(config.model_config.enforce_eager),
        "compilation": str(compiled.mode),
        "graphs": str(compiled.cudagraph_mode),
        "largest_graph_tokens": int(compiled.max_cudagraph_capture_size or 0),
    }


@dataclass(slots=True)
class VllmGroup:
    """The engines of its services, in order of names, and what they have done since asked."""

    engines: tuple[Any, ...]
    keep_answers: bool
    settings: tuple[EngineSettings, ...]
    served: ServedGroup = field(init=False)
    by_service: dict[ServiceId, Any] = field(default_factory=dict)
    iterations: list[Iteration] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    answers: dict[RequestId, list[int]] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)

    def use(
        self,
        policy: SchedulingPolicy,
        *,
        group: Group,
        services: Sequence[Service],
        clock: Callable[[], float] = time.monotonic,
        heard: Heard | None = None,
    ) -> None:
        """Decide by this policy from now on; no request may be unanswered. Times are of `clock`.

        The services are in the order of the engines. `heard` is shared with the other groups of
        this policy object.

        Raises ValueError where the policy needs what vLLM does not offer.
        """
        self.answers.clear()
        self.by_service = {s.id: e for s, e in zip(services, self.engines, strict=True)}
        schedulers = {name: scheduler_of(engine) for name, engine in self.by_service.items()}
        first = self._scheduler
        self.served = ServedGroup(
            policy=policy,
            group=group,
            services={service.id: service for service in services},
            kv=ledger_of(schedulers, services),
            max_num_seqs=first.max_num_running_reqs,
            max_num_batched_tokens=first.max_num_scheduled_tokens,
            tell=self.events.append,
            heard=heard,
        )
        first.attach_with(schedulers, self.served, clock=clock, on_iteration=self.iterations.append)
        self.counted = self._counts()

    def _counts(self) -> Counter[str]:
        """What its policy has counted so far."""
        return Counter(counts_of(self.served.policy, self.served.heard.promotions))

    @property
    def _scheduler(self) -> Any:
        """The scheduler of the first service, whose KV blocks are those of all."""
        return scheduler_of(self.engines[0])

    @property
    def kv_blocks(self) -> int:
        """Blocks that requests may hold."""
        return int(self._scheduler.kv_blocks)

    @property
    def block_tokens(self) -> int:
        """Tokens of a block of the first service."""
        return int(self._scheduler.block_size)

    def kv_tokens(self, service: ServiceId) -> int:
        """Tokens for which a service has KV where no other has any."""
        return self.kv_blocks * int(scheduler_of(self.by_service[service]).block_size)

    @property
    def resolved(self) -> Resolved:
        """How vLLM has resolved the configuration of the engine of each service, and its KV."""
        return {
            service: resolved(engine) | {"kv_blocks": self.kv_blocks}
            for service, engine in self.by_service.items()
        }

    @property
    def group(self) -> Group:
        """Its services and GPUs."""
        return self.served.group

    @property
    def has_work(self) -> bool:
        """Whether a request is unanswered."""
        return any(engine.has_unfinished_requests() for engine in self.engines)

    @property
    def unanswered(self) -> Collection[RequestId]:
        """Requests that it has been given and has not finished."""
        return self.served.requests

    @property
    def wake_s(self) -> float | None:
        """Until when nothing will run unless something happens; None where something runs."""
        return self.served.wake_s

    def submit(self, submissions: Sequence[Submission]) -> None:
        """Requests come in. Greedy, so that a request's tokens depend on nothing but its prompt."""
        for submission in submissions:
            forced = submission.output_tokens
            facts = submission.facts
            self.by_service[facts.service].add_request(
                str(facts.id),
                {"prompt_token_ids": [*submission.prompt, *submission.produced]},
                SamplingParams(
                    max_tokens=(forced or facts.max_output_tokens) - len(submission.produced),
                    ignore_eos=forced is not None,
                    detokenize=False,
                    temperature=0.0,
                    output_kind=RequestOutputKind.DELTA,
                    extra_args=extra_args_of(facts, moved=submission.moved),
                ),
            )

    def predict(self, request: RequestId, length: LengthPrediction) -> None:
        """A length prediction is ready."""
        self._scheduler.predict(request, length)

    def hear(self, events: Sequence[Event]) -> None:
        """What has happened in groups whose policy is not the same object."""
        for event in events:
            self.served.hear(event)

    def step(self) -> None:
        """Compute one iteration of the service that the policy has chosen."""
        turn = self._scheduler.decide()
        (engine,) = (engine for engine in self.engines if scheduler_of(engine) is turn)
        for output in engine.step():
            if self.keep_answers:
                tokens = self.answers.setdefault(RequestId(int(output.request_id)), [])
                tokens.extend(output.outputs[0].token_ids)

    def report(self) -> Report:
        """What has been done since the last report."""
        counts = self._counts()
        more = counts.copy()
        more.subtract(self.counted)
        self.counted = counts
        made = Report(tuple(self.iterations), tuple(self.events), dict(self.answers), more)
        for kept in (self.iterations, self.events, self.answers):
            kept.clear()
        return made

    def withdraw(self, *, everything: bool) -> tuple[RequestId, ...]:
        """Give up all requests, or the ones that hold no KV yet; returns their ids.

        Between two iterations. They may come in again elsewhere, with the tokens they have.
        """
        requests = self.served.requests
        gone = {r: view for r, view in requests.items() if everything or not view.kv_tokens}
        for service, engine in self.by_service.items():
            own = [str(r) for r, view in gone.items() if view.facts.service == service]
            if own:
                engine.abort_request(own)
        return tuple(gone)

    def change(self, settings: tuple[EngineSettings, ...]) -> None:
        """Load engines of these settings, then `use` them; every request must be answered."""
        self.engines = new_engines(settings, zip(self.settings, self.engines, strict=True))
        self.settings = settings

    def stop(self) -> None:
        """Free the engines' memory; what all engines of this process share goes with the last."""
        for engine in self.engines:
            _stop(engine)


def _stop(engine: Any) -> None:
    _alive.pop(engine, None)
    core = engine.engine_core
    if not _alive:
        core.shutdown()
        return
    # All that vLLM's own shutdown does but tear down the process groups.
    core.engine_core.model_executor.shutdown()
    core.engine_core.scheduler.shutdown()
    gc.unfreeze()
