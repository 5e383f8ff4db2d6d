"""MuxServe's scheduling: services side by side on shares of the SMs, each with a cap of requests.

Paper      Duan et al., MuxServe: Flexible Spatial-Temporal Multiplexing for Multiple LLM Serving,
           ICML 2024; sections below are its sections. Program: hao-ai-lab/MuxServe@2231480, as its
           default scheduler `adbs` serves
Idea       A prefill takes most SMs, a decode as few as its service needs, so that decodes of
           several services and a prefill run at the same time. A cap of the requests of a service
           follows from its share of the KV. Caps move to services that reach theirs.
Map        Algorithm 3 (ADBS), round-robin prefills        -> `_prefill`
           Algorithm 3, round-robin decodes on SMs left    -> `_decode`
           program: caps from rates and lengths            -> `caps`
           Algorithm 3, quotas adapt; program: caps do     -> `adapted`
           3.2, SMs of a decode from rate and lengths      -> harness.planning.sm_shares
           program: decodes wait for a prefill without SMs -> `schedule`
Constants  `prefill_share` 0.8, `adapts_after_s` 8 and those below: of the program; `rule`: see
           scenarios/policy/muxserve.yaml
Differs    The program's prefills take 80% of the SMs for 7B, 90% for 13B and all for larger models,
           here as many for all: a policy does not know the size of a model. Its SMs may be given
           out 1.2 times, here as `engine.most_gpu_share` says. KV is counted in bytes, not in heads
           of layers. A cap is at least 1. Without a history rates are equal, and decodes share the
           SMs equally, so that a service alone has them all. A preempted request comes back when
           there is room, in the program when a request has been answered
Checked    baselines/tests/test_muxserve.py::test_a_prefill_beside_a_decode_by_hand
           baselines/tests/test_muxserve.py::test_a_service_alone_keeps_its_shares_by_hand
           baselines/tests/test_muxserve.py::test_caps_by_hand
           baselines/tests/test_muxserve.py::test_caps_adapt_by_hand
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from harness.core.draft import Draft
from harness.core.fill import admit
from harness.interface.decisions import ContinuousBatching, Decision
from harness.interface.entities import GroupId, ServiceId
from harness.interface.events import Event
from harness.interface.policies import Capability, CostModel
from harness.interface.views import GroupView, RequestView, missing_tokens
from harness.planning.forecast import Window
from harness.planning.sm_shares import ServiceDemand, ShareEstimates, demands

BLOCK_TOKENS, UNKNOWN_TOKENS = 32, 416
"""Tokens of a block, and of a request where the lengths of a service are not known."""
FULL, NEARLY_FULL, STEP, BACKLOG = 0.9, 0.95, 0.1, 1.1
"""Of the program: a service whose decodes are of so much of its cap is full; the others keep so
much; it takes so much of its mean decode, if so many times as many requests are there."""
REMEMBERED, UNKNOWN_REQUESTS = 500, 30.0
"""Decodes whose mean counts, and that mean before the first."""

_FIRST_TURN = ServiceId("")
"""Before every name."""

_Own = Mapping[ServiceId, list[RequestView]]
"""Requests of each service, by arrival."""


class _Decoding(NamedTuple):
    """A batch of decodes: one of its requests, the context of that when last looked at, its size.

    How often it has been computed since is what that context has grown by.
    """

    request: RequestView
    context_tokens: int
    size: int


@dataclass(slots=True)
class _Group:
    """Of one group: shares of the SMs, caps, and sizes of the last decodes by service.

    `block_bytes` are of blocks of 32 tokens, `spare_bytes` what no cap uses; `decoding` are the
    batches launched last; `prefilled` and `decoded` had the last turn.
    """

    prefill_shares: Mapping[ServiceId, float]
    decode_shares: Mapping[ServiceId, float]
    block_bytes: Mapping[ServiceId, int]
    caps: dict[ServiceId, int]
    adapts_s: float
    sizes: Mapping[ServiceId, deque[int]]
    decoding: dict[ServiceId, _Decoding] = field(default_factory=dict)
    spare_bytes: int = 0
    prefilled: ServiceId = _FIRST_TURN
    decoded: ServiceId = _FIRST_TURN


@dataclass(frozen=True, slots=True)
class Use:
    """How a service uses its cap: the mean of its last decodes, and requests that are here.

    `request_size` is what a request of mean length takes of the KV.
    """

    cap: int
    mean: float
    present: int
    waiting: int
    request_size: int


class MuxServe:
    """Scheduling policy: asked whenever something happens while SMs are free."""

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.SHARED_GROUP, Capability.GPU_SHARE}
    )
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(
        self,
        *,
        rule: ContinuousBatching,
        prefill_share: float,
        adapts_after_s: float,
        costs: CostModel,
        history: Window | None = None,
    ) -> None:
        """Fill batches by `rule`, whose prompts are whole; `history` says what services need.

        ValueError for another rule, and for a share or seconds that cannot be.
        """
        if rule.chunked_prefill or rule.pads_prompts:
            raise ValueError("policy.rule cuts or pads prompts, MuxServe computes them whole")
        if not 0.0 < prefill_share <= 1.0:
            raise ValueError(f"policy.prefill_share is {prefill_share}, it must be in (0, 1]")
        if not adapts_after_s > 0.0:
            raise ValueError(f"policy.adapts_after_s is {adapts_after_s}, it must be above 0")
        self._rule, self._prefill_share = rule, prefill_share
        self._adapts_after_s = adapts_after_s
        self._estimates = ShareEstimates(costs, {} if history is None else demands(history))
        self._groups: dict[GroupId, _Group] = {}

    def observe(self, event: Event) -> None:
        """Nothing to learn."""

    def schedule(self, view: GroupView) -> Decision:
        """Prefills in turn, then decodes in turn; no new decodes while a prefill waits for SMs.

        The order of the next decodes moves on where not all of them run: else it does not matter.
        """
        group = self._groups.get(view.group.id)
        if group is None:
            group = self._groups[view.group.id] = self._new_group(view)
        prompts, decodes = _by_phase(view)
        prefilling = _note_decodes(group, view)
        if view.now_s >= group.adapts_s:
            self._adapt(group, view, prompts)
            group.adapts_s = view.now_s + self._adapts_after_s
        draft = Draft(view)
        waits = self._prefill(draft, group, prompts, decodes, prefilling)
        prefills = bool(prefilling) or not draft.is_empty
        steady = not waits and not prefills
        if not waits or prefills:
            last, all_run = self._decode(draft, group, decodes)
            steady = steady and all_run
            if last and not steady:
                group.decoded = last
        return draft.decision(steady=steady, wake_s=group.adapts_s)

    def _new_group(self, view: GroupView) -> _Group:
        names, size = sorted(view.services), view.group.tensor_parallel
        block_bytes = {
            name: BLOCK_TOKENS * view.kv.services[name].kv_bytes_per_token for name in names
        }
        found = caps(view.kv.capacity_bytes, block_bytes, {it: self._demand(it) for it in names})
        is_known, prefill_share = bool(self._estimates.demands), self._prefill_share
        shares = {
            name: self._estimates.decode_share(name, size) if is_known else 1.0 / len(names)
            for name in names
        }
        # A prefill has the larger of two shares, whichever was meant for it.
        return _Group(
            {name: max(prefill_share, share) for name, share in shares.items()},
            {name: min(prefill_share, it) if is_known else it for name, it in shares.items()},
            block_bytes,
            found,
            view.now_s + self._adapts_after_s,
            {name: deque(maxlen=REMEMBERED) for name in names},
        )

    def _demand(self, service: ServiceId) -> ServiceDemand:
        """What is known of a service; hardly a request where only others are known."""
        known = self._estimates.demands
        return known.get(service, ServiceDemand(1e-3 if known else 1.0, 0, UNKNOWN_TOKENS))

    def _adapt(self, group: _Group, view: GroupView, prompts: _Own) -> None:
        present, uses = Counter(it.facts.service for it in view.requests.values()), {}
        for service, cap in group.caps.items():
            sizes = group.sizes[service]
            uses[service] = Use(
                cap,
                sum(sizes) / len(sizes) if sizes else UNKNOWN_REQUESTS,
                present[service],
                len(prompts.get(service, ())),
                _blocks(self._demand(service)) * group.block_bytes[service],
            )
        group.caps, group.spare_bytes = adapted(uses, group.spare_bytes)

    def _prefill(
        self,
        draft: Draft,
        group: _Group,
        prompts: _Own,
        decodes: _Own,
        prefilling: Iterable[ServiceId],
    ) -> bool:
        """Launch prompts of services in turn; whether prompts with room in KV are left waiting."""
        waits = False
        for service in _in_turn(prompts, group.prefilled):
            room = self._most(group, service) - len(decodes.get(service, ()))
            first = prompts[service][0]
            if room <= 0 or not draft.kv.fits({first.facts.id: missing_tokens(first)}):
                continue
            share = group.prefill_shares[service]
            if service in prefilling or draft.share_left < share - 1e-9:
                waits = True
                continue
            draft.open_batch(service, share)
            if admit(draft, prompts[service][:room], self._rule, 0):
                group.prefilled = service
        return waits

    def _decode(self, draft: Draft, group: _Group, decodes: _Own) -> tuple[ServiceId | None, bool]:
        """Launch decodes of services in turn, as long as there are SMs for them.

        Where KV is short the last requests of a decode are preempted. Returns the last service, and
        whether no decode was left out and no request preempted.
        """
        last, all_run = None, True
        for service in _in_turn(decodes, group.decoded):
            share = group.decode_shares[service]
            if service in group.decoding:
                continue
            if draft.share_left < share - 1e-9:
                all_run = False
                continue
            most = min(self._most(group, service), draft.requests_left)
            batch = decodes[service][:most]
            while batch and not draft.kv.fits({request.facts.id: 1 for request in batch}):
                draft.preempt(batch.pop())
                all_run = False
            if not batch:
                continue
            draft.open_batch(service, share)
            draft.try_run_all(batch, len(batch))
            group.decoding[service] = _Decoding(batch[0], batch[0].context_tokens, len(batch))
            last = service
        return last, all_run

    def _most(self, group: _Group, service: ServiceId) -> int:
        return min(group.caps[service], self._rule.max_num_seqs)


def caps(
    capacity: int, block_sizes: Mapping[ServiceId, int], demands: Mapping[ServiceId, ServiceDemand]
) -> dict[ServiceId, int]:
    """Requests of mean length for which the share of each service of the KV has room.

    Shares go by rate and KV of a token. `capacity` and blocks of 32 tokens are in the same unit.
    """
    weights = {name: demands[name].rate_per_s * size for name, size in block_sizes.items()}
    total, found = sum(weights.values()), {}
    for name, size in block_sizes.items():
        blocks = int(weights[name] / total * capacity) // size
        found[name] = max(1, blocks // _blocks(demands[name]))
    return found


def _blocks(demand: ServiceDemand) -> int:
    """Whole blocks of a request of mean length."""
    return max(1, (demand.prompt_tokens + demand.output_tokens) // BLOCK_TOKENS)


def adapted(uses: Mapping[ServiceId, Use], spare: int) -> tuple[dict[ServiceId, int], int]:
    """Caps after full services have taken from others, and KV that is in none of them.

    KV is in the unit of the sizes of requests; `spare` is what was in no cap before.
    """
    full = [name for name, use in uses.items() if use.mean / use.cap >= FULL]
    full.sort(key=lambda name: -uses[name].mean / uses[name].cap)
    free = {
        name: int(max(1, (NEARLY_FULL - use.mean / use.cap) * use.cap)) * use.request_size
        for name, use in uses.items()
        if name not in full
    }
    given, all_free = dict.fromkeys(free, 0), sum(free.values())
    sizes = {name: uses[name].cap * uses[name].request_size for name in (*free, *full)}
    for name in full:
        use = uses[name]
        if use.present < BACKLOG * use.mean:
            continue
        more = min(max(1, int(STEP * use.mean)), int(use.present - use.mean)) * use.request_size
        for giver, of_giver in free.items():
            part = min(int(more * of_giver / all_free), of_giver - given[giver])
            given[giver] += part
            sizes[giver] -= part
            sizes[name] += part
    return _whole(sizes, uses, spare)


def _whole(
    sizes: Mapping[ServiceId, int], uses: Mapping[ServiceId, Use], spare: int
) -> tuple[dict[ServiceId, int], int]:
    """Caps of whole requests: fractions go to the next service, then to those that wait most."""
    found = {}
    for name, size in sizes.items():
        cap, rest = divmod(size, uses[name].request_size)
        missing = uses[name].request_size - rest
        adds = spare > missing
        found[name] = max(1, cap + adds)
        spare += -missing if adds else rest
    for name in sorted(found, key=lambda name: (-uses[name].waiting, name)):
        more, spare = divmod(spare, uses[name].request_size)
        found[name] += more
    return found, spare


def _note_decodes(group: _Group, view: GroupView) -> set[ServiceId]:
    """Note the sizes of decodes that have ended; returns services with a prefill in flight.

    The KV of prompts is there when they end.
    """
    prefilling, decoding = set(), {}
    for service, (request, before, size) in group.decoding.items():
        context_tokens = request.context_tokens
        group.sizes[service].extend([size] * (context_tokens - before))
        decoding[service] = _Decoding(request, context_tokens, size)
    group.decoding = {}
    for service, tokens in ((batch.service, batch.tokens) for batch in view.in_flight):
        if view.requests[next(iter(tokens))].kv_tokens <= 0:
            prefilling.add(service)
        else:
            group.decoding[service] = decoding[service]
    return prefilling


def _in_turn(services: Iterable[ServiceId], last: ServiceId) -> list[ServiceId]:
    """Services by name, those behind the one that had the last turn first."""
    return sorted(services, key=lambda name: (name <= last, name))


def _by_phase(view: GroupView) -> tuple[_Own, _Own]:
    """Requests that have no KV, and requests that hold some."""
    prompts, decodes = defaultdict[ServiceId, list[RequestView]](list), defaultdict(list)
    running = {name for batch in view.in_flight for name in batch.tokens}
    for name, request in view.requests.items():
        if request.kv_tokens > 0:
            decodes[request.facts.service].append(request)
        elif name not in running:
            prompts[request.facts.service].append(request)
    return prompts, decodes
