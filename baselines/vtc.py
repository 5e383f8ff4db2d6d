"""VTC: the client with the least service so far is served next.

Paper      Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, arXiv 2401.00588;
           sections below are its sections.
Idea       A counter per client grows by the prompts that are admitted for it and the tokens that
           are generated for it. The earliest request of the client with the lowest counter is
           admitted next. A client that had nothing in the queue does not use up what it has not
           asked for: its counter is lifted to the lowest of waiting tenants.
Map        4.1 Algorithm 2, execution stream  -> `_Counters.charge`, `_Counters.key`
           4.1 Algorithm 2, counter lift      -> `_Counters.lift`
Constants  prices 1 of a prompt's token and 2 of an answer's, of its program; `renew_s`: its program
           admits every 10 decodes; `client`, `displaces` and the batch rule: of the scenario, see
           scenarios/policy/vtc.yaml
Differs    service is counted when keys are asked, on arrivals and answers and every `renew_s`;
           until then the requests of a client that wait are ordered as if those before them had
           been admitted. `lifts_to_departed` is the paper's rule for an empty queue: lift to the
           counter of the client that left it last; its program does not lift then. Where KV is
           short, the client with the most service gives way. Each group of a cluster has a queue
           and counters of its own, which count requests of other groups when they end
Checked    baselines/tests/test_vtc.py::test_counters_by_hand
           baselines/tests/test_vtc.py::test_a_newcomer_is_lifted_to_clients_that_wait_by_hand
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import ClassVar

import numpy as np

from harness.interface.decisions import ContinuousBatching, Decision, Displaced, PriorityOrder
from harness.interface.entities import AppId, GroupId, Request
from harness.interface.events import AppArrived, Arrived, Event, Finished, Moved
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView


class Vtc:
    """Scheduling policy: a priority order by counter."""

    requires: frozenset[Capability]
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({AppArrived, Arrived, Moved, Finished})

    def __init__(
        self,
        *,
        rule: ContinuousBatching,
        client: str,
        displaces: str | None,
        prompt_price: float,
        output_price: float,
        lifts_to_departed: bool,
        renew_s: float,
    ) -> None:
        """`client`: kind of application, application, or tenant.

        `displaces`: pause, recompute, swap, or None. ValueError for another word and for negative
        prices.
        """
        if client not in ("kind", "application", "tenant"):
            raise ValueError(f"policy.client is {client}, not kind, application or tenant")
        if min(prompt_price, output_price) < 0:
            raise ValueError(
                f"policy.prompt_price {prompt_price} and policy.output_price {output_price} must be"
                " at least 0"
            )
        how = None if displaces is None else Displaced(displaces)
        self.requires = frozenset({Capability.SWAP} if how is Displaced.SWAP else ())
        self._client = client
        self._counters_of = partial(_Counters, prompt_price, output_price, lifts_to_departed)
        self._kinds: dict[AppId, str] = {}
        self._clients: dict[object, int] = {}
        """Numbers of clients."""
        self._counters: dict[GroupId, _Counters] = {}
        self._order = PriorityOrder(None, rule, how, renews=True, renew_s=renew_s)
        self._decisions: dict[GroupId, Decision] = {}

    def observe(self, event: Event) -> None:
        """Put requests into the queues of their groups, count their service when they end."""
        match event:
            case AppArrived():
                self._kinds[event.app] = event.kind
            case Arrived() | Moved():
                for counters in self._counters.values():
                    counters.depart(event.request.id)
                name = self._name(event.request)
                number = self._clients.setdefault(name, len(self._clients))
                self._of(event.group).arrive(event.request, number)
            case Finished():
                number = self._clients[self._name(event.request)]
                for counters in self._counters.values():
                    counters.end(event.request, number, event.output_tokens)

    def schedule(self, view: GroupView) -> Decision:
        """The priority order of each group, which stands."""
        group = view.group.id
        if group not in self._decisions:
            order = replace(self._order, key=self._of(group).key)
            self._decisions[group] = Decision(priority_order=order)
        return self._decisions[group]

    def _of(self, group: GroupId) -> "_Counters":
        if group not in self._counters:
            self._counters[group] = self._counters_of()
        return self._counters[group]

    def _name(self, request: Request) -> object:
        """Of the client; requests of no application have the tenant alone."""
        if self._client == "application":
            return request.app
        if self._client == "kind":
            return self._kinds.get(request.app, request.tenant)
        return request.tenant


@dataclass(slots=True)
class _Counters:
    """Queue and counters of a group, by number of the client."""

    prompt_price: float
    output_price: float
    lifts_to_departed: bool
    counter: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    queues: dict[int, dict[int, float]] = field(default_factory=dict)
    """By client, requests that were not admitted when keys were last asked, in order of arrival,
    with the price of each prompt."""
    client: dict[int, int] = field(default_factory=dict)
    charged: dict[int, float] = field(default_factory=dict)
    """By request that is here; prices that have been counted of admitted requests."""
    departed: int | None = None

    def arrive(self, request: Request, client: int) -> None:
        """A request comes to the queue."""
        if client not in self.queues:
            self.lift(client)
        prompt = self.prompt_price * request.prompt_tokens
        self.queues.setdefault(client, {})[request.id] = prompt
        self.client[request.id] = client

    def lift(self, client: int) -> None:
        """Counter lift of a client that has nothing in the queue."""
        floor = 0.0
        if self.queues:
            floor = min(self.counter[other] for other in self.queues)
        elif self.lifts_to_departed and self.departed is not None:
            floor = self.counter[self.departed]
        self.counter[client] = max(self.counter[client], floor)

    def depart(self, request: int) -> bool:
        """Take a request from the queue; returns whether it was there."""
        client = self.client.get(request)
        queue = {} if client is None else self.queues.get(client, {})
        if client is None or request not in queue:
            return False
        del queue[request]
        if not queue:
            del self.queues[client]
        return True

    def charge(self, request: int, client: int, price: float) -> None:
        """Count the service of a request up to a price; it has been admitted."""
        if self.depart(request):
            self.departed = client
        # A prompt that was preempted before its end has been charged already.
        more = max(price - self.charged.get(request, 0.0), 0.0)
        self.counter[client] += more
        self.charged[request] = self.charged.get(request, 0.0) + more

    def end(self, request: Request, client: int, output_tokens: int) -> None:
        """Count the rest of the service of a request of any group."""
        price = self.prompt_price * request.prompt_tokens + self.output_price * output_tokens
        self.charge(request.id, client, price)
        del self.charged[request.id]
        self.client.pop(request.id, None)

    def key(self, table: RequestTable) -> Floats:
        """Each client's counter, and what its requests before this one in the queue will add."""
        has_begun = (table.kv_tokens > 0) | (table.generated_tokens > 0)
        prices = (
            self.prompt_price * table.prompt_tokens + self.output_price * table.generated_tokens
        )
        ids = table.id.tolist()
        for row in np.flatnonzero(has_begun).tolist():
            self.charge(ids[row], self.client[ids[row]], float(prices[row]))
        ahead: dict[int, float] = {}
        for queue in self.queues.values():
            ahead |= zip(queue, accumulate(queue.values(), initial=0.0), strict=False)
        # Requests that have not come yet may be asked about ahead, and are then asked again.
        return np.array(
            [
                self.counter[self.client[i]] + ahead.get(i, 0.0) if i in self.client else np.inf
                for i in ids
            ]
        )
