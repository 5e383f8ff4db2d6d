"""The life of every request of a run, the same on both engines.

It arrives, or waits for the answers of others; it is predicted, dispatched to a group of its
service, perhaps moved to another, and answered, which releases calls that waited for it alone and
may drain its service. An engine says when; what then follows is decided here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.engines.live import LiveCluster, LiveState, SeenGroup
from harness.engines.state import UNWEIGHED, Floats, Ints, RequestArrays, new_arrays
from harness.interface.apps import OUTSIDE
from harness.interface.entities import (
    Cluster,
    GroupId,
    LengthPrediction,
    RequestId,
    Service,
    ServiceId,
)
from harness.interface.graph import NO_CALL, Graph
from harness.interface.load_order import LoadOrder, TurnOrder
from harness.interface.policies import DispatchPolicy, LengthPredictor, System, reads_progress
from harness.workloads.workload import Workload


@dataclass(slots=True)
class Dispatching:
    """Which group takes a request: asks the policy, and follows the load orders that it has given.

    Loads are counted from what groups have been given and have not answered, so that an engine
    whose groups are processes elsewhere counts them as well as one that holds all of their state.
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


def _served(workload: Workload) -> dict[ServiceId, Service]:
    """The services that groups may have."""
    return {service.id: service for service in workload.services if service.id != OUTSIDE}


def _groups_asked(workload: Workload) -> Ints:
    """The service of each call; a chain does not go on across calls outside any LLM."""
    if workload.apps is None:
        return workload.service
    return np.where(workload.apps.outside, NO_CALL, workload.service)


def _arrays(workload: Workload, graph: Graph, intake_s: Floats | None) -> RequestArrays:
    """What is kept of the requests; those that wait for others have no time yet."""
    arrays = new_arrays(
        workload.prompt_tokens,
        workload.output_tokens,
        np.zeros(len(workload), np.int64),
        np.where(graph.waits == 0, workload.arrival_s, np.inf),
        workload.service,
    )
    if intake_s is not None:
        arrays.intake_s[:] = intake_s
    return arrays


class Lifecycle:
    """Requests by where they are in their lives.

    `roots` are the requests that wait for no other, as they reach their schedulers; `sent` counts
    those of a closed loop that have been sent or will be at a time of their own; `remaining` counts
    the unanswered of each service, those to come included; `held_back` has the requests that have
    come and are in no group. `reading` has the services that a group is yet to load while it serves
    others, of which it takes no requests. `deliver` takes requests with the group of each;
    `home_of` gives the group of a request that an engine has dispatched by itself.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        system: System,
        *,
        groups: Mapping[GroupId, SeenGroup],
        deliver: Callable[[Sequence[int], Sequence[GroupId]], None],
        unanswered: Callable[[GroupId], Ints] | None = None,
        intake_s: Floats | None = None,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        """No request has arrived. `groups` are the groups that policies see, as they come and go.

        `unanswered` has the requests that have come to a group, ascending, where `groups` do not
        show it. `intake_s` is what each request takes from when it is sent until it reaches its
        scheduler, nothing where it is None. `catch_up` is called before the computed state of
        groups is read.
        """
        self.workload, self.system = workload, system
        self.graph = Graph(workload.edges, _groups_asked(workload))
        arrays = _arrays(workload, self.graph, intake_s)
        self.state = LiveState(workload, cluster, arrays, self.graph.waits.copy())
        in_order = np.argsort(self.state.come_s, kind="stable")
        self.roots: Ints = in_order[: np.isfinite(arrays.arrival_s).sum()]
        self.sent: Ints = np.array([len(self.roots)])
        self.services: Mapping[ServiceId, Service] = _served(workload)
        self.view = LiveCluster(self.state, self.services, groups)
        self.remaining = {
            s.id: int((workload.service == i).sum()) for i, s in enumerate(workload.services)
        }
        self.held_back: dict[ServiceId, list[int]] = {}
        self.reading: dict[GroupId, frozenset[ServiceId]] = {}
        self._deliver = deliver
        held = unanswered or (lambda group: groups[group].open_ids())
        self.dispatching = Dispatching(system.dispatch, self.view, self.state, held, catch_up)
        # Of a chain: the group of its call that has come last, and where those to come belong.
        self._home, self._following = dict[int, GroupId](), dict[int, GroupId]()
        self.home_of: Callable[[int], GroupId] = self._home.__getitem__

    @property
    def is_over(self) -> bool:
        """Whether every request is answered, or never will be."""
        return not any(self.remaining.values())

    def hold_back(self, service: ServiceId, requests: Iterable[int]) -> None:
        """Requests of a service are in no group: they have come, or have left theirs."""
        self.held_back.setdefault(service, []).extend(requests)

    def hand_out(self, service: ServiceId) -> None:
        """Dispatch a service's requests that are in no group, if the deployment has one for it.

        A call of a chain goes where its predecessor was, while that is a group of its service.
        """
        requests = sorted(self.held_back.get(service, []))
        homes = self.homes(service)
        if not homes or not requests:
            return
        del self.held_back[service]
        following = {r: self._following.pop(r) for r in requests if r in self._following}
        known = {r: group for r, group in following.items() if group in homes}
        chosen = self.dispatching.choose(requests, service, homes, known)
        self._refuse_strangers(chosen.items(), service, homes)
        if len(self.workload.edges):
            self._home.update(chosen)
        self._deliver(list(chosen), list(chosen.values()))

    def named_ahead(self, requests: Sequence[int], service: ServiceId) -> Sequence[GroupId] | None:
        """The groups that the policy names for requests to come, where it names groups."""
        homes = self.homes(service)
        if not homes:
            return None
        names = self.dispatching.ahead(requests, service, homes)
        self._refuse_strangers(zip(requests, names or (), strict=False), service, homes)
        return names

    def homes(self, service: ServiceId) -> list[GroupId]:
        """Groups of a service to which its requests go, loaded or not."""
        return [
            group.id
            for group in self.state.deployment.groups
            if service in group.services and service not in self.reading.get(group.id, ())
        ]

    def _refuse_strangers(
        self, chosen: Iterable[tuple[int, GroupId]], service: ServiceId, homes: list[GroupId]
    ) -> None:
        """Raise ValueError where a request would go to a group that does not serve it."""
        for request, group in chosen:
            if group not in homes:
                raise ValueError(
                    f"r{request} of {service} was dispatched to {group}, which does not serve it"
                )

    def predict(
        self, predictor: LengthPredictor, requests: Ints
    ) -> Iterator[tuple[RequestId, LengthPrediction, float]]:
        """For each of these in turn its id, its length, and the seconds until that is known."""
        for facts in self.state.facts_of(requests):
            length, seconds = predictor.predict(facts)
            yield facts.id, length, seconds

    def foresee(self, predictor: LengthPredictor, calls: Ints) -> None:
        """Predict calls that have not arrived, of applications that have come in."""
        known = self.state.predicted
        new = np.array([call for call in calls.tolist() if call not in known], np.int64)
        for facts in self.workload.facts_of(new, self.workload.arrival_s[new]):
            self.state.predict(facts.id, predictor.predict(facts)[0])

    def answered(self, requests: Ints) -> bool:
        """Count these as answered; returns whether a service has answered its last request."""
        self.state.forget_facts(requests)
        is_drained, ended = False, [len(requests)]
        if len(self.remaining) > 1:
            of = self.workload.service[requests]
            ended = np.bincount(of, minlength=len(self.remaining)).tolist()
        for service, count in zip(self.remaining, ended, strict=True):
            self.remaining[service] -= count
            is_drained |= bool(count and not self.remaining[service] and service in self.services)
        return is_drained

    def released(self, answered: Ints, *, after_s: float = 0.0) -> list[int]:
        """Calls that waited for these alone and are sent `after_s` from now.

        In a closed loop every answer lets its client send the next request of the workload.
        """
        waits, arrival_s, come = self.state.waits, self.state.arrays.arrival_s, list[int]()
        if self.workload.is_closed_loop:
            first = self.sent.item()
            self.sent[0] = min(first + len(answered), len(self.workload))
            come = list(range(first, self.sent.item()))
            arrival_s[come] = self.state.now_s + after_s
            return come
        for request in answered.tolist():
            for call in self.graph.children(request):
                waits[call] -= 1
                if self.graph.chain[request] != NO_CALL:
                    # The next call of a chain belongs where its predecessor was.
                    is_known = request in self._home
                    home = self._home.pop(request) if is_known else self.home_of(request)
                    self.belongs(call, home)
                if waits[call] == 0:
                    arrival_s[call] = self.state.now_s + after_s
                    come.append(call)
        return come

    def belongs(self, call: int, group: GroupId) -> None:
        """A call of a chain goes to this group when it comes, while that is one of its service."""
        self._following[call] = group

    def give_up(self, requests: Iterable[int]) -> None:
        """These will never be answered, nor the calls that wait for them; none counts any more."""
        found: set[int] = set()
        left = list(requests)
        while left:
            request = left.pop()
            if request not in found:
                found.add(request)
                left.extend(self.graph.children(request))
        for request in found:
            self.remaining[self.workload.service_of(request)] -= 1
