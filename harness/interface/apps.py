"""Applications: which calls make a unit, which run outside any LLM, and what these need."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from harness.interface.entities import AppId, ResourceId, ServiceId
from harness.interface.tables import Bools, Floats, Ints

OUTSIDE = ServiceId("outside")
"""The service of calls that run outside any LLM, the last of a workload's; no group serves it."""


@dataclass(frozen=True, slots=True)
class Backend:
    """What a unit outside any LLM runs on: a container, a DNN.

    Loading takes `load_s` seconds, and it takes `size` of its `pool` until it is stopped. One that
    is `per_application` serves a single application and is stopped when that has finished.
    """

    name: str
    pool: str
    load_s: float
    size: float = 1.0
    per_application: bool = False

    def of(self, app: AppId) -> ResourceId:
        """The name of the one that serves an application."""
        return ResourceId(f"{self.name} of {app}" if self.per_application else self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCache:
    """What LLM calls of an application read when they begin, on disk and partly in host memory.

    `content` is the place in `names` of what each application reads: its LoRA adapter, or the KV of
    its context, which then `grows` with every answer, and is computed where it is not in memory.
    `size` is that of each content at first, in adapters or tokens, `reads` how much of its content
    each call reads, `capacity` what host memory holds. Loading from disk takes `load_s` and copying
    to the GPU `copy_s` for each unit of size.
    """

    names: tuple[ResourceId, ...]
    content: Ints
    size: Floats
    reads: Ints
    capacity: float
    load_s: float
    copy_s: float
    grows: bool


@dataclass(frozen=True, slots=True)
class Apps:
    """The applications of a workload, as columns.

    `kind` has one entry per application, an index of `kinds`; the others have one per call. `unit`
    indexes `units`; `instance` numbers the runs of units, of which all calls start together.
    `external_s` are the seconds of a call outside any LLM, NaN for calls of an LLM. `backend` is an
    index of `backends`, -1 for calls that need none; `pools` has the capacity of each pool. Without
    backends there is no such column. `host_cache` has what calls of an LLM read.
    """

    kinds: tuple[str, ...]
    kind: Ints
    units: tuple[str, ...]
    unit: Ints
    instance: Ints
    external_s: Floats
    backends: tuple[Backend, ...] = ()
    backend: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    pools: Mapping[str, float] = field(default_factory=dict)
    host_cache: HostCache | None = None

    @property
    def outside(self) -> Bools:
        """Which calls run outside any LLM."""
        return ~np.isnan(self.external_s)
