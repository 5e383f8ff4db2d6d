"""Applications of which a unit runs in a container, and a policy that loads it ahead of need."""

from dataclasses import replace
from typing import ClassVar

import numpy as np

from harness.interface.apps import Backend
from harness.interface.decisions import Prewarm
from harness.interface.entities import ResourceId
from harness.interface.events import AppArrived, Event
from harness.interface.views import ClusterView
from harness.tests.support.outside import LLM_S, applied
from harness.tests.support.serving import workload
from harness.workloads.workload import Workload

CONTAINER = Backend("docker", "containers", 1.0, per_application=True)


class AtArrival:
    """Loads the container of an application when it arrives."""

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({AppArrived})

    def __init__(self) -> None:
        self._start: tuple[ResourceId, ...] = ()

    def observe(self, event: Event) -> None:
        """An application has arrived."""
        assert isinstance(event, AppArrived)
        self._start = (CONTAINER.of(event.app),)

    def prewarm(self, view: ClusterView) -> Prewarm:
        """Once."""
        start, self._start = self._start, ()
        return Prewarm(start=start)


def with_container(
    prompts: list[int], outputs: list[int], *, seconds: float, max_context_tokens: int = 4096
) -> Workload:
    """One application: a call, then so many seconds in a container, then a call."""
    load = applied(
        workload(prompts, outputs, max_context_tokens=max_context_tokens),
        [(0, 1), (1, 2)],
        app=[0] * 3,
        external_s=[LLM_S, seconds, LLM_S],
    )
    assert load.apps is not None
    apps = replace(
        load.apps,
        backends=(CONTAINER,),
        backend=np.where(load.apps.outside, 0, -1),
        pools={"containers": 1.0},
    )
    return replace(load, apps=apps)
