"""Several applications as one workload."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.interface.entities import ServiceId
from harness.interface.graph import Edges
from harness.workloads.workload import Floats, Ints, Workload


class Part(Protocol):
    """Makes the workload of one application."""

    @property
    def files(self) -> Mapping[str, str]:
        """What it reads, by name, with the sha256."""

    @property
    def models(self) -> Sequence[str]:
        """Names of the models it asks."""

    def build(self, seed: int) -> Workload:
        """Same seed, same workload."""


class Together:
    """Recipe of a workload of `parts` in an `order`, of which those in `only` are served."""

    def __init__(
        self, *, parts: Mapping[str, Part], order: Sequence[str], only: Sequence[str]
    ) -> None:
        """Where two parts ask the same model, each has a service of its own."""
        if sorted(order) != sorted(parts):
            raise ValueError(f"workload.order={list(order)} must name each of {', '.join(parts)}")
        if not only or len(set(only)) < len(only):
            raise ValueError(f"workload.only={list(only)} must name each part once")
        for name in only:
            if name not in parts:
                raise ValueError(f"workload.only has {name}, the parts are {', '.join(parts)}")
        served = [name for name in order if name in only]
        self._parts = [parts[name] for name in served]
        # The numbers that a part is drawn from do not depend on the other parts.
        kinds = [type(parts[name]) for name in order]
        alike = {name: kinds[:place].count(kinds[place]) for place, name in enumerate(order)}
        self._alike = [alike[name] for name in served]
        asked = [model for part in self._parts for model in part.models]
        self._named = [
            {model: f"{model}~{name}" if asked.count(model) > 1 else model for model in part.models}
            for name, part in zip(served, self._parts, strict=True)
        ]
        self.models = tuple(service for named in self._named for service in named.values())
        self.files = {name: digest for part in self._parts for name, digest in part.files.items()}

    def build(self, seed: int) -> Workload:
        """Every part's workload for this seed, in the order of arrival.

        The first part of a kind is as it is alone; every other of that kind draws numbers of its
        own, since two alike would be asked the same at the same times.
        """
        built = []
        for part, named, alike in zip(self._parts, self._named, self._alike, strict=True):
            load = part.build(seed if alike == 0 else _own_seed(seed, alike))
            services = (replace(s, id=ServiceId(named[s.id])) for s in load.services)
            built.append(replace(load, services=tuple(services)))
        return together(built)


def together(parts: Sequence[Workload]) -> Workload:
    """One workload of several that ask different services, by arrival, then by part."""
    if any(part.apps is not None for part in parts):
        raise ValueError("a workload of units of applications cannot be one of several")
    if any(part.is_closed_loop for part in parts):
        raise ValueError("a closed loop has one list of requests: it cannot be one of several")
    arrival_s = _joined(parts, "arrival_s")
    order = np.argsort(arrival_s, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    services = [len(part.services) for part in parts]
    apps, edges = [int(part.app.max(initial=-1)) + 1 for part in parts], [p.edges for p in parts]
    tenants = tuple(dict.fromkeys(name for part in parts for name in part.tenants))
    texts = [text for part in parts for text in part.texts or ("",) * len(part)]
    rows = [len(part) for part in parts]
    prefix, prefix_tokens = _prefixes(parts, place, order)
    plain = ("prompt_tokens", "output_tokens", "max_output_tokens", "deadline_s", "own_tokens")
    columns: dict[str, Any] = {name: _joined(parts, name)[order] for name in plain}
    return Workload(
        **columns,
        services=tuple(service for part in parts for service in part.services),
        service=_joined(parts, "service", services)[order],
        arrival_s=arrival_s[order],
        app=_joined(parts, "app", apps)[order],
        tenants=tenants,
        tenant=np.concatenate([_tenants(part, tenants) for part in parts])[order],
        datasets={name: digest for part in parts for name, digest in part.datasets.items()},
        edges=Edges(
            place[_joined(edges, "parent", rows)],
            place[_joined(edges, "child", rows)],
            _joined(edges, "carries"),
        ),
        texts=tuple(texts[row] for row in order) if any(part.texts for part in parts) else (),
        predicted_tokens=np.concatenate([_predicted(part) for part in parts])[order],
        prefix=prefix,
        prefix_tokens=prefix_tokens,
    )


def _prefixes(parts: Sequence[Workload], place: Ints, order: Ints) -> tuple[Ints, Ints]:
    """Columns of prefixes, where a part has any: requests of different parts share none."""
    if not any(len(part.prefix) for part in parts):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    prefix, tokens, first = [], [], 0
    for part in parts:
        none = np.full(len(part), -1)
        own = part.prefix if len(part.prefix) else none
        prefix.append(np.where(own < 0, -1, place[first:][own]))
        tokens.append(part.prefix_tokens if len(part.prefix) else none + 1)
        first += len(part)
    return np.concatenate(prefix)[order], np.concatenate(tokens)[order]


def _tenants(part: Workload, tenants: Sequence[str]) -> Ints:
    """Of each request its tenant's place in `tenants`: a name is one tenant in all parts."""
    places = np.array([tenants.index(name) for name in part.tenants])
    return places[part.tenant if len(part.tenant) else np.zeros(len(part), np.int64)]


def _predicted(part: Workload) -> Floats:
    return part.predicted_tokens if len(part.predicted_tokens) else np.full(len(part), np.nan)


def _own_seed(seed: int, alike: int) -> int:
    """Of the part of a kind that comes after so many `alike`; those of other seeds are others."""
    return int(np.random.SeedSequence([seed, alike]).generate_state(1, np.uint64)[0])


def _joined(parts: Sequence[object], name: str, sizes: Sequence[int] | None = None) -> NDArray[Any]:
    """A column of all parts; with `sizes` numbers count on from part to part."""
    columns = [getattr(part, name) for part in parts]
    if sizes is not None:
        first = np.cumsum([0, *sizes[:-1]])
        columns = [column + begin for column, begin in zip(columns, first, strict=True)]
    joined: NDArray[Any] = np.concatenate(columns)
    return joined
