"""The scheduler that vLLM builds from ours, with a fake runner. Needs vLLM."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.request import Request as EngineRequest

from harness.core.draft import Draft
from harness.engines.vllm import dry as vllm_dry
from harness.engines.vllm.carried import extra_args_of
from harness.engines.vllm.scheduler import PolicyScheduler
from harness.engines.vllm.step import Iteration
from harness.interface.decisions import Decision
from harness.interface.entities import (
    AppId,
    Request,
    RequestId,
    Service,
    TenantId,
)
from harness.interface.events import Arrived, Event, Finished, Iterated, Predicted
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView
from harness.tests.support.serving import SERVICE, a_group


@dataclass
class Ranked:
    """Runs requests in the order of `rank`, in chunks; `rank` may change at any time."""

    max_num_seqs: int = 2
    chunk: int = 1000
    rank: dict[int, int] = field(default_factory=dict)
    heard: list[Event] = field(default_factory=list)
    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset(
        {Arrived, Predicted, Iterated, Finished}
    )

    def observe(self, event: Event) -> None:
        """Keep it."""
        self.heard.append(event)

    def schedule(self, view: GroupView) -> Decision:
        """Best rank first; others pause and keep their KV."""
        draft = Draft(view)
        order = sorted(view.requests.values(), key=lambda r: self.rank.get(r.facts.id, 99))
        for request in order[: self.max_num_seqs]:
            missing = request.context_tokens - request.kv_tokens
            draft.try_run(request, min(missing, self.chunk, draft.tokens_left))
        return draft.decision()


@dataclass
class Bench:
    """A scheduler with a fake runner and a clock that goes a second per step."""

    policy: SchedulingPolicy
    blocks: int = 64
    caching: bool = False
    attached: bool = True
    now_s: float = 0.0
    kept: list[Iteration] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Build it."""
        self.scheduler = vllm_dry.new_scheduler(
            PolicyScheduler,
            kv_blocks=self.blocks,
            block_tokens=16,
            max_num_seqs=16,
            max_num_batched_tokens=256,
            max_context_tokens=4096,
            prefix_caching=self.caching,
        )
        self.scheduler.attach(
            policy=self.policy,
            group=a_group("m", 0) if self.attached else None,
            service=Service(SERVICE, 100, 4096),
            clock=lambda: self.now_s,
            on_iteration=self.kept.append,
        )
        self._hasher = get_request_block_hasher(16, sha256) if self.caching else None

    def add(self, number: int, prompt: int, output: int, **said: object) -> Any:
        """One more request."""
        facts = Request(
            RequestId(number), SERVICE, AppId(number), TenantId(""), self.now_s, prompt, output + 5
        )
        arguments = extra_args_of(facts) if self.attached else said
        request = EngineRequest(
            f"r{number}",
            list(range(prompt)),
            SamplingParams(max_tokens=output, ignore_eos=True, extra_args=arguments),
            None,
            block_hasher=self._hasher,
        )
        self.scheduler.add_request(request)
        return request

    def step(self) -> dict[str, int]:
        """Schedule and account for one iteration; tokens computed by name."""
        output = self.scheduler.schedule()
        self.now_s += 1.0
        vllm_dry.account_for(self.scheduler, output)
        computed: dict[str, int] = output.num_scheduled_tokens
        return computed

    def drain(self, most: int = 5000) -> list[dict[str, int]]:
        """Step until no request is left."""
        steps = []
        while self.scheduler.has_unfinished_requests():
            steps.append(self.step())
            assert len(steps) < most
        return steps
