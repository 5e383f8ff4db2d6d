"""vLLM's own scheduler and KV manager on the virtual clock: no weights, seconds from costs.

Arrivals, dispatch, deployments and times are the simulator's; what runs in an iteration is what
vLLM's scheduler says after it ran the policy's batch, and what is then finished is what vLLM has
counted. The simulator's own account is kept beside it, and any difference is an error.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from typing import Any, ClassVar

from harness.config import inputs
from harness.config.paths import ROOT
from harness.costs.model import TableCosts
from harness.engines.engine import Slots, refuse_seconds, refuse_unmet_needs
from harness.engines.recorder import Recorder
from harness.engines.simulator.deciding import TIMED
from harness.engines.simulator.flight import Flight
from harness.engines.simulator.group import LiveGroup, LiveRequest, tokens_left
from harness.engines.simulator.loop import Simulator, serve
from harness.engines.simulator.stepping import Stepper
from harness.engines.simulator.warm_up import warm_up
from harness.engines.vllm.carried import extra_args_of
from harness.engines.vllm.scheduler import PolicyScheduler
from harness.engines.vllm.served import ServedGroup
from harness.engines.vllm.shared_blocks import common_blocks
from harness.interface.decisions import Decision
from harness.interface.entities import Cluster, Request, RequestId, ServiceId
from harness.interface.events import Event
from harness.interface.policies import Capability, SchedulingPolicy, System
from harness.interface.views import GroupView
from harness.workloads.prefixes import Prefixes
from harness.workloads.workload import Workload

# After ours, whose import says what is missing where vLLM is.
import torch  # isort: skip
from vllm import SamplingParams  # isort: skip
from vllm import __version__ as vllm_version  # isort: skip
from vllm.engine.arg_utils import EngineArgs  # isort: skip
from vllm.utils.hashing import sha256  # isort: skip
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # isort: skip
from vllm.v1.kv_cache_interface import FullAttentionSpec  # isort: skip
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec  # isort: skip
from vllm.v1.outputs import ModelRunnerOutput  # isort: skip
from vllm.v1.request import Request as EngineRequest  # isort: skip
from vllm.v1.request import RequestStatus  # isort: skip
from vllm.v1.structured_output import StructuredOutputManager  # isort: skip

MODEL = ROOT / "scenarios" / "models" / "tiny"


class _EventlessPolicy:
    """A policy inside vLLM's scheduler whose events come from the simulator's loop."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, inner: SchedulingPolicy) -> None:
        self._inner = inner

    def schedule(self, view: GroupView) -> Decision:
        """As the policy does."""
        return self._inner.schedule(view)

    def observe(self, event: Event) -> None:
        """Nothing: the loop tells the policy itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmDry:
    """An engine: vLLM decides what fits, the cost model how long it takes."""

    cluster: Cluster
    costs: TableCosts
    max_num_seqs: int
    max_num_batched_tokens: int
    horizon_s: float | None = None
    charge_decisions: str | float = "none"
    loads_first: bool = False
    hand_over_s: float = 0.0
    prefix_caching: bool | None = False

    def __post_init__(self) -> None:
        refuse_seconds(self.horizon_s, self.hand_over_s)

    @property
    def supports(self) -> frozenset[Capability]:
        """Equal tokens of two models are not equal KV: no caching where services share it."""
        whole = {Capability.SHARED_GROUP, Capability.PROMISED_KV}
        return frozenset({Capability.REDEPLOY} | (set() if self.prefix_caching else whole))

    @property
    def about(self) -> str:
        """Its batches are vLLM's, its seconds come from the cost model."""
        return f"simulated, batches by the scheduler of vLLM {vllm_version}"

    @property
    def runs_alone(self) -> bool:
        """Its clock is virtual, but where the time of deciding is measured."""
        return self.charge_decisions in TIMED

    @property
    def slots(self) -> Slots:
        """One core."""
        return Slots(cpus=1, gpus=0)

    @property
    def computed_by(self) -> tuple[str, ...]:
        """What fills the batches."""
        return ("vllm", "torch")

    def files(self, services: Sequence[str]) -> Mapping[str, str]:
        """The model that stands for every other."""
        return inputs.digests(path for path in MODEL.iterdir() if path.is_file())

    def warm_up(self) -> None:
        """Load the kernel for placements that plan by simulating; batches here need none."""
        warm_up()

    def run(self, workload: Workload, system: System, recorder: Recorder) -> None:
        """Serve the workload on the virtual clock. See `Engine.run`."""
        refuse_unmet_needs(self, system)
        options = {option.name: getattr(self, option.name) for option in fields(self)}
        clockwork = Simulator(**options, fast_forward=False)
        stepper = partial(_DryStepper, engine=self, prefixes=Prefixes.of(workload))
        serve(clockwork, workload, system, recorder, stepper)


@dataclass(slots=True)
class _DryGroup:
    """A group's schedulers by service, what they decide by, and its requests in them.

    Its step under way is of the scheduler in `turn`.
    """

    live: LiveGroup
    schedulers: Mapping[ServiceId, PolicyScheduler]
    served: ServedGroup
    turn: PolicyScheduler
    known: dict[RequestId, Any] = field(default_factory=dict)
    output: Any = None


@dataclass(kw_only=True)
class _DryStepper(Stepper):
    """Asks through vLLM's scheduler, then does the rest as ever."""

    engine: VllmDry
    prefixes: Prefixes
    groups: dict[int, _DryGroup] = field(default_factory=dict)

    def ask(self, live: LiveGroup) -> None:
        """Let vLLM schedule an idle group's next iteration; nothing stands."""
        if live.in_flight:
            self.keep_told(live)
        if live.in_flight or not (live.members or live.inbox):
            return
        live.absorb()
        group = self.groups.get(id(live))
        # A group that is gone may have left its place in memory to this one.
        if group is None or group.live is not live:
            group = self._new_group(live)
        self._match(group, live)
        served = group.served
        if self.deciding.is_timed:
            served.look_again()
        live.told.predictions = len(self.state.predicted)
        group.turn = group.turn.decide()
        group.output = group.turn.schedule()
        self.recorder.decided("schedule", served.took_s)
        decided, pads = group.turn.decided, served.pads_prompts
        self.apply(live, decided, pads=pads, seconds=served.took_s)

    def _new_group(self, live: LiveGroup) -> _DryGroup:
        engine, kv = self.engine, live.kv
        kv_blocks = common_blocks(kv)
        schedulers = {
            name: new_scheduler(
                PolicyScheduler,
                kv_blocks=kv_blocks,
                block_tokens=kv.tokens_of_block(name),
                max_num_seqs=engine.max_num_seqs,
                max_num_batched_tokens=engine.max_num_batched_tokens,
                max_context_tokens=service.max_context_tokens,
                prefix_caching=kv.caches,
            )
            for name, service in live.services.items()
        }
        first = next(iter(schedulers.values()))
        served = ServedGroup(
            policy=_EventlessPolicy(self.policy),
            group=live.group,
            services=live.services,
            kv=kv.emptied(),
            max_num_seqs=first.max_num_running_reqs,
            max_num_batched_tokens=first.max_num_scheduled_tokens,
            heard=self.heard,
        )
        # Requests come, and keys are asked, also while an iteration is under way.
        served.told = live.told
        first.attach_with(schedulers, served, clock=lambda: self.state.now_s)
        self.groups[id(live)] = group = _DryGroup(live, schedulers, served, first)
        return group

    def _match(self, group: _DryGroup, live: LiveGroup) -> None:
        """Requests that have come, gone elsewhere, or have been predicted since the last step."""
        for request in [r for r in group.known if r not in live.members]:
            gone = group.known.pop(request)
            for scheduler in group.schedulers.values():
                if gone.request_id in scheduler.requests:
                    scheduler.finish_requests([gone.request_id], RequestStatus.FINISHED_ABORTED)
        for request, view in live.members.items():
            if request not in group.known:
                scheduler = group.schedulers[view.facts.service]
                group.known[request] = engine_request(
                    view.facts,
                    self.prefixes.token_owners(request, view.context_tokens),
                    tokens_left(view),
                    block_tokens=scheduler.block_size if scheduler.caches else None,
                )
                scheduler.add_request(group.known[request])
            known = group.served.requests[request].predicted
            if view.predicted is not None and view.predicted is not known:
                group.served.predict(request, view.predicted)

    def end(self, flight: Flight) -> bool:
        """An iteration is over: vLLM counts, and must have counted the same."""
        group, live = self.groups[id(flight.live)], flight.live
        if not self.is_under_way(flight):
            return False
        account_for(group.turn, group.output)
        ended = super().end(flight)
        live.refresh()
        for request in flight.batch.tokens:
            _compare(group.known[request], live.members.get(request))
            if request not in live.members:
                del group.known[request]
        return ended

    def note_ran(self, flight: Flight) -> None:
        """Nothing: what decides for vLLM has noted it, in the same keys."""


def _compare(counted: Any, view: LiveRequest | None) -> None:
    """Raise RuntimeError where vLLM's account of a request is not the simulator's."""
    ours = None if view is None else (view.context_tokens, view.kv_tokens)
    theirs = None if counted.is_finished() else (counted.num_tokens, counted.num_computed_tokens)
    if ours != theirs:
        raise RuntimeError(
            f"{counted.request_id}: (context, KV) tokens are {theirs} in vLLM, {ours} simulated"
        )


@cache
def _config(
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_context_tokens: int,
    prefix_caching: bool,
) -> Any:
    """Configuration of a vLLM engine of this size."""
    return EngineArgs(
        model=str(MODEL),
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=max_context_tokens,
        hf_overrides={"max_position_embeddings": max_context_tokens},
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        dtype="bfloat16",
        enable_prefix_caching=prefix_caching,
        async_scheduling=False,
    ).create_engine_config()


def new_scheduler(
    kind: Callable[..., Any],
    *,
    kv_blocks: int,
    block_tokens: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    max_context_tokens: int,
    prefix_caching: bool = False,
) -> Any:
    """A scheduler of vLLM, or of a class derived from it, with its KV manager and no worker."""
    if prefix_caching:
        init_none_hash(sha256)
    config = _config(max_num_seqs, max_num_batched_tokens, max_context_tokens, prefix_caching)
    # One block stands for "none" and is never given out.
    config.cache_config.num_gpu_blocks = kv_blocks + 1
    config.cache_config.block_size = block_tokens
    spec = FullAttentionSpec(
        block_size=block_tokens, num_kv_heads=1, head_size=64, dtype=torch.bfloat16
    )
    return kind(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=kv_blocks + 1,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=block_tokens,
        hash_block_size=block_tokens,
        log_stats=False,
    )


def engine_request(
    facts: Request, context: list[int], tokens_left: int, *, block_tokens: int | None = None
) -> EngineRequest:
    """A request as vLLM takes it; one that has moved here brings what it has generated.

    `context` are its tokens; full blocks of so many are named where prefixes are cached.
    """
    parameters = SamplingParams(
        max_tokens=tokens_left, ignore_eos=True, extra_args=extra_args_of(facts)
    )
    hasher = None if block_tokens is None else get_request_block_hasher(block_tokens, sha256)
    return EngineRequest(
        f"r{facts.id}",
        context,
        parameters,
        None,
        arrival_time=facts.arrival_s,
        block_hasher=hasher,
    )


def account_for(scheduler: Any, output: Any) -> None:
    """Give the scheduler a token for every request whose context has been computed: its own."""
    names = list(output.num_scheduled_tokens)
    requests = [scheduler.requests[name] for name in names]
    sampled = [
        [int(r.request_id[1:])] if r.num_computed_tokens >= r.num_tokens else [] for r in requests
    ]
    scheduler.update_from_output(
        output,
        ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: place for place, name in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        ),
    )
