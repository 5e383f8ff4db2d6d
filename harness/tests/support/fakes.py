"""Hand-made views for tests: a group of requests whose state a test sets directly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.core.kv_ledger import KvLedger
from harness.engines.live import table_of
from harness.interface.decisions import Batch, Decision, Reservation
from harness.interface.entities import (
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
from harness.interface.policies import Capability
from harness.interface.tables import RequestTable
from harness.interface.views import GroupView, RequestView

CHAT = ServiceId("chat")
CODE = ServiceId("code")
ALL = frozenset(Capability)
"""Supported by an engine that can do everything."""


def a_service(name: ServiceId = CHAT, *, kv_bytes_per_token: int = 1) -> Service:
    """A service whose KV of one token is one byte, so that bytes read as tokens."""
    return Service(name, kv_bytes_per_token, max_context_tokens=4096)


def a_request(number: int, *, service: ServiceId = CHAT, prompt_tokens: int = 16) -> Request:
    """Facts of a request that arrived at second `number`."""
    return Request(
        id=RequestId(number),
        service=service,
        app=AppId(number),
        tenant=TenantId("t"),
        arrival_s=float(number),
        prompt_tokens=prompt_tokens,
        max_output_tokens=100,
    )


@dataclass
class FakeRequest:
    """A request in the state given; `context_tokens` includes what it generated."""

    facts: Request
    kv_tokens: int = 0
    generated_tokens: int = 0
    swapped_tokens: int = 0
    gpu_s: float = 0.0
    is_running: bool = False
    predicted: LengthPrediction | None = None
    reservation: Reservation | None = None

    @property
    def context_tokens(self) -> int:
        """Prompt plus tokens generated so far."""
        return self.facts.prompt_tokens + self.generated_tokens


@dataclass
class FakeGroup:
    """One group whose ledger holds what its requests say they hold."""

    kv: KvLedger
    group: Group
    services: Mapping[ServiceId, Service]
    requests: Mapping[RequestId, RequestView]
    now_s: float = 10.0
    max_num_seqs: int = 1000
    max_num_batched_tokens: int = 1_000_000
    in_flight: tuple[Batch, ...] = ()
    free_share: float = 1.0
    free_host_bytes: int = 1_000_000_000

    @property
    def used_host_bytes(self) -> int:
        """What its requests say."""
        return sum(
            row.swapped_tokens * self.kv.services[row.facts.service].kv_bytes_per_token
            for row in self.requests.values()
        )

    @property
    def table(self) -> RequestTable:
        """The requests as columns, ascending by id."""
        rows = [self.requests[name] for name in sorted(self.requests)]
        return table_of(rows, self.services)


@dataclass
class FakeScene:
    """Builds a group from requests written as (prompt, held) token pairs, ids from 1.

    `capacity_blocks` are of services with one byte of KV per token, as all have by default.
    """

    capacity_blocks: int
    block_tokens: int = 16
    services: tuple[ServiceId, ...] = (CHAT,)
    kv_bytes_per_token: dict[ServiceId, int] = field(default_factory=dict)
    requests: dict[RequestId, FakeRequest] = field(default_factory=dict)

    def add(
        self,
        prompt_tokens: int,
        kv_tokens: int = 0,
        *,
        service: ServiceId = CHAT,
        generated: int = 0,
    ) -> FakeRequest:
        """One more request, with the next id."""
        number = len(self.requests) + 1
        facts = a_request(number, service=service, prompt_tokens=prompt_tokens)
        request = FakeRequest(facts, kv_tokens=kv_tokens, generated_tokens=generated)
        self.requests[facts.id] = request
        return request

    def decoding(self, kv_tokens: int, *, service: ServiceId = CHAT) -> FakeRequest:
        """One more request that holds all its context but the token generated last."""
        return self.add(kv_tokens, kv_tokens, service=service, generated=1)

    def view(self) -> FakeGroup:
        """The group as a policy sees it."""
        size = {name: self.kv_bytes_per_token.get(name, 1) for name in self.services}
        services = {name: a_service(name, kv_bytes_per_token=size[name]) for name in size}
        kv = KvLedger(
            capacity_bytes=self.capacity_blocks * self.block_tokens,
            services=services,
            block_tokens=self.block_tokens,
        )
        for request in self.requests.values():
            kv.open(request.facts)
            kv.grow(request.facts.id, request.kv_tokens)
            if request.reservation is not None:
                kv.reserve(request.facts.id, request.reservation)
        group = Group(GroupId("g"), frozenset(services), (GpuId(0),))
        return FakeGroup(kv, group, services, dict(self.requests))


def by_id(view: FakeGroup) -> list[RequestView]:
    """Every request that is not running, in order of id."""
    return [
        view.requests[name] for name in sorted(view.requests) if not view.requests[name].is_running
    ]


def launched(decision: Decision) -> dict[int, int]:
    """Request number -> tokens, over all batches of the decision."""
    return {name: tokens for batch in decision.launch for name, tokens in batch.tokens.items()}


def numbers(requests: Sequence[RequestView]) -> list[int]:
    """Ids of requests, in order."""
    return [request.facts.id for request in requests]


def as_group_view(group: FakeGroup) -> GroupView:
    """The fake is a GroupView: this line fails the type check when it no longer is."""
    return group
