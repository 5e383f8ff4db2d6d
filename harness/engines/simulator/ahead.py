"""Replicas run ahead of the clock: how far, and who comes to them meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.engines.lifecycle import Lifecycle
from harness.engines.simulator.fast.run_ahead import run_replicas
from harness.engines.simulator.fast.undispatched import Undispatched
from harness.engines.simulator.feeding import Feeding
from harness.engines.simulator.following import Following
from harness.engines.simulator.group import LiveGroup
from harness.engines.state import Ints
from harness.interface.entities import GroupId, ServiceId


@dataclass(slots=True)
class Ahead:
    """Runs replicas, and keeps the requests to come of every service that goes by load.

    Compiled code gives these out while the groups run; what it leaves is dispatched when it comes.
    """

    lifecycle: Lifecycle
    groups: Mapping[GroupId, LiveGroup]
    following: Following
    undispatched: dict[ServiceId, Undispatched] = field(default_factory=dict)
    feeding: Feeding = field(init=False)

    def __post_init__(self) -> None:
        """Nobody is fed yet."""
        self.feeding = Feeding(self.lifecycle, self.groups, self.following)

    def run(self, replicas: list[LiveGroup], until_s: float) -> tuple[float, Ints]:
        """Advance these to then, or to the first moment that concerns others.

        Returns the time reached and the ids finished by then, in order of their end.
        """
        fed, tells = self.feeding.fed(), self.following.tells
        return run_replicas(
            replicas,
            self.undispatched,
            self.lifecycle.remaining,
            until_s,
            fed=fed,
            feed=self.feeding.feed,
            may_stop=self.lifecycle.services if tells else self.feeding.stopping,
        )

    @property
    def has_more(self) -> bool:
        """Whether anybody is yet to come."""
        return any(len(coming.left) for coming in self.undispatched.values())

    @property
    def horizon_s(self) -> float:
        """How far groups may run before somebody looks at who comes."""
        return min((coming.horizon_s for coming in self.undispatched.values()), default=np.inf)

    def take(self) -> None:
        """Take who has been handed out ahead, and tell replicas the keys."""
        dispatching = self.lifecycle.dispatching
        for service, requests in dispatching.to_come.items():
            if service not in self.undispatched:
                order, homes = dispatching.orders[service]
                self.undispatched[service] = Undispatched(
                    groups=[self.groups[home] for home in homes],
                    requests=self.lifecycle.state.arrays,
                    weights=dispatching.weights,
                    adds_generated=order.adds_generated,
                )
            self.undispatched[service].add(np.array(requests, np.int64))
        dispatching.to_come.clear()
        for coming in self.undispatched.values():
            if not coming.told and coming.is_even and len(coming.left):
                asked = next(live for live in coming.groups if live.replica is not None)
                self.following.tell(asked, np.sort(coming.left))
                coming.told = True

    def hand_out_due(self) -> None:
        """Dispatch those that compiled code has left to others; predictions of them are events."""
        following = self.following
        for service, coming in self.undispatched.items():
            if due := coming.take_due(self.lifecycle.state.now_s):
                for request in sorted(following.arrivals.foretold.keys() & due):
                    following.arrivals.tell_later(request)
                if following.turns is not None:
                    following.turns[0][due] = np.inf
                self.lifecycle.hold_back(service, due)
                self.lifecycle.hand_out(service)
