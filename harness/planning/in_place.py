"""GPUs for groups that services share, so that as little as possible is loaded again.

A group is named by its GPUs: one that is to serve other services than before is the same engine,
which loads only what it lacks.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from harness.interface.entities import Cluster, Group, GroupId, ServiceId
from harness.interface.policies import CostModel
from harness.planning.forecast import ForecastGroup
from harness.planning.gpu_assignment import Gpus, islands_of

_DISTURBANCE = 1e-3
"""What a second of loaded weights weighs on GPUs that a group of another size takes."""


def placed_in_place(
    placement: Sequence[ForecastGroup],
    current: Sequence[Group],
    cluster: Cluster,
    load_s: Callable[[ServiceId, int], float],
) -> tuple[Group, ...]:
    """A group for each of a placement, in its order, inside an island.

    The largest groups choose first. Among those of a size the seconds of loading, `load_s(service,
    tensor parallel)` for every service that a group of just these GPUs does not have, are least.
    Sizes are powers of two. ValueError where the GPUs of the islands do not suffice.
    """
    found: dict[int, Group] = {}
    free = set(cluster.gpus)
    has = {group.gpus: group for group in current}
    for size in sorted({group.tensor_parallel for group in placement}, reverse=True):
        asking = [at for at, group in enumerate(placement) if group.tensor_parallel == size]
        blocks = [gpus for gpus in _blocks(cluster, size) if free.issuperset(gpus)]
        if len(blocks) < len(asking):
            raise ValueError(
                f"{len(asking)} groups of {size} GPUs, and there are {len(blocks)} in islands of"
                f" {', '.join(str(len(island)) for island in islands_of(cluster))} GPUs"
            )
        seconds = np.zeros((len(asking), len(blocks)))
        for column, gpus in enumerate(blocks):
            kept = has[gpus].services if gpus in has else frozenset[ServiceId]()
            others = [g for g in current if g.gpus != gpus and not set(gpus).isdisjoint(g.gpus)]
            lost_s = sum(load_s(s, g.tensor_parallel) for g in others for s in g.services)
            for row, at in enumerate(asking):
                missing = placement[at].services - kept
                seconds[row, column] = sum(load_s(service, size) for service in missing)
            seconds[:, column] += _DISTURBANCE * lost_s
        for row, column in zip(*linear_sum_assignment(seconds), strict=True):
            gpus = blocks[column]
            name = GroupId("gpu" + "-".join(map(str, gpus)))
            found[asking[row]] = Group(name, placement[asking[row]].services, gpus)
            free.difference_update(gpus)
    return tuple(found[at] for at in range(len(placement)))


def loading_s(groups: Sequence[Group], current: Sequence[Group], costs: CostModel) -> list[float]:
    """Seconds until each of the groups serves anything, if they take the place of `current`."""
    before = {group.id: group for group in current}
    seconds = []
    for group in groups:
        engine = before.get(group.id)
        if engine is not None and engine.gpus == group.gpus:
            starts_s, has = 0.0, engine.services
        else:
            alone_s = (costs.start_s(name, group.tensor_parallel) for name in group.services)
            starts_s, has = max(alone_s), frozenset[ServiceId]()
        read_s = sum(
            costs.load_s(name, group.tensor_parallel) - costs.start_s(name, group.tensor_parallel)
            for name in sorted(group.services)
        )
        seconds.append(0.0 if group.services & has else starts_s + read_s)
    return seconds


def _blocks(cluster: Cluster, size: int) -> Iterator[Gpus]:
    """Places for groups of a size: neighbours in an island, from every multiple of the size on."""
    for island in islands_of(cluster):
        for first in range(0, len(island) - size + 1, size):
            yield island[first : first + size]
