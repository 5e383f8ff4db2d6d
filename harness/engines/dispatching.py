"""Which group takes a request: as a dispatch policy says, or as the load order says that it gave.

Loads are counted from what groups have been given and have not answered, so that an engine whose
groups are processes elsewhere counts them as well as one that holds all of their state.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.engines.live import LiveCluster, LiveState
from harness.engines.state import UNWEIGHED, Ints
from harness.interface.entities import GroupId, ServiceId
from harness.interface.load_order import LoadOrder, TurnOrder
from harness.interface.policies import DispatchPolicy, reads_progress


@dataclass(slots=True)
class Dispatching:
    """Asks the policy, and follows the load orders that it has given.

    `unanswered` has the requests of a group that have been given to it, ascending; `catch_up` is
    called before the computed state of groups is read. `orders` has the order of a service,
    with the groups for which it stands, `turns` how many of its requests have gone in turn,
    `changed` the services of which it is new. `named` has the services for whose requests the
    policy names groups.
    """

    policy: DispatchPolicy
    view: LiveCluster
    state: LiveState
    unanswered: Callable[[GroupId], Ints]
    catch_up: Callable[[], None]
    orders: dict[ServiceId, tuple[LoadOrder | TurnOrder, list[GroupId]]] = field(
        default_factory=dict
    )
    turns: Counter[ServiceId] = field(default_factory=Counter)
    changed: set[ServiceId] = field(default_factory=set)
    named: set[ServiceId] = field(default_factory=set)

    def choose(
        self,
        requests: Sequence[int],
        service: ServiceId,
        homes: list[GroupId],
        known: Mapping[int, GroupId],
    ) -> dict[int, GroupId]:
        """The group of each request, in this order (ascending), where it is not `known` already."""
        asked = [request for request in requests if request not in known]
        chosen = dict(known)
        order = self._standing(service, homes)
        if asked and order is None:
            names = self.ahead(asked, service, homes)
            order = self._standing(service, homes)
            chosen |= zip(asked, names or (), strict=names is not None)
        if isinstance(order, TurnOrder):
            chosen |= {request: self._next(service, homes) for request in asked}
        elif order is not None:
            self.weigh(order, np.array(requests, np.int64))
            chosen |= self._by_load(order, asked, homes, known)
        return {r: chosen[r] for r in requests if r in chosen} if known else chosen

    def ahead(
        self, requests: Sequence[int], service: ServiceId, homes: list[GroupId]
    ) -> Sequence[GroupId] | None:
        """The groups that the policy names for these; None where an order stands or begins to.

        ValueError where it has not a group for each, or gives an order after it has named groups.
        """
        if self._standing(service, homes) is not None:
            return None
        if reads_progress(self.policy):
            self.catch_up()
        answer = self.policy.dispatch(requests, service, self.view)
        name = type(self.policy).__name__
        if not isinstance(answer, LoadOrder | TurnOrder):
            if len(answer) != len(requests):
                raise ValueError(f"{name} names {len(answer)} groups for {len(requests)} requests")
            self.named.add(service)
            return answer
        if service in self.named:
            # An engine may have counted on the groups that were named before.
            raise ValueError(
                f"{name} has named groups for requests of {service} and now leaves them to a load"
                " order; it is to do the one or the other throughout"
            )
        self._stand(service, homes, answer)
        return None

    def _next(self, service: ServiceId, homes: list[GroupId]) -> GroupId:
        """The group whose turn it is."""
        self.turns[service] += 1
        return homes[(self.turns[service] - 1) % len(homes)]

    def _standing(self, service: ServiceId, homes: list[GroupId]) -> LoadOrder | TurnOrder | None:
        """The order of a service while its groups are the ones that it was given for."""
        order, groups = self.orders.get(service, (None, homes))
        return order if groups == homes else None

    def _stand(
        self, service: ServiceId, homes: list[GroupId], order: LoadOrder | TurnOrder
    ) -> None:
        """An order holds from now on, for requests that are there already, too."""
        self.orders[service] = order, homes
        self.changed.add(service)
        if isinstance(order, LoadOrder):
            workload = self.state.workload
            index = [known.id for known in workload.services].index(service)
            self.state.arrays.weight[workload.service == index] = UNWEIGHED
            for home in homes:
                self.weigh(order, self.unanswered(home))

    def weigh(self, order: LoadOrder, requests: Ints) -> None:
        """Note what requests weigh that no order has weighed."""
        weight = self.state.arrays.weight
        new = requests[weight[requests] == UNWEIGHED]
        if len(new):
            weight[new] = order.weights(self.state.table(new))

    def _by_load(
        self,
        order: LoadOrder,
        asked: Sequence[int],
        homes: list[GroupId],
        known: Mapping[int, GroupId],
    ) -> dict[int, GroupId]:
        """Each request goes to the group with the least load, one after the other."""
        if order.adds_generated:
            self.catch_up()
        loads = {home: self._load(order, self.unanswered(home)) for home in homes}
        for request, group in known.items():
            loads[group] += self._load(order, np.array([request]))
        chosen = {}
        for request in asked:
            chosen[request] = min(homes, key=loads.__getitem__)
            loads[chosen[request]] += self._load(order, np.array([request]))
        return chosen

    def _load(self, order: LoadOrder, requests: Ints) -> int:
        # Calls of a chain may be there that nothing has dispatched.
        self.weigh(order, requests)
        load = int(self.state.arrays.weight[requests].sum())
        if order.adds_generated:
            load += int(self.state.arrays.generated[requests].sum())
        return load
