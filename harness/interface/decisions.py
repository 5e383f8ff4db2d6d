"""What policies return. Plain values: an engine applies one whole or rejects it whole."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from harness.interface.entities import Group, RequestId, ResourceId, ServiceId
from harness.interface.tables import Floats, RequestTable


class PreemptionMode(Enum):
    """What becomes of a preempted request's KV. To pause and keep it, just do not run it."""

    RECOMPUTE = "recompute"
    SWAP = "swap"


class Until(Enum):
    """How long a batch runs.

    To `ITERATION`: one forward pass, after which the policy is asked again. To `FIRST` and `ALL`:
    as many as its first answer or its last one needs; nobody joins meanwhile. Requests that are
    answered before `ALL` are go on being computed, as padding, and are returned with the last.
    """

    ITERATION = "the next iteration"
    FIRST = "the first answer"
    ALL = "all answers"


@dataclass(frozen=True, slots=True)
class Reservation:
    """KV guaranteed to a request, in context tokens; the loan lies in the lender's space."""

    own_tokens: int
    loan_tokens: int = 0
    lender: RequestId | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests of one service computed together: request -> tokens to compute (1 = a decode step).

    A batch that runs longer than an iteration starts by computing all that its requests miss, and
    they have been promised KV for their longest answers.
    """

    service: ServiceId
    tokens: Mapping[RequestId, int]
    gpu_share: float = 1.0
    until: Until = Until.ITERATION


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousBatching:
    """How a batch is filled from an order of requests.

    `chunked_prefill`: prompts and decodes share an iteration and a prompt may be cut to what is
    left of the budget; otherwise an iteration holds whole prompts only, whenever one can be
    admitted, or decodes only. `pads_prompts` counts and computes every prompt of an iteration as
    long as the longest; `max_padding_tokens` bounds what that wastes. `watermark` (0..1) of the KV
    blocks stay free when a request is admitted.
    """

    chunked_prefill: bool
    pads_prompts: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    max_padding_tokens: int
    watermark: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticBatching:
    """Request-level batching: a batch is made of whole requests when nothing runs.

    It starts once it has `max_num_seqs` or its oldest has waited `max_wait_s`. With `refills`
    it ends at its first answer and the others go on in the next batch, which does not wait for
    more; otherwise it ends when all are answered (arXiv 2404.08509 sec. 3.2 and fig. 3). Every
    request is promised KV for its longest answer. `pads_prompts` as in `ContinuousBatching`.
    """

    max_num_seqs: int
    max_wait_s: float
    refills: bool
    pads_prompts: bool

    def __post_init__(self) -> None:
        """Refuse rules under which nothing could ever run."""
        if self.max_num_seqs < 1:
            raise ValueError(f"rule.max_num_seqs is {self.max_num_seqs}, it must be at least 1")
        if not 0 <= self.max_wait_s < float("inf"):
            raise ValueError(f"rule.max_wait_s is {self.max_wait_s}, it must be at least 0")

    @property
    def until(self) -> Until:
        """How long each batch runs."""
        return Until.FIRST if self.refills else Until.ALL


@dataclass(frozen=True, slots=True)
class PriorityOrder:
    """A priority order: until told otherwise, fill every batch of this group by `rule`.

    Requests that hold KV keep their place; all are ordered by `key`, lowest first, then by id.
    `key` is a pure function of facts and predictions (float64 per row of the table), so the engine
    may evaluate it for later arrivals without asking the policy again. None orders by arrival.
    """

    key: Callable[[RequestTable], Floats] | None
    rule: ContinuousBatching | StaticBatching


@dataclass(frozen=True, slots=True)
class Decision:
    """Applied in order: preempt, reserve, launch. Empty means idle until an event or `wake_s`.

    `steady` promises: with the same requests and no event before `wake_s`, the same again; the
    engine may then run many iterations as one. `priority_order` hands over the filling of batches.
    """

    preempt: Mapping[RequestId, PreemptionMode] = field(default_factory=dict)
    reserve: Mapping[RequestId, Reservation] = field(default_factory=dict)
    launch: tuple[Batch, ...] = ()
    wake_s: float | None = None
    steady: bool = False
    priority_order: PriorityOrder | None = None


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
