"""Policies whose keys follow what they have observed, and keys that do."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from harness.interface.decisions import Decision, PriorityOrder
from harness.interface.events import (
    AppArrived,
    AppFinished,
    Arrived,
    Event,
    Finished,
    Iterated,
    Moved,
    Overran,
    Predicted,
    UnitFinished,
    UnitStarted,
)
from harness.interface.moving import MovingKey, Progress
from harness.interface.policies import Capability
from harness.interface.tables import Floats, RequestTable
from harness.interface.views import GroupView


class Learning:
    """A policy whose order reads what it has observed: `learnt` is a number that grows."""

    requires: ClassVar[frozenset[Capability]] = frozenset({Capability.PREDICTIONS})

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    def __init__(self, **order: Any) -> None:
        """`order` has the fields of the priority order; functions also get the number learnt."""
        self.learnt = 0
        self.asked: list[list[int]] = []
        self.heard: list[Event] = []
        told: dict[str, Any] = {
            name: self._told(given) if callable(given) else given for name, given in order.items()
        }
        self._decision = Decision(priority_order=PriorityOrder(**told))

    def _told(self, given: Callable[[RequestTable, int], Any]) -> Callable[[RequestTable], Any]:
        def column(table: RequestTable) -> Any:
            self.asked.append(table.id.tolist())
            return given(table, self.learnt)

        return column

    def observe(self, event: Event) -> None:
        """A sum, so that events of one instant may come in any order."""
        self.heard.append(event)
        match event:
            case Arrived() | Moved():
                self.learnt += 1 + event.request.id % 3
            case Predicted():
                self.learnt += int(event.length.mean_tokens) % 5
            case Finished():
                self.learnt += 7 + event.output_tokens % 11
            case AppArrived() | UnitStarted() | AppFinished():
                self.learnt += 1 + event.app % 5
            case UnitFinished():
                self.learnt += 3 + len(event.unit) + sum(event.output_tokens) % 7
            case Overran():
                self.learnt += 13
            case Iterated():
                # With keys that never stop to change, requests could displace each other for ever.
                self.learnt += self.learnt < 150

    def schedule(self, view: GroupView) -> Decision:
        """The order."""
        return self._decision


def learning(kinds: frozenset[type[Event]], **order: Any) -> Learning:
    """A policy that observes events of these kinds."""

    class Same(Learning):
        subscribes = kinds

    return Same(**order)


def scattered(table: RequestTable, learnt: int) -> Floats:
    """Any place, and another one whenever something has been learnt."""
    return ((table.id * 7919 + learnt * 104729) % 101).astype(np.float64)


def pieces(table: RequestTable, learnt: int) -> MovingKey:
    """Two pieces; the last has no end."""
    place = scattered(table, learnt)
    return MovingKey(
        value=np.stack([place, 100.0 - place], axis=1),
        slope=np.tile([0.5, -0.25], (len(place), 1)),
        until=np.tile([5.0 + learnt % 4, np.inf], (len(place), 1)),
    )


def pieces_of_seconds(table: RequestTable, learnt: int) -> MovingKey:
    place = scattered(table, learnt)[:, None]
    return MovingKey(
        value=np.concatenate([place, place - 50.0], axis=1),
        slope=np.zeros((len(place), 2)),
        until=np.tile([0.0371, np.inf], (len(place), 1)),
        by=Progress.GPU_S,
    )
