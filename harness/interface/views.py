"""Read-only windows on live engine state. Both engines implement them; policies only read."""

from collections.abc import Mapping
from typing import Protocol

from harness.interface.decisions import Batch, Deployment, Reservation
from harness.interface.entities import (
    Cluster,
    Content,
    Group,
    GroupId,
    LengthPrediction,
    Request,
    RequestId,
    Service,
    ServiceId,
)
from harness.interface.graph import Edges
from harness.interface.tables import CallTable, Floats, RequestTable


class RequestView(Protocol):
    """One unfinished request."""

    @property
    def facts(self) -> Request:
        """What was known at arrival."""

    @property
    def predicted(self) -> LengthPrediction | None:
        """None until a prediction is ready."""

    @property
    def context_tokens(self) -> int:
        """Prompt plus tokens generated so far."""

    @property
    def generated_tokens(self) -> int:
        """Output tokens so far."""

    @property
    def kv_tokens(self) -> int:
        """Tokens whose KV is on the GPU now; 0 before the first chunk and after preemption."""

    @property
    def swapped_tokens(self) -> int:
        """Tokens whose KV is in host memory."""

    @property
    def reservation(self) -> Reservation | None:
        """KV promised to it."""

    @property
    def gpu_s(self) -> float:
        """GPU time attained: sum over its iterations of duration x gpu_share."""

    @property
    def is_running(self) -> bool:
        """In a batch in flight now."""


def missing_tokens(request: RequestView) -> int:
    """Tokens of its context that have no KV, neither on the GPU nor in host memory."""
    return request.context_tokens - request.kv_tokens - request.swapped_tokens


class KvView(Protocol):
    """KV held and promised on one group, in blocks of tokens; `Draft` tries changes of it."""

    @property
    def caches(self) -> bool:
        """Whether KV outlives its request for others to use."""

    @property
    def capacity_bytes(self) -> int:
        """What all services share."""

    @property
    def services(self) -> Mapping[ServiceId, Service]:
        """Services whose KV is counted here."""

    @property
    def block_tokens(self) -> int:
        """Tokens of one block; 0 where those of services differ."""

    def tokens_of_block(self, service: ServiceId | None) -> int:
        """Tokens of one block of this service. ValueError where none is given."""

    def block_bytes(self, service: ServiceId) -> int:
        """Bytes of one block of this service."""

    def blocks(self, tokens: int, service: ServiceId | None = None) -> int:
        """Whole blocks that hold `tokens`; of a service, which counts where blocks differ."""

    def capacity_blocks(self, service: ServiceId) -> int:
        """Blocks of this service that would fit if nothing was held."""

    def free_blocks(self, service: ServiceId) -> int:
        """Blocks of this service neither held nor promised; negative when over capacity."""

    def own_blocks(self, request: RequestId) -> int:
        """Blocks that this request holds and no other does: its preemption frees them."""

    def cached_tokens(self, request: RequestId) -> int:
        """Tokens of its context whose KV a request that holds none finds here when it begins."""

    def beginning(self, request: RequestId, blocks: int) -> list[Content]:
        """Names of the first full blocks of the context of a request that holds none.

        At most so many; none where nothing is cached. Two contexts begin alike as far as these are
        equal.
        """


class GroupView(Protocol):
    """What one scheduling decision may see."""

    @property
    def now_s(self) -> float:
        """Time of the decision."""

    @property
    def group(self) -> Group:
        """GPUs and services."""

    @property
    def services(self) -> Mapping[ServiceId, Service]:
        """Facts of the services loaded here."""

    @property
    def kv(self) -> KvView:
        """KV held and promised here."""

    @property
    def free_host_bytes(self) -> int:
        """Room for the KV of preempted requests in host memory; none where nothing is swapped."""

    @property
    def used_host_bytes(self) -> int:
        """KV of its requests that is there."""

    @property
    def max_num_seqs(self) -> int:
        """Requests that may run at the same time."""

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens that one iteration may compute."""

    @property
    def requests(self) -> Mapping[RequestId, RequestView]:
        """Every unfinished request dispatched here, oldest first."""

    @property
    def table(self) -> RequestTable:
        """The same requests as columns."""

    @property
    def in_flight(self) -> tuple[Batch, ...]:
        """Batches being computed."""

    @property
    def free_share(self) -> float:
        """Shares of the SMs that batches in flight leave; above 1 where SMs may be given twice."""


class ClusterView(Protocol):
    """What dispatch, placement and prewarming may see."""

    @property
    def now_s(self) -> float:
        """Time of the decision."""

    @property
    def cluster(self) -> Cluster:
        """GPUs and NVLink islands."""

    @property
    def services(self) -> Mapping[ServiceId, Service]:
        """Every service of the run."""

    @property
    def deployment(self) -> Deployment:
        """What is loaded or being loaded."""

    @property
    def groups(self) -> Mapping[GroupId, GroupView]:
        """Live groups of the deployment."""

    @property
    def backlog(self) -> Mapping[ServiceId, int]:
        """Unfinished requests per service, without the calls that are yet to come."""

    def unfinished(self, service: ServiceId) -> RequestTable:
        """Unfinished requests of a service that have arrived, wherever they are."""

    def arrived_after(self, since_s: float) -> tuple[RequestTable, Floats]:
        """Requests of all services that have arrived after a time, answered or not.

        With them the seconds at which they were answered, NaN of those that are not. Of one that is
        answered `generated_tokens` are those of its answer.
        """

    def prompt_blocks(self, request: RequestId, block_tokens: int) -> list[Content]:
        """Names of the full blocks of a prompt, from its first.

        Two prompts begin alike as far as these are equal. ValueError for a request that has not
        arrived.
        """

    def to_come(self, service: ServiceId) -> CallTable:
        """Calls of a service that will arrive when others have been answered."""

    @property
    def edges(self) -> Edges:
        """Pairs of calls of which the parent is not answered yet."""
