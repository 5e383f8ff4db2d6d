"""A length that no policy may see, and a walk over all that it is handed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from harness.interface.decisions import (
    Decision,
)
from harness.interface.events import Arrived, Event, Moved, Predicted
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.views import GroupView

TELLTALE = 1021
"""True output length of all; with prompts of 1,100 tokens nothing else in a run comes to it."""


PLAIN = (str, bytes, bool, type(None))


@dataclass
class Walk:
    """Every value reachable through public attributes, items and properties."""

    seen: set[int] = field(default_factory=set)
    kept: list[object] = field(default_factory=list)
    visited: int = 0

    def assert_silent(self, value: object, path: str) -> None:
        """Fail where the telltale is reached."""
        self.visited += 1
        if isinstance(value, PLAIN):
            return
        if isinstance(value, int | float | np.number):
            assert value != TELLTALE, path
            return
        if isinstance(value, np.ndarray):
            assert not (value == TELLTALE).any(), path
            return
        if id(value) in self.seen:
            return
        self.seen.add(id(value))
        self.kept.append(value)  # so that no id is used twice
        if isinstance(value, Mapping | MappingProxyType):
            for key, item in value.items():
                self.assert_silent(key, f"key of {path}")
                self.assert_silent(item, f"{path}[{key}]")
        elif isinstance(value, tuple | list | set | frozenset):
            for i, item in enumerate(value):
                self.assert_silent(item, f"{path}[{i}]")
        else:
            self._assert_attributes(value, path)

    def _assert_attributes(self, value: object, path: str) -> None:
        if isinstance(value, type) or type(value).__module__ == "builtins":
            return
        for name in dir(value):
            if not name.startswith("_"):
                item = getattr(value, name)
                if not callable(item) or isinstance(item, type):
                    self.assert_silent(item, f"{path}.{name}")


@dataclass
class Nosy:
    """Walks whatever its policy is handed, then lets the policy decide."""

    inner: SchedulingPolicy
    visited: int = 0
    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Arrived, Moved, Predicted})

    def observe(self, event: Event) -> None:
        """Look into the event."""
        self._walk(event, "event")

    def schedule(self, view: GroupView) -> Decision:
        """Look into the view."""
        self._walk(view, "view")
        return self.inner.schedule(view)

    def _walk(self, value: object, path: str) -> None:
        walk = Walk()
        walk.assert_silent(value, path)
        self.visited += walk.visited
