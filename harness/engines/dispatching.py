"""Which group takes a request: as a dispatch policy says, or as the load order says that it gave.

Loads are counted from what groups have been given and have not answered, so that an engine whose
groups are processes elsewhere counts them as well as one that holds all of their state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.engines.live import LiveCluster, LiveState
from harness.engines.state import Ints
from harness.interface.entities import GroupId, ServiceId
from harness.interface.load_order import LoadOrder
from harness.interface.policies import DispatchPolicy

UNKNOWN = -1
"""What a request weighs that no load order has weighed."""


@dataclass(slots=True)
class Dispatching:
    """Asks the policy, and follows the load orders that it has given.

    `unanswered` has the requests of a group that have been given to it, ascending; `catch_up` is
    called before somebody looks at what groups have computed. `orders` has the load order of a
    service, with the groups for which it stands, `weights` what every request weighs in its group.
    `to_come` has the requests that were handed out ahead of time: they go where the load is least
    when they arrive. `named` has the services for whose requests the policy names groups.
    """

    policy: DispatchPolicy
    view: LiveCluster
    state: LiveState
    unanswered: Callable[[GroupId], Ints]
    catch_up: Callable[[], None]
    orders: dict[ServiceId, tuple[LoadOrder, list[GroupId]]] = field(default_factory=dict)
    weights: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    to_come: dict[ServiceId, list[int]] = field(default_factory=dict)
    named: set[ServiceId] = field(default_factory=set)

    def choose(
        self,
        requests: Sequence[int],
        service: ServiceId,
        homes: list[GroupId],
        known: Mapping[int, GroupId],
    ) -> dict[int, GroupId]:
        """The group of each request, in this order (ascending); `known` has that of some already.

        Those that are `to_come` get none yet.
        """
        asked = [request for request in requests if request not in known]
        order, chosen = self._standing(service, homes), dict(known)
        if asked and order is None:
            answer = self._ask(asked, service)
            if isinstance(answer, LoadOrder):
                order = answer
                self._refuse_change(service)
                self._stand(service, homes, order)
            else:
                self.named.add(service)
                chosen |= zip(asked, answer, strict=True)
        if order is not None:
            self._weigh(order, np.array(requests, np.int64))
            chosen |= self._by_load(order, asked, service, homes, known)
        return {r: chosen[r] for r in requests if r in chosen} if known else chosen

    def _ask(self, requests: list[int], service: ServiceId) -> Sequence[GroupId] | LoadOrder:
        """What the policy says. ValueError where it has not a group for each."""
        if self.policy.reads_load:
            self.catch_up()
        answer = self.policy.dispatch(requests, service, self.view)
        if not isinstance(answer, LoadOrder) and len(answer) != len(requests):
            name = type(self.policy).__name__
            raise ValueError(f"{name} names {len(answer)} groups for {len(requests)} requests")
        return answer

    def _refuse_change(self, service: ServiceId) -> None:
        """Raise ValueError where groups were named before: an engine may have counted on it."""
        if service in self.named:
            raise ValueError(
                f"{type(self.policy).__name__} has named groups for requests of {service} and now "
                "leaves them to a load order; it is to do the one or the other throughout"
            )

    def _standing(self, service: ServiceId, homes: list[GroupId]) -> LoadOrder | None:
        """The load order of a service while its groups are those that it was given for."""
        order, groups = self.orders.get(service, (None, homes))
        return order if groups == homes else None

    def _stand(self, service: ServiceId, homes: list[GroupId], order: LoadOrder) -> None:
        """A load order holds from now on, for those that are there already, too."""
        self.orders[service] = order, homes
        workload = self.state.workload
        if not len(self.weights):
            self.weights = np.full(len(workload), UNKNOWN)
        index = [known.id for known in workload.services].index(service)
        self.weights[workload.service == index] = UNKNOWN
        for home in homes:
            self._weigh(order, self.unanswered(home))

    def _weigh(self, order: LoadOrder, requests: Ints) -> None:
        new = requests[self.weights[requests] == UNKNOWN]
        self.weights[new] = order.weights(self.state.table(new))

    def _by_load(
        self,
        order: LoadOrder,
        asked: Sequence[int],
        service: ServiceId,
        homes: list[GroupId],
        known: Mapping[int, GroupId],
    ) -> dict[int, GroupId]:
        """Who has come goes to the group with the least load, one after the other."""
        is_later = self.state.arrays.arrival_s[asked] > self.state.now_s
        later = [r for r, is_so in zip(asked, is_later.tolist(), strict=True) if is_so]
        if later:
            self.to_come.setdefault(service, []).extend(later)
        if len(later) == len(asked):
            return {}
        if order.adds_generated:
            self.catch_up()
        loads = {home: self._load(order, self.unanswered(home)) for home in homes}
        for request, group in known.items():
            loads[group] += self._load(order, np.array([request]))
        chosen = {}
        for request, is_so in zip(asked, is_later.tolist(), strict=True):
            if not is_so:
                chosen[request] = min(homes, key=loads.__getitem__)
                loads[chosen[request]] += self._load(order, np.array([request]))
        return chosen

    def _load(self, order: LoadOrder, requests: Ints) -> int:
        # Calls of a chain may be there that nobody has dispatched.
        self._weigh(order, requests)
        load = int(self.weights[requests].sum())
        if order.adds_generated:
            load += int(self.state.arrays.generated[requests].sum())
        return load
