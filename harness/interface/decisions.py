"""What policies return. Plain values: an engine applies one whole or rejects it whole."""

from collections.abc import Callable, Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from harness.interface.entities import Group, RequestId, ResourceId, ServiceId
from harness.interface.moving import MovingKey
from harness.interface.promotion import Promotion
from harness.interface.tables import Floats, Ints, RequestTable

_MOST_TOKENS = 2**31
"""Context that nothing is set aside for: far above any memory."""


class PreemptionMode(Enum):
    """What becomes of a preempted request's KV: computed again later, or kept in host memory.

    From there it comes back whole, by `Decision.swap_in`. To pause a request and keep its KV on the
    GPU, just do not run it.
    """

    RECOMPUTE = "recompute"
    SWAP = "swap"


class Until(Enum):
    """How long a batch runs.

    `ITERATION`: one forward pass, then the policy is asked again. `FIRST` and `ALL`: as many passes
    as the first or the last of its requests needs to finish; no request joins meanwhile. Under
    `ALL`, requests that have finished are computed on, as padding, and returned with the last.
    """

    ITERATION = "the next iteration"
    FIRST = "the first answer"
    ALL = "all answers"


@dataclass(frozen=True, slots=True)
class Reservation:
    """KV promised to a request, in tokens of its context.

    The first `own_tokens` are set aside for it; `loan_tokens` more lie in what the lender has.
    """

    own_tokens: int
    loan_tokens: int = 0
    lender: RequestId | None = None

    @property
    def tokens(self) -> int:
        """All that is promised."""
        return self.own_tokens + self.loan_tokens


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests of one service computed together: request -> tokens to compute (1 = a decode step).

    A batch that runs longer than an iteration must first compute the whole context of each request,
    and each must have been promised KV for its longest answer.
    """

    service: ServiceId
    tokens: Mapping[RequestId, int]
    gpu_share: float = 1.0
    until: Until = Until.ITERATION


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousBatching:
    """Iteration-level batching: every iteration is filled again from an order of requests.

    With `chunked_prefill`, decodes and prompts share an iteration, and a prompt may be cut to what
    is left of `max_num_batched_tokens`; otherwise an iteration holds whole prompts only, whenever
    one can be admitted, else decodes only. With `pads_prompts`, every prompt of an iteration counts
    and costs as much as the longest; `max_padding_tokens` bounds that waste. A request is admitted
    only if `watermark` (0..1) of the KV blocks then stays free. Every request that runs computes a
    token at least, so there is a token for each.

    Without `prompts_first`, an iteration is of the phase of the first request in the order: prompts
    if that one holds no KV and can be admitted, else decodes.
    """

    chunked_prefill: bool
    pads_prompts: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    max_padding_tokens: int
    watermark: float
    prompts_first: bool = True

    def __post_init__(self) -> None:
        """Refuse rules under which nothing could ever run, or not every request could decode."""
        for name, least in (("seqs", 1), ("batched_tokens", 1)):
            value = getattr(self, f"max_num_{name}")
            if value < least:
                raise ValueError(f"rule.max_num_{name} is {value}, it must be at least {least}")
        if self.max_padding_tokens < 0:
            raise ValueError(f"rule.max_padding_tokens is {self.max_padding_tokens}, not 0 or more")
        if not 0.0 <= self.watermark <= 1.0:
            raise ValueError(f"rule.watermark is {self.watermark}, it must be from 0 to 1")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"rule.max_num_batched_tokens is {self.max_num_batched_tokens}, it must be at least"
                f" rule.max_num_seqs, {self.max_num_seqs}: every decode computes a token"
            )
        if self.chunked_prefill and not self.prompts_first:
            raise ValueError(
                "rule.prompts_first is False and rule.chunked_prefill True: with chunked prefill"
                " an iteration has no phase"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticBatching:
    """Request-level batching: when nothing runs, a batch is made and stays together.

    It starts once `max_num_seqs` requests are there or the oldest has waited `max_wait_s`. With
    `refills` it ends when its first request finishes, and the next one, which does not wait for
    more, is filled from the whole order: one that has begun and comes after newcomers in it is
    preempted, keeps its KV and goes on in a later batch. Otherwise a batch ends when all have
    finished (arXiv 2404.08509 sec. 3.2 and fig. 3). Each request is promised KV for its longest
    answer. `pads_prompts` as in `ContinuousBatching`.
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


class Displaced(Enum):
    """What becomes of a holder of KV that those before it in a priority order displace.

    `PAUSE`: it does not run and keeps its KV while there is room. `RECOMPUTE`: it is preempted.
    `SWAP`: it is preempted and its KV kept in host memory, where that has room for it when it is
    its turn in the order; a request with a slot gets it back.
    """

    PAUSE = "pause"
    RECOMPUTE = "recompute"
    SWAP = "swap"


@dataclass(frozen=True, slots=True)
class PriorityOrder:
    """A priority order: until the next decision, the engine fills every batch of a group by `rule`.

    Requests are ordered by `key`, lowest first, then by id: a number (float64) per row of the
    table, or pieces that move with progress (`MovingKey`). NaN, as where nothing is predicted,
    comes last. None orders by arrival.

    Keys and reservations are told: every engine calls `key` and `reserve_tokens` for a request when
    it comes to a group, when its prediction becomes known, and when the last piece of its moving
    key has ended; for all requests of a group when the policy returns another (unequal) order.
    Between those times they stand, whatever the policy learns. Where predictions take
    time, a key of numbers must depend on facts and predictions alone: compiled code computes it in
    advance, as for a request that has not begun. With `renews`, they are asked again
    for all requests under the order after every event that the scheduling policy observes, before
    the group's next decision; with `renew_s`, also so many seconds after all were last asked.

    Without `displaces`, none is preempted to admit another but where a `StaticBatching` refills,
    and the order is one of admission and of giving way when KV is short. With it, those run that
    come first: as many as `rule.max_num_seqs` and KV for the whole context of each allow, the
    watermark kept before newcomers. A request that holds KV and is not among them is displaced; the
    paused are preempted from the end of the order where KV is short.

    `reserve_tokens` is the context that KV is set aside for when a request is admitted: one number
    for all, or one per request by a pure function of facts and predictions. NaN or None: nothing,
    KV grows block by block. For a request that outgrows it (`Overran`), what the order then says is
    set aside, if that is more and there is room; else it grows on block by block. A policy that
    observes `Overran` may learn from it: also without `renews`, all keys and reservations are asked
    again after it. A request that holds KV keeps what is set aside for it until it outgrows that.

    `gives_way` is what becomes of holders of KV that are preempted because KV is short, where
    nothing `displaces`. With SWAP their KV is kept in host memory where that has room, and no
    newcomer is admitted while the KV of a request is there.

    In a group of several services, every batch is of one service and one phase, prompts or decodes.
    The services are tried in the order of their first requests, and the first that can run
    something does. Its prompts are whole; which phase comes first is `rule.prompts_first`. KV is
    counted in bytes that all services share, in blocks of each service's own size; `watermark` is
    in whole blocks of the newcomer's service. Without `displaces`, `rule.max_num_seqs` bounds the
    holders of KV of each service, and a newcomer that cannot be admitted holds back only newcomers
    of its service. Where KV is short for a decode, holders of any service are preempted from the
    end of the order, up to the decode itself, and nothing is admitted in that iteration. With
    `displaces`, slots are those of all services together. Of the requests in slots those of one
    service run, the others keep their KV. A service is starved when requests of it are here and
    none has run for `starves_after_s` of it, in seconds since the later of the end of its last
    batch in the group and the arrival of the first of them: until it runs, its requests come before
    those of services that are not, and by key among those of starved ones. Chunked prefill,
    padding, static batching, `reserve_tokens` and swapping are refused there, as all but static
    batching are without `rule.prompts_first`.

    With `promotion`, a request that has not run for some seconds or iterations is promoted: it then
    goes by another key. That is looked at in every decision of the group. In another group a
    request is one that has just come. Both keys are told at the same time. An engine counts
    promotions under that name.

    In terms of the plug-ins of vLLM's RFC #51608, `key` is the Score (here the lowest comes first),
    and what `rule`, `displaces` and `reserve_tokens` demand before a request runs is the Filter.
    There both are called at every step; here they are values, so that an engine may follow them
    through many steps in compiled code.
    """

    key: Callable[[RequestTable], Floats | MovingKey] | None
    rule: ContinuousBatching | StaticBatching
    displaces: Displaced | None = None
    reserve_tokens: Callable[[RequestTable], Floats] | int | None = None
    gives_way: PreemptionMode = PreemptionMode.RECOMPUTE
    renews: bool = False
    renew_s: float | None = None
    starves_after_s: Callable[[ServiceId], float] | None = None
    promotion: Promotion | None = None

    def __post_init__(self) -> None:
        """Refuse times at which keys cannot be asked, and promotions that cannot be."""
        if self.promotion is not None and (self.renews or isinstance(self.rule, StaticBatching)):
            raise ValueError("promotion is given with renews or under static batching")
        if self.renew_s is None:
            return
        if not 0 < self.renew_s < float("inf"):
            raise ValueError(f"renew_s is {self.renew_s}, it must be above 0 and finite")
        if not self.renews:
            raise ValueError(f"renew_s is {self.renew_s} and renews is False, it must be True")

    @property
    def swaps(self) -> bool:
        """Whether KV may go to host memory."""
        return self.displaces is Displaced.SWAP or self.gives_way is PreemptionMode.SWAP

    @property
    def asks(self) -> bool:
        """Whether the policy is asked about requests."""
        return self.key is not None or callable(self.reserve_tokens)

    def seconds_to_starve(self, service: ServiceId) -> float:
        """Seconds after which a service that does not run is starved; infinite for never."""
        return np.inf if self.starves_after_s is None else self.starves_after_s(service)

    def keys(self, table: RequestTable) -> Floats | MovingKey:
        """The key of every row, as a number or as pieces. ValueError when there is not one each."""
        key = table.arrival_s if self.key is None else self.key(table)
        shape = key.until.shape[:1] if isinstance(key, MovingKey) else key.shape
        if shape != table.id.shape:
            raise ValueError(f"key of shape {shape} for {len(table.id)} requests")
        if isinstance(key, MovingKey):
            return key
        return np.where(np.isnan(key), np.inf, key)

    def reserved_tokens(self, table: RequestTable) -> Ints:
        """Context tokens to set KV aside for when these are admitted; 0 for nothing.

        Under static batching, that is always the context with the longest answer. ValueError when
        there is not one number per request, or one is infinite.
        """
        if isinstance(self.rule, StaticBatching):
            return table.prompt_tokens + table.max_output_tokens
        wanted = self.reserve_tokens
        if wanted is None or isinstance(wanted, int):
            return np.full(len(table.id), wanted or 0)
        given = wanted(table)
        if given.shape != table.id.shape:
            raise ValueError(f"reserve_tokens of shape {given.shape} for {len(table.id)} requests")
        # Whole numbers end somewhere: more than that would turn negative, and reserve nothing.
        over = given >= _MOST_TOKENS
        if over.any():
            row = int(np.argmax(over))
            raise ValueError(
                f"reserve_tokens of r{table.id[row]} are {given[row]:g}, not below 2**31"
            )
        tokens: Ints = np.ceil(np.maximum(np.nan_to_num(given, nan=0.0), 0)).astype(np.int64)
        return tokens


def has_phases(services: Collection[ServiceId], order: PriorityOrder) -> bool:
    """Whether every batch of this order in a group of these is of one service and one phase."""
    rule = order.rule
    return isinstance(rule, ContinuousBatching) and (len(services) > 1 or not rule.prompts_first)


def wrong_by_phase(
    order: PriorityOrder, services: Collection[ServiceId], group: str
) -> Iterator[str]:
    """What an order cannot say where every batch is of one service and one phase."""
    rule, is_shared = order.rule, len(services) > 1
    given = {
        "request-level batches": isinstance(rule, StaticBatching) and is_shared,
        "rule.chunked_prefill": isinstance(rule, ContinuousBatching) and rule.chunked_prefill,
        "rule.pads_prompts": isinstance(rule, ContinuousBatching) and rule.pads_prompts,
        "reserve_tokens": order.reserve_tokens is not None,
        "displaces=swap": order.displaces is Displaced.SWAP,
        "gives_way=swap": order.gives_way is PreemptionMode.SWAP,
    }
    if is_shared or has_phases(services, order):
        where = f"{len(services)} services" if is_shared else "rule.prompts_first off"
        for field, is_given in given.items():
            if is_given:
                yield (
                    f"a priority order with {field} in {group} ({', '.join(sorted(services))}),"
                    f" which is not supported with {where}"
                )
    for service in sorted(services) if is_shared else ():
        if not (seconds := order.seconds_to_starve(service)) > 0:
            yield f"starves_after_s of {service} is {seconds}, it must be above 0"


@dataclass(frozen=True, slots=True)
class Decision:
    """Applied in order: preempt, swap in, reserve, launch. Empty means idle until an event or wake.

    `swap_in` are those whose KV comes back from host memory: who is launched must have it, and who
    is not launched pauses with it. What they leave there is free for the next decision.
    `steady` says that with the same requests and no event before `wake_s` the policy would run the
    same requests again, each for all that it then misses, in this iteration and the next ones: as
    long as that is so, or `at_most` so many iterations. The engine may then run them as one.
    `priority_order` leaves the filling of batches to the engine; beside it only `wake_s` may be
    given, and the policy is then asked at every iteration, not run compiled. `draft` is the `Draft`
    that it was written with, if any: what that has seen to is not seen to again.
    """

    preempt: Mapping[RequestId, PreemptionMode] = field(default_factory=dict)
    reserve: Mapping[RequestId, Reservation] = field(default_factory=dict)
    launch: tuple[Batch, ...] = ()
    wake_s: float | None = None
    steady: bool = False
    priority_order: PriorityOrder | None = None
    at_most: int | None = None
    swap_in: AbstractSet[RequestId] = frozenset()
    draft: object = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Deployment:
    """What should be loaded from now on (one stage). Data parallelism = several equal groups."""

    groups: tuple[Group, ...]
    wake_s: float | None = None


@dataclass(frozen=True, slots=True)
class Prewarm:
    """Backends to start loading now, and idle ones to stop (containers, DNNs).

    A backend for which its pool has no room is not started, and one in use is not stopped.
    `wanted` are adapters or contexts to have in host memory, the most wanted first; with
    `wants_queue` followed by what calls read that wait, in the order of their groups; before these
    come adapters of calls that run. They are loaded one after the other, and the others make room
    for them. Contexts are loaded as long as those wanted so far fill at most `contexts_share` of
    host memory.
    """

    start: tuple[ResourceId, ...] = ()
    stop: tuple[ResourceId, ...] = ()
    wanted: tuple[ResourceId, ...] = ()
    wants_queue: bool = False
    wake_s: float | None = None
    contexts_share: float = 1.0

    def __post_init__(self) -> None:
        """Refuse shares that are none."""
        if not 0.0 <= self.contexts_share <= 1.0:
            raise ValueError(f"contexts_share is {self.contexts_share}, it must be from 0 to 1")
