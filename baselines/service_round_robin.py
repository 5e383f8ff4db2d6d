"""Round robin over the services of a group: prompts of each in turn, then decodes of each in turn.

Paper      Duan et al., MuxServe: Flexible Spatial-Temporal Multiplexing for Multiple LLM Serving,
           ICML 2024; as Zhao et al., SeaLLM: Service-Aware and Latency-Optimized Resource Sharing
           for Large Language Model Inference, sections 2.2 and 4.2, compare with it.
Idea       An iteration is of one service. Of the services with a prompt that can be admitted, the
           one whose prompts ran longest ago is next; where there is none, of services that decode,
           the one whose turn began longest ago. In a service, first come first served.
Map        round robin for the prefill phase -> `_prefill`
           time shared by decodes            -> `_decode`
Constants  `quantum_s`, how long a service decodes before the next one does: chosen by us; `rule`:
           see scenarios/policy/service_round_robin.yaml
Differs    MuxServe decodes services side by side on shares of the SMs and bounds the KV of each;
           here services share time and one KV pool. Newcomers never preempt. Where KV is short for
           a decode, the latest request of all services is preempted, so that the oldest goes on:
           were each service to take the KV of the one before it, none would ever end
Checked    baselines/tests/test_service_round_robin.py::test_five_requests_by_hand
           baselines/tests/test_service_round_robin.py::test_services_decode_in_turn_by_hand
           baselines/tests/test_service_round_robin.py::test_the_oldest_request_keeps_its_kv_by_hand
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from harness.core.draft import Draft
from harness.core.fill import admit, run_in_order
from harness.interface.decisions import ContinuousBatching, Decision
from harness.interface.entities import GroupId, ServiceId
from harness.interface.events import Event
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView

_Own = Mapping[ServiceId, Sequence[RequestView]]
"""Requests of each service, by arrival."""
_Times = dict[tuple[GroupId, ServiceId], float]


class ServiceRoundRobin:
    """Scheduling policy: decides whenever something happens or a turn ends."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, *, rule: ContinuousBatching, quantum_s: float) -> None:
        """Fill batches by `rule`, whose prompts go first and are whole.

        ValueError for another rule, and for a quantum that is not positive.
        """
        if not quantum_s > 0:
            raise ValueError(f"policy.quantum_s is {quantum_s}, it must be above 0")
        for name, wanted in (("chunked_prefill", False), ("prompts_first", True)):
            if getattr(rule, name) is not wanted:
                raise ValueError(f"policy.rule.{name} is {not wanted}, it must be {wanted}")
        self._rule, self._quantum_s = rule, quantum_s
        self._prefilled_s: _Times = {}
        self._began_s: _Times = {}
        self._turn: dict[GroupId, ServiceId] = {}

    def observe(self, event: Event) -> None:
        """Nothing to learn: services run only by its decisions."""

    def schedule(self, view: GroupView) -> Decision:
        """A batch of prompts of one service, else of decodes of one."""
        prompts: dict[ServiceId, list[RequestView]] = {}
        decodes: dict[ServiceId, list[RequestView]] = {}
        for request in view.requests.values():
            phase = decodes if request.kv_tokens > 0 else prompts
            phase.setdefault(request.facts.service, []).append(request)
        draft = Draft(view)
        if self._prefill(draft, prompts, decodes):
            return draft.decision()
        return self._decode(draft, decodes) if decodes else draft.decision()

    def _prefill(self, draft: Draft, prompts: _Own, decodes: _Own) -> bool:
        """Admit whole prompts of the first service in turn that has room; whether one has."""
        view = draft.view
        for service in _in_turn(view.group.id, prompts, self._prefilled_s):
            holders = len(decodes.get(service, ()))
            if admit(draft, prompts[service], self._rule, holders):
                self._prefilled_s[view.group.id, service] = view.now_s
                return True
        return False

    def _decode(self, draft: Draft, decodes: _Own) -> Decision:
        """Decode the service whose turn it is, or the next one where that has nothing to run."""
        service, ends_s = self._turn_of(draft.view, decodes)
        holders = sorted((r for own in decodes.values() for r in own), key=lambda r: r.facts.id)
        budget = self._rule.max_num_batched_tokens
        others = _in_turn(draft.view.group.id, decodes.keys() - {service}, self._began_s)
        for own in (service, *others):
            first = decodes[own][: self._rule.max_num_seqs]
            run_in_order(draft, first, budget=budget, victims=holders, itself=True)
            if not draft.is_empty:
                break
        stays = not draft.preempts_any and all(map(draft.runs, decodes[service]))
        return draft.decision(steady=stays, wake_s=ends_s if stays else None)

    def _turn_of(self, view: GroupView, decodes: _Own) -> tuple[ServiceId, float | None]:
        """The service whose turn it is to decode and when that ends; never where it is alone."""
        name, now_s = view.group.id, view.now_s
        service = self._turn.get(name)
        if service is not None and service in decodes and len(decodes) > 1:
            ends_s = self._began_s[name, service] + self._quantum_s
            if now_s < ends_s:
                return service, ends_s
        service = _in_turn(name, decodes, self._began_s)[0]
        self._began_s[name, service] = now_s
        if len(decodes) == 1:
            self._turn.pop(name, None)
            return service, None
        self._turn[name] = service
        return service, now_s + self._quantum_s


def _in_turn(group: GroupId, services: Iterable[ServiceId], last_s: _Times) -> list[ServiceId]:
    """The services, the one that ran longest ago first, then by name."""
    return sorted(services, key=lambda service: (last_s.get((group, service), -1.0), service))
