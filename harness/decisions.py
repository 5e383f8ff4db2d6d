"""What policies return. Plain values: an engine applies one whole or rejects it whole."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from harness.entities import Group, RequestId, ResourceId, ServiceId

if TYPE_CHECKING:
    from harness.views import RequestTable


class Evict(Enum):
    """What becomes of a preempted request's KV. To pause and keep it, just do not run it."""

    RECOMPUTE = "recompute"
    SWAP = "swap"


@dataclass(frozen=True, slots=True)
class Reservation:
    """KV guaranteed to a request, in context tokens; the loan lies in the lender's space."""

    own_tokens: int
    loan_tokens: int = 0
    lender: RequestId | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """One forward pass of one service: request -> tokens to compute (1 = a decode step)."""

    service: ServiceId
    tokens: Mapping[RequestId, int]
    gpu_share: float = 1.0
    to_completion: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """How a batch is filled from an order of requests.

    `mixed`: prompts and decodes share an iteration and a prompt may be cut to what is left of the
    budget (chunked prefill); otherwise an iteration holds whole prompts only, whenever one can be
    admitted, or decodes only. `pads_prompts` counts and computes every prompt of an iteration as
    long as the longest; `max_padding_tokens` bounds what that wastes. `spare_blocks_share` (0..1)
    of the KV blocks stay free when a request is admitted (a watermark).
    """

    mixed: bool
    pads_prompts: bool
    max_batch_requests: int
    max_batch_tokens: int
    max_padding_tokens: int
    spare_blocks_share: float


@dataclass(frozen=True, slots=True)
class Standing:
    """A standing order: until told otherwise, fill every batch of this group by `rule`.

    Requests that hold KV keep their place; all are ordered by `key`, lowest first, then by id.
    `key` is a pure function of facts and predictions (float64 per row of the table), so the engine
    may evaluate it for later arrivals without asking the policy again. None orders by arrival.
    """

    key: "Callable[[RequestTable], NDArray[np.float64]] | None"
    rule: BatchRule


@dataclass(frozen=True, slots=True)
class Decision:
    """Applied in order: evict, reserve, launch. Empty means idle until an event or `wake_s`.

    `steady` promises: with the same requests and no event before `wake_s`, the same again; the
    engine may then run many iterations as one. `standing` hands over the filling of batches.
    """

    evict: Mapping[RequestId, Evict] = field(default_factory=dict)
    reserve: Mapping[RequestId, Reservation] = field(default_factory=dict)
    launch: tuple[Batch, ...] = ()
    wake_s: float | None = None
    steady: bool = False
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """What should be loaded from now on (one stage). Data parallelism = several equal groups."""

    groups: tuple[Group, ...]
    wake_s: float | None = None


@dataclass(frozen=True, slots=True)
class Prewarm:
    """Backends to start loading now (container, DNN, LoRA, prefix KV)."""

    start: tuple[ResourceId, ...] = ()
    wake_s: float | None = None
