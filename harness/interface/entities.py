"""Immutable facts. Nothing here changes after it is created.

Units are in the names: `_s` seconds, `_tokens` tokens, `_bytes` bytes.
"""

from dataclasses import dataclass
from typing import NewType

RequestId = NewType("RequestId", int)
AppId = NewType("AppId", int)
TenantId = NewType("TenantId", str)
ServiceId = NewType("ServiceId", str)
GroupId = NewType("GroupId", str)
GpuId = NewType("GpuId", int)
ResourceId = NewType("ResourceId", str)

Content = tuple[int, int]
"""Name of a full KV block: the request to which its last token belongs, and its number."""


@dataclass(frozen=True, slots=True)
class Service:
    """One model behind one endpoint."""

    id: ServiceId
    kv_bytes_per_token: int
    max_context_tokens: int


@dataclass(frozen=True, slots=True)
class Request:
    """What is known of a request when it arrives; its true output length is not.

    `unit` names the functional unit (the kind of call) of its application, if it is part of one. A
    lower `priority` is the more urgent one, as in vLLM.
    """

    id: RequestId
    service: ServiceId
    app: AppId
    tenant: TenantId
    arrival_s: float
    prompt_tokens: int
    max_output_tokens: int
    deadline_s: float | None = None
    unit: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class LengthPrediction:
    """A predicted output length: equally likely samples in tokens, ascending."""

    samples_tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raise ValueError where an answer would have no tokens."""
        if min(self.samples_tokens) < 1:
            shortest = min(self.samples_tokens)
            raise ValueError(f"a predicted length is {shortest} tokens, it must be at least 1")

    @property
    def mean_tokens(self) -> float:
        """Mean of the samples."""
        return sum(self.samples_tokens) / len(self.samples_tokens)


@dataclass(frozen=True, slots=True)
class DemandPrediction:
    """The predicted demand of a whole application.

    Tokens of the prompts and answers of all its calls, and seconds outside any LLM.
    """

    prompt_tokens: int
    output_tokens: int
    external_s: float


@dataclass(frozen=True, slots=True)
class Group:
    """GPUs that hold one tensor-parallel copy of every service sharing them."""

    id: GroupId
    services: frozenset[ServiceId]
    gpus: tuple[GpuId, ...]

    @property
    def tensor_parallel(self) -> int:
        """GPUs over which every layer is split."""
        return len(self.gpus)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The machine: its GPUs and which of them are joined by NVLink."""

    gpus: tuple[GpuId, ...]
    nvlink_islands: tuple[frozenset[GpuId], ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What one iteration computes: everything its duration depends on.

    `prefill_padded_tokens` is requests x longest where the engine pads prompts, else it equals
    `prefill_tokens`. `prefill_attended` is the sum over prompts of 2 n c - n^2 for n tokens that
    end at context c, so a whole prompt of s tokens counts s^2 (padded likewise).
    """

    prefill_requests: int = 0
    prefill_tokens: int = 0
    prefill_padded_tokens: int = 0
    prefill_attended: float = 0.0
    decode_requests: int = 0
    context_tokens: int = 0
    longest_tokens: int = 0
