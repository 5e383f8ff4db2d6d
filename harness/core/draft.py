"""A decision being written: says at once whether the next line of it still fits.

To fill a batch from an order of requests, see `fill`.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter, is_

from harness.core.kv_ledger import KvLedger, ledger_of
from harness.interface.decisions import Batch, Decision, PreemptionMode, Reservation, Until
from harness.interface.entities import RequestId, ServiceId
from harness.interface.views import GroupView, RequestView, missing_tokens

_SWAPPED = attrgetter("swapped_tokens")


class Draft:
    """One decision, written one batch at a time.

    `tokens_left` is what the open batch may still compute, `requests_left` how many more requests
    may run at the same time, `host_bytes_left` what host memory takes of KV. Where no batch is
    open, the first request opens one of its service on all free SMs. What a request misses are the
    tokens of its context that have no KV yet; KV in host memory comes back, whole, with what runs.
    """

    def __init__(self, view: GroupView) -> None:
        """Start an empty decision on `view`, which must not change while it is written."""
        self.view = view
        self.tokens_left = view.max_num_batched_tokens
        self.requests_left = view.max_num_seqs
        self.share_left = view.free_share
        self.host_bytes_left = view.free_host_bytes
        # Only while something is in flight are requests worth asking whether they run.
        self._in_flight = view.in_flight
        for batch in self._in_flight:
            self.requests_left -= len(batch.tokens)
        self._base = ledger_of(view)
        self._base_changes = self._base.changes
        self._kv: KvLedger | None = None
        self._preempt: dict[RequestId, PreemptionMode] = {}
        self._ran_before: dict[RequestId, int] = {}
        self._swap_in: set[RequestId] = set()
        self._reserve: dict[RequestId, Reservation] = {}
        self._batches: list[tuple[ServiceId, float, dict[RequestId, int]]] = []
        self._runs: dict[RequestId, RequestView] = {}
        self._is_cut = False
        self._launch: tuple[Batch, ...] | None = None

    @property
    def kv(self) -> KvLedger:
        """What will be held if the draft is applied, made when first needed. Never change it."""
        if self._kv is None:
            self._kv = self._base.copy()
            for _, _, tokens in self._batches:
                self._kv.grow_all(tokens)
        return self._kv

    @property
    def service(self) -> ServiceId | None:
        """Of the open batch; None before the first."""
        return self._batches[-1][0] if self._batches else None

    def runs(self, request: RequestView) -> bool:
        """Whether the request is in a batch of this draft."""
        return request.facts.id in self._runs

    @property
    def is_empty(self) -> bool:
        """Whether nothing runs in this draft so far."""
        return not self._runs

    @property
    def runs_all(self) -> bool:
        """Whether every unfinished request of the group runs, for all that it misses.

        A policy that would leave it so until something happens may call the decision steady.
        """
        return not self._is_cut and len(self._runs) == len(self.view.requests)

    def missing_tokens(self, request: RequestView) -> int:
        """Tokens that it would have to compute now: what it misses and would not find cached."""
        missing = missing_tokens(request)
        if self._base.caches and request.kv_tokens <= 0:
            missing -= self.kv.cached_tokens(request.facts.id)
        return missing

    @property
    def preempts_any(self) -> bool:
        """Whether this draft preempts a request."""
        return bool(self._preempt)

    def guests(self, request: RequestView) -> frozenset[RequestId]:
        """Those whose loans lie in the request's space, also by orphaned reservations in it."""
        return (self._kv or self._base).guests(request.facts.id)

    def preempts(self, request: RequestView) -> bool:
        """Whether this draft preempts the request."""
        return request.facts.id in self._preempt

    def open_batch(self, service: ServiceId, gpu_share: float) -> None:
        """Close the open batch and start one on `gpu_share` (0..1) of the SMs.

        ValueError when that share is not free.
        """
        if not 0 < gpu_share <= self.share_left + 1e-9:
            raise ValueError(f"share {gpu_share:g} of the SMs asked, {self.share_left:g} is free")
        self._launch = None
        self._batches.append((service, gpu_share, {}))
        self.share_left = max(0.0, self.share_left - gpu_share)
        self.tokens_left = self.view.max_num_batched_tokens

    def has_room(self, request: RequestView, tokens: int) -> bool:
        """Whether the open batch may take the request, whatever its KV."""
        facts = request.facts
        return (
            0 < tokens <= self.tokens_left
            and self.requests_left > 0
            and tokens <= missing_tokens(request)
            and (self._batches[-1][0] == facts.service if self._batches else self.share_left > 0)
            and facts.id not in self._runs
            and facts.id not in self._preempt
            and not (self._in_flight and request.is_running)
        )

    def try_run(self, request: RequestView, tokens: int) -> bool:
        """Add the request to the open batch if its service, max_num_seqs, tokens and KV allow.

        False changes nothing. A request runs once, computes no more than it misses, and is not
        preempted by the same decision.
        """
        return self.has_room(request, tokens) and self.try_add(request, tokens)

    def try_add(self, request: RequestView, tokens: int) -> bool:
        """`try_run` of a request that the batch `has_room` for: KV alone decides.

        What it finds cached is not computed.
        """
        name, comes = request.facts.id, self._to_come(request)
        if self._base.caches:
            missing = self.missing_tokens(request)
            tokens, is_cut = min(tokens, missing), tokens < missing
        else:
            is_cut = tokens < missing_tokens(request)
        if not self.kv.try_grow(name, comes + tokens):
            return False
        if comes:
            self._swap_in.add(name)
        self._is_cut |= is_cut
        self._open_tokens(request.facts.service)[name] = tokens
        self._runs[name] = request
        self.tokens_left -= tokens
        self.requests_left -= 1
        return True

    def _to_come(self, request: RequestView) -> int:
        """Tokens of KV that are in host memory and not to come back by this draft so far."""
        return 0 if request.facts.id in self._swap_in else request.swapped_tokens

    def try_swap_in(self, request: RequestView) -> bool:
        """Bring KV back from host memory, without running the request, if there is room for it.

        False changes nothing, also where none is there.
        """
        name, comes = request.facts.id, self._to_come(request)
        if not comes or name in self._preempt or not self.kv.try_grow(name, comes):
            return False
        self._launch = None
        self._swap_in.add(name)
        return True

    def _open_tokens(self, service: ServiceId) -> dict[RequestId, int]:
        """What the open batch computes, to be written; the first batch is opened here."""
        if not self._batches:
            self.open_batch(service, min(1.0, self.share_left))
        self._launch = None
        return self._batches[-1][2]

    def try_run_all(self, requests: Sequence[RequestView], budget: int) -> bool:
        """Run every request for all that it misses, if that is at most `budget` tokens and fits.

        False changes nothing. Costs far less than one `try_run` each, but may be False where those
        would succeed: if anything is in the open batch already, KV must come back from host memory,
        the requests are of several services, or some may find KV cached.
        """
        if not requests or not self._may_open(requests[0].facts.service):
            return False
        if self._base.caches and any(request.kv_tokens <= 0 for request in requests):
            return False
        views = {r.facts.id: r for r in requests}
        missing = {name: r.context_tokens - r.kv_tokens for name, r in views.items()}
        total = sum(missing.values())
        if (
            not len(missing) == len(requests) <= self.requests_left
            or total > min(budget, self.tokens_left)
            or min(missing.values()) <= 0
            or not self._are_idle(missing)
            or (len(self.view.services) > 1 and len({r.facts.service for r in requests}) > 1)
            or any(map(_SWAPPED, requests))
            or not (self._kv or self._base).fits(missing)
        ):
            return False
        if self._kv is not None:
            self._kv.grow_all(missing)
        self._open_tokens(requests[0].facts.service).update(missing)
        self._runs.update(views)
        self.tokens_left -= total
        self.requests_left -= len(missing)
        return True

    def _may_open(self, service: ServiceId) -> bool:
        """Whether the open batch is of the service and empty, or one may be opened."""
        if not self._batches:
            return self.share_left > 0
        of_service, _, tokens = self._batches[-1]
        return of_service == service and not tokens

    def _are_idle(self, names: Mapping[RequestId, int]) -> bool:
        """Whether none is in flight, or in this draft in a batch or preempted."""
        idle = names.keys().isdisjoint
        return (
            idle(self._preempt)
            and idle(self._runs)
            and all(idle(batch.tokens) for batch in self._in_flight)
        )

    def try_reserve(
        self, request: RequestView, promise: Reservation, *, spare_blocks: int = 0
    ) -> bool:
        """Promise KV to the request if every promise made can still be kept.

        What it takes of the free space must leave `spare_blocks` of the request's service free.
        False changes nothing. ValueError for an impossible promise, and for a second one to the
        same request from another lender.
        """
        name = request.facts.id
        earlier = self._reserve.get(name)
        if earlier is not None and earlier.lender != promise.lender:
            raise ValueError(f"r{name} borrows from two lenders in one decision")
        if not self.kv.try_reserve(name, promise, spare_blocks=spare_blocks):
            return False
        self._launch = None
        self._reserve[name] = promise
        return True

    def cancel_reserve(self, request: RequestView) -> None:
        """Take back the promise that this draft made: the one before it holds again.

        ValueError where this draft made none, or what it has written since rests on the promise.
        """
        name = request.facts.id
        if name not in self._reserve:
            raise ValueError(f"r{name} has no promise of this draft to cancel")
        if not self.kv.try_reserve(name, self._base.reservation(name)):
            raise ValueError(f"r{name} or its borrowers use the promise that is to be cancelled")
        self._launch = None
        del self._reserve[name]

    def can_preempt(self, request: RequestView) -> bool:
        """Whether the request holds KV, does not run, and has not been preempted by this draft."""
        name = request.facts.id
        return (
            request.kv_tokens > 0
            and name not in self._runs
            and not (self._in_flight and request.is_running)
            and name not in self._preempt
        )

    def can_swap_out(self, request: RequestView) -> bool:
        """Whether it can be preempted and host memory has room for its KV."""
        return self.can_preempt(request) and self._held_bytes(request) <= self.host_bytes_left

    def _held_bytes(self, request: RequestView) -> int:
        return request.kv_tokens * self._base.services[request.facts.service].kv_bytes_per_token

    def preempt(self, request: RequestView, how: PreemptionMode = PreemptionMode.RECOMPUTE) -> None:
        """Preempt the request: its KV is freed, or swapped out, and its promise dropped.

        ValueError when it runs, cannot be swapped out, or lends to a request by a promise of this
        draft: preemptions are applied before promises, so that one could not be kept.
        """
        name = request.facts.id
        if name in self._runs or (self._in_flight and request.is_running):
            raise ValueError(f"r{name} is running and cannot be preempted")
        if guests := self.kv.borrowers(name) & self._reserve.keys():
            raise ValueError(f"r{name} has just lent to r{min(guests)} and cannot be preempted")
        if how is PreemptionMode.SWAP:
            if not self.can_swap_out(request):
                raise ValueError(
                    f"r{name} with {self._held_bytes(request)} bytes of KV cannot be swapped out:"
                    f" {self.host_bytes_left} bytes of host memory are free"
                )
            self.host_bytes_left -= self._held_bytes(request)
        self._launch = None
        self._swap_in.discard(name)
        if self._reserve.pop(name, None) is not None:
            self.kv.reserve(name, self._base.reservation(name))
        self.kv.free(name)
        self._preempt[name] = how
        self._ran_before[name] = len(self._runs)

    def decision(
        self,
        *,
        until: Until = Until.ITERATION,
        wake_s: float | None = None,
        steady: bool = False,
        at_most: int | None = None,
    ) -> Decision:
        """Return what was written; `until` holds for all its batches.

        `steady` and `at_most` as in `Decision`.
        """
        self._launch = tuple(
            Batch(service, tokens, gpu_share, until)
            for service, gpu_share, tokens in self._batches
            if tokens
        )
        return Decision(
            self._preempt,
            self._reserve,
            self._launch,
            wake_s,
            steady=steady,
            at_most=at_most,
            swap_in=self._swap_in,
            draft=self,
        )

    def wrote(self, decision: Decision, kv: KvLedger) -> bool:
        """Whether it has written just that, on this ledger as it is now."""
        return (
            self._launch is not None
            and decision.launch is self._launch
            and decision.preempt is self._preempt
            and decision.reserve is self._reserve
            and decision.swap_in is self._swap_in
            and kv is self._base
            and kv.changes == self._base_changes
        )

    def is_about(self, requests: Mapping[RequestId, RequestView]) -> bool:
        """Whether all that it runs or preempts are these, as they are now."""
        given, others = self._runs, self._preempt.keys() | self._swap_in
        return others <= requests.keys() and all(map(is_, given.values(), map(requests.get, given)))

    def shortages(self) -> list[str]:
        """Why a promise cannot be kept if it is applied: none where anything runs."""
        return (self._kv or self._base).shortages()


def after(decision: Decision, kv: KvLedger, requests: Mapping[RequestId, RequestView]) -> KvLedger:
    """The ledger with a legal decision applied: its draft's own where that has one, else `kv`.

    `requests` are those of the group, with what they have in host memory before the decision. A
    ledger of a draft is handed over: the draft writes no more on it.
    """
    draft = decision.draft
    if isinstance(draft, Draft) and draft._kv is not None and draft.wrote(decision, kv):
        ledger, draft._kv, draft._launch = draft._kv, None, None
        return ledger
    if kv.caches:
        return _after_in_turn(decision, kv)
    for request in decision.preempt:
        kv.free(request)
    for request in decision.swap_in:
        kv.grow(request, requests[request].swapped_tokens)
    for request, promise in decision.reserve.items():
        kv.reserve(request, promise)
    for batch in decision.launch:
        kv.grow_all(batch.tokens)
    return kv


def ran_before(decision: Decision) -> Mapping[RequestId, int]:
    """For each request preempted, how many of the batch take their KV before it frees its own."""
    draft = decision.draft
    return draft._ran_before if isinstance(draft, Draft) else dict.fromkeys(decision.preempt, 0)


def _after_in_turn(decision: Decision, kv: KvLedger) -> KvLedger:
    """The ledger after KV was taken and freed in the order of the draft, on which hits depend."""
    left, before, ran = list(decision.preempt), ran_before(decision), 0
    for batch in decision.launch:
        for request, tokens in batch.tokens.items():
            while left and before[left[0]] <= ran:
                kv.free(left.pop(0))
            kv.grow(request, tokens)
            ran += 1
    for request in left:
        kv.free(request)
    return kv
