"""Ids of calls that do not tell a policy how many calls an application will have."""

from dataclasses import fields, replace

import numpy as np

from harness.interface.apps import Apps
from harness.interface.graph import Edges
from harness.workloads.workload import Ints, Workload


def with_apps(load: Workload, apps: Apps, seed: int) -> Workload:
    """The workload with applications; its calls and the columns of `apps` in an order of ids.

    Calls that wait for none come first, by arrival; then those of all applications that wait for
    these, in random order; then calls that wait for the latter; and so on.
    """
    depth, count = _depth(load), len(load)
    drawn = np.random.default_rng([seed, count]).random(count)
    order = np.lexsort((np.where(depth == 0, load.arrival_s, drawn), depth))
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    columns = {
        field.name: column[order]
        for field in fields(Workload)
        if isinstance(column := getattr(load, field.name), np.ndarray) and len(column)
    }
    if len(load.prefix):
        columns["prefix"] = np.where(load.prefix < 0, -1, place[load.prefix])[order]
    edges, cache = load.edges, apps.host_cache
    return replace(
        load,
        **columns,
        edges=Edges(place[edges.parent], place[edges.child], edges.carries),
        texts=tuple(load.texts[row] for row in order) if load.texts else (),
        apps=replace(
            apps,
            unit=apps.unit[order],
            instance=apps.instance[order],
            external_s=apps.external_s[order],
            backend=apps.backend[order] if apps.backends else apps.backend,
            host_cache=cache and replace(cache, reads=cache.reads[order]),
        ),
    )


def _depth(load: Workload) -> Ints:
    """Calls on the longest path from one that waits for none."""
    depth = [0] * len(load)
    pairs = zip(load.edges.parent.tolist(), load.edges.child.tolist(), strict=True)
    for parent, child in sorted(pairs):
        depth[child] = max(depth[child], depth[parent] + 1)
    return np.array(depth, np.int64)
