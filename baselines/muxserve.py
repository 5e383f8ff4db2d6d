"""MuxServe's scheduling: services side by side on shares of the SMs, each within a quota of KV.

Paper      Duan et al., MuxServe: Flexible Spatial-Temporal Multiplexing for Multiple LLM Serving,
           ICML 2024; sections below are its sections. Program: hao-ai-lab/MuxServe@2231480
Idea       A prefill takes most SMs, a decode as few as its service needs, so that decodes of
           several services and a prefill run at the same time. Quotas of KV move to services that
           use theirs up.
Map        Algorithm 3 (ADBS), round-robin prefills        -> `_prefill`
           Algorithm 3, round-robin decodes on SMs left    -> `_decode`
           Algorithm 3, quotas adapt                       -> `adapted`
           3.2, SMs of a decode from rate and lengths      -> harness.planning.sm_shares
           program: decodes wait for a prefill without SMs -> `schedule`
Constants  `prefill_share` 0.8 and `adapts_after_s` 8: of the program; the rest of `rule`: see
           scenarios/policy/muxserve.yaml
Differs    The program's prefills take 80% of the SMs for 7B, 90% for 13B and all for larger models,
           here as many for all. A service alone in its group gets all SMs. Quotas are of bytes and
           go by what is held when they adapt, not by a mean of batches. One prompt may exceed a
           quota of which nothing is held. Without a history services are given equal parts. Where
           KV is short for a decode, the latest request that is not in flight is preempted
Checked    baselines/tests/test_muxserve.py::test_a_prefill_beside_a_decode_by_hand
           baselines/tests/test_muxserve.py::test_quotas_adapt_by_hand
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar

from harness.interface.decisions import Batch, ContinuousBatching, Decision, PreemptionMode
from harness.interface.draft import Draft
from harness.interface.entities import GroupId, ServiceId
from harness.interface.events import Event, Iterated
from harness.interface.filling import NOTHING_RESERVED, admit_prompts, run_holders
from harness.interface.policies import Capability, CostModel
from harness.interface.views import GroupView, RequestView, missing_tokens
from harness.planning.forecast import Window
from harness.planning.sm_shares import ShareEstimates, demands

FULL, NEARLY_FULL, STEP = 0.9, 0.95, 0.1
"""Of the program: a service that has used so much of its quota takes more; others keep so much
beyond what they hold; a step is so much of what is held."""

_Own = Mapping[ServiceId, Sequence[RequestView]]
"""Requests of each service, by arrival."""


@dataclass(slots=True)
class _Group:
    """Of one group: shares of the SMs by service, quotas in bytes, and services by last turn."""

    prefill_share: float
    decode_shares: Mapping[ServiceId, float]
    quotas: dict[ServiceId, float]
    adapts_s: float
    prefilled: list[ServiceId] = field(default_factory=list)
    decoded: list[ServiceId] = field(default_factory=list)


class MuxServe:
    """Scheduling policy: asked whenever something happens while SMs are free."""

    requires: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.SHARED_GROUP, Capability.GPU_SHARE}
    )
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Iterated})

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
        """A decode has ended: the turn of the other services of its group comes first."""
        if isinstance(event, Iterated) and not _is_prefill(event.batch):
            _took_turn(event.batch.service, self._groups[event.group].decoded)

    def schedule(self, view: GroupView) -> Decision:
        """Prefills in turn, then decodes in turn; no new decodes while a prefill waits for SMs."""
        group = self._groups.get(view.group.id)
        if group is None:
            group = self._groups[view.group.id] = self._new_group(view)
        prompts, decodes = _by_phase(view)
        held = held_bytes(view)
        if view.now_s >= group.adapts_s:
            group.quotas = adapted(group.quotas, held, prompts.keys())
            group.adapts_s = view.now_s + self._adapts_after_s
        draft = Draft(view)
        waits = self._prefill(draft, group, prompts, decodes, held)
        prefills = not draft.is_empty or any(map(_is_prefill, view.in_flight))
        if not waits or prefills:
            self._decode(draft, group, prompts, decodes)
        wake_s = group.adapts_s if prompts else None
        return draft.decision(steady=not waits and not prefills, wake_s=wake_s)

    def _new_group(self, view: GroupView) -> _Group:
        names, size = sorted(view.services), view.group.tensor_parallel
        weights = {}
        for name in names:
            demand = self._estimates.demands.get(name)
            rate = 1.0 if not self._estimates.demands else demand.rate_per_s if demand else 1e-3
            weights[name] = rate * view.services[name].kv_bytes_per_token
        total = sum(weights.values())
        quotas = {name: view.kv.capacity_bytes * it / total for name, it in weights.items()}
        if len(names) == 1:
            return _Group(1.0, {names[0]: 1.0}, quotas, inf)
        if not self._estimates.demands:
            shares = dict.fromkeys(names, 1.0 / len(names))
        else:
            shares = {name: self._estimates.decode_share(name, size) for name in names}
        return _Group(self._prefill_share, shares, quotas, view.now_s + self._adapts_after_s)

    def _prefill(
        self,
        draft: Draft,
        group: _Group,
        prompts: _Own,
        decodes: _Own,
        held: Mapping[ServiceId, int],
    ) -> bool:
        """Launch prompts of services in turn; whether prompts with room in KV are left waiting."""
        view, waits = draft.view, False
        busy = {batch.service for batch in view.in_flight}
        for service in _in_turn(prompts, group.prefilled):
            holders = len(decodes.get(service, ()))
            within = self._within_quota(view, prompts[service], group.quotas[service], held)
            if not within or holders >= self._rule.max_num_seqs:
                continue
            first = within[0]
            if not draft.kv.fits({first.facts.id: missing_tokens(first)}):
                continue
            if service in busy or draft.share_left < group.prefill_share - 1e-9:
                waits = True
                continue
            draft.open_batch(service, group.prefill_share)
            if admit_prompts(draft, within, self._rule, holders, NOTHING_RESERVED):
                _took_turn(service, group.prefilled)
        return waits

    def _within_quota(
        self,
        view: GroupView,
        prompts: Sequence[RequestView],
        quota: float,
        held: Mapping[ServiceId, int],
    ) -> Sequence[RequestView]:
        """Prompts, in order, of which the KV fits a quota; the first where nothing is held."""
        service = prompts[0].facts.service
        token_bytes = view.services[service].kv_bytes_per_token
        used = held.get(service, 0)
        for place, request in enumerate(prompts):
            used += request.context_tokens * token_bytes
            if used > quota and (place or held.get(service, 0)):
                return prompts[:place]
        return prompts

    def _decode(self, draft: Draft, group: _Group, prompts: _Own, decodes: _Own) -> None:
        """Launch decodes of services in turn, as long as there are SMs for them."""
        busy = {batch.service for batch in draft.view.in_flight}
        busy |= {service for service, own in prompts.items() if any(map(draft.runs, own))}
        for service in _in_turn(decodes, group.decoded):
            share = group.decode_shares[service]
            if service in busy or draft.share_left < share - 1e-9:
                continue
            idle = (r for own in decodes.values() for r in own if not r.is_running)
            victims = [r for r in idle if not draft.runs(r) and not draft.preempts(r)]
            first = [r for r in decodes[service] if not draft.preempts(r)]
            first = first[: self._rule.max_num_seqs]
            if not first:
                continue
            draft.open_batch(service, share)
            run_holders(
                draft,
                first,
                self._rule.max_num_batched_tokens,
                PreemptionMode.RECOMPUTE,
                victims=sorted(victims, key=lambda request: request.facts.id),
            )


def adapted(
    quotas: Mapping[ServiceId, float],
    held: Mapping[ServiceId, int],
    waiting: Iterable[ServiceId],
) -> dict[ServiceId, float]:
    """Quotas after services that use theirs up, and have prompts waiting, have taken from others.

    Each takes a tenth of what it holds, from every other by how much that has free.
    """
    new = dict(quotas)
    free = {
        service: NEARLY_FULL * quota - held.get(service, 0)
        for service, quota in quotas.items()
        if held.get(service, 0) < FULL * quota
    }
    all_free = sum(free.values())
    for service in sorted(set(waiting) - free.keys()):
        wanted = STEP * held.get(service, 0)
        for giver, of_giver in free.items():
            given = min(wanted * of_giver / all_free, new[giver] - held.get(giver, 0))
            new[giver] -= max(0.0, given)
            new[service] += max(0.0, given)
    return new


def held_bytes(view: GroupView) -> dict[ServiceId, int]:
    """Bytes of KV that each service holds, of batches in flight too."""
    held: dict[ServiceId, int] = {}
    for name, tokens in view.kv.holders.items():
        service = view.requests[name].facts.service
        held[service] = held.get(service, 0) + tokens * view.services[service].kv_bytes_per_token
    return held


def _is_prefill(batch: Batch) -> bool:
    """Whether a batch computes prompts: a decode has a token of each request."""
    return max(batch.tokens.values()) > 1


def _in_turn(services: Iterable[ServiceId], served: Sequence[ServiceId]) -> list[ServiceId]:
    """Services without a turn so far by name, then those whose last turn is longest ago."""
    return sorted(services, key=lambda it: (served.index(it) if it in served else -1, it))


def _took_turn(service: ServiceId, served: list[ServiceId]) -> None:
    """A service goes to the end of the round."""
    if service in served:
        served.remove(service)
    served.append(service)


def _by_phase(view: GroupView) -> tuple[_Own, _Own]:
    """Requests that have no KV, and requests that hold some."""
    prompts: dict[ServiceId, list[RequestView]] = {}
    decodes: dict[ServiceId, list[RequestView]] = {}
    for request in view.requests.values():
        if request.kv_tokens > 0:
            decodes.setdefault(request.facts.service, []).append(request)
        elif not request.is_running:
            prompts.setdefault(request.facts.service, []).append(request)
    return prompts, decodes
