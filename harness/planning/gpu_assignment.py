"""Which GPUs each wanted group gets, at the least reload time under NVLink islands.

The selection of GPUs of arXiv 2503.16893 sec. 4.3.

A group that fits into an island lies inside one; a larger one takes whole neighbouring islands. A
GPU in no island is an island of its own. Only loaded groups that are kept cost nothing, so the
search is over what to keep: branch and bound, best possible saving first, cutting where the rest
no longer fits. Exact; meant for the GPUs of a machine or a few.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.interface.entities import Cluster, GpuId, Group, GroupId, ServiceId

Gpus = tuple[GpuId, ...]
Services = tuple[ServiceId, ...]
GroupKind = tuple[Services, int]
"""Services, ascending, and a tensor-parallel degree: groups of a kind are interchangeable."""
Wanted = tuple[ServiceId | frozenset[ServiceId], int, int]
"""A service, or several that share GPUs; its data-parallel and its tensor-parallel degree."""


def assign(
    wanted: Sequence[Wanted],
    current: Sequence[Group],
    cluster: Cluster,
    load_s: Callable[[ServiceId, int], float],
) -> tuple[Group, ...]:
    """Groups for every wanted (services, data-parallel, tensor-parallel), in that order.

    Groups of `current` are kept as they are where that spares most; `load_s(service, tensor
    parallel)` seconds are charged for every service of every other one. The same arguments give the
    same answer. ValueError when the groups do not fit the GPUs or the islands, or a degree is
    below 1.
    """
    need = _count(wanted, cluster)
    islands = islands_of(cluster)
    seconds = {(names, tp): sum(load_s(name, tp) for name in names) for names, tp in need}
    keepable = sorted(
        (group for group in current if _is_keepable(group, need, islands)),
        key=lambda group: (-seconds[_kind(group)], group.gpus, group.id),
    )
    kept = _best_kept(keepable, need, seconds, islands)
    if kept is None:
        raise ValueError(_unplaceable(need, islands))
    missing = need - Counter(map(_kind, kept))
    sizes = sorted(missing.elements(), key=lambda kind: (-kind[1], kind[0]))
    places = _pack([tensor_parallel for _, tensor_parallel in sizes], _without(islands, kept))
    assert places is not None  # the search keeps only what leaves room for the rest
    new = [_group(services, gpus) for (services, _), gpus in zip(sizes, places, strict=True)]
    by_kind: dict[GroupKind, list[Group]] = {kind: [] for kind in need}
    for group in sorted([*kept, *new], key=lambda group: group.gpus):
        by_kind[_kind(group)].append(group)
    return tuple(
        by_kind[_services(services), tensor_parallel].pop(0)
        for services, data_parallel, tensor_parallel in wanted
        for _ in range(data_parallel)
    )


def _services(wanted: ServiceId | frozenset[ServiceId]) -> Services:
    return tuple(sorted(wanted)) if isinstance(wanted, frozenset) else (wanted,)


def _together(services: Services) -> str:
    return "+".join(services)


def _group(services: Services, gpus: Gpus) -> Group:
    name = GroupId(f"{_together(services)}@{'-'.join(map(str, gpus))}")
    return Group(name, frozenset(services), gpus)


def _kind(group: Group) -> GroupKind:
    return tuple(sorted(group.services)), group.tensor_parallel


def _count(wanted: Sequence[Wanted], cluster: Cluster) -> Counter[GroupKind]:
    need: Counter[GroupKind] = Counter()
    for asked, data_parallel, tensor_parallel in wanted:
        services = _services(asked)
        if data_parallel < 1 or tensor_parallel < 1:
            raise ValueError(
                f"{_together(services)} wants {data_parallel} groups of {tensor_parallel} GPUs"
            )
        need[services, tensor_parallel] += data_parallel
    gpus = sum(tensor_parallel * count for (_, tensor_parallel), count in need.items())
    if gpus > len(cluster.gpus):
        raise ValueError(f"{gpus} GPUs wanted, the cluster has {len(cluster.gpus)}")
    return need


def islands_of(cluster: Cluster) -> list[Gpus]:
    """GPUs of each island in the cluster's order, islands by their first GPU."""
    place = {gpu: index for index, gpu in enumerate(cluster.gpus)}
    joined = [gpu for island in cluster.nvlink_islands for gpu in island]
    strange = sorted(set(joined) - place.keys())
    if strange or len(set(joined)) < len(joined):
        raise ValueError(f"NVLink islands overlap or name GPUs that are not here: {strange}")
    alone = [frozenset((gpu,)) for gpu in cluster.gpus if gpu not in joined]
    ordered = [tuple(sorted(island, key=place.__getitem__)) for island in cluster.nvlink_islands]
    ordered += [tuple(island) for island in alone]
    return sorted((island for island in ordered if island), key=lambda island: place[island[0]])


def _is_keepable(group: Group, need: Mapping[GroupKind, int], islands: Sequence[Gpus]) -> bool:
    """Whether the group could be part of the answer, were it alone."""
    services, _ = kind = _kind(group)
    if kind not in need or group != _group(services, group.gpus):
        return False
    if len(set(group.gpus)) < len(group.gpus):
        return False
    if group.tensor_parallel <= max(map(len, islands)):
        return any(set(group.gpus) <= set(island) for island in islands)
    return group.gpus in _unions(group.tensor_parallel, islands)


def _unions(size: int, islands: Sequence[Gpus]) -> Iterator[Gpus]:
    """Neighbouring whole islands that together have `size` GPUs."""
    for first in range(len(islands)):
        gpus: Gpus = ()
        for island in islands[first:]:
            gpus += island
            if len(gpus) >= size:
                break
        if len(gpus) == size:
            yield gpus


def _without(islands: Sequence[Gpus], groups: Sequence[Group]) -> list[tuple[Gpus, Gpus]]:
    """Each island and its GPUs that are in no group."""
    taken = {gpu for group in groups for gpu in group.gpus}
    return [(island, tuple(gpu for gpu in island if gpu not in taken)) for island in islands]


def _best_kept(
    keepable: Sequence[Group],
    need: Counter[GroupKind],
    seconds: Mapping[GroupKind, float],
    islands: Sequence[Gpus],
) -> list[Group] | None:
    """Return the groups to keep that save most and leave room for the rest; None if no room."""
    best: list[Group] | None = None
    best_s = -1.0

    def search(index: int, kept: list[Group], left: Counter[GroupKind], saved_s: float) -> None:
        nonlocal best, best_s
        if saved_s + _hope_s(keepable[index:], left, seconds) <= best_s:
            return
        rest = sorted((tensor_parallel for _, tensor_parallel in left.elements()), reverse=True)
        if _pack(rest, _without(islands, kept)) is None:
            return
        if saved_s > best_s:
            best, best_s = kept, saved_s
        if index == len(keepable):
            return
        group = keepable[index]
        kind = _kind(group)
        is_free = not any(set(group.gpus) & set(other.gpus) for other in kept)
        if left[kind] > 0 and is_free:
            search(index + 1, [*kept, group], left - Counter((kind,)), saved_s + seconds[kind])
        search(index + 1, kept, left, saved_s)

    search(0, [], need, 0.0)
    return best


def _hope_s(
    keepable: Sequence[Group], left: Counter[GroupKind], seconds: Mapping[GroupKind, float]
) -> float:
    """Seconds saved if every group that is still wanted could be kept."""
    offered = Counter(map(_kind, keepable))
    return sum(min(count, left[kind]) * seconds[kind] for kind, count in offered.items())


def _pack(sizes: Sequence[int], free: Sequence[tuple[Gpus, Gpus]]) -> list[Gpus] | None:
    """GPUs for each size (largest first), or None; `free` pairs each island with what is free."""
    if not sizes:
        return []
    for gpus in _places(sizes[0], free):
        remaining = [
            (island, tuple(gpu for gpu in idle if gpu not in gpus)) for island, idle in free
        ]
        packed = _pack(sizes[1:], remaining)
        if packed is not None:
            return [gpus, *packed]
    return None


def _places(size: int, free: Sequence[tuple[Gpus, Gpus]]) -> Iterator[Gpus]:
    """Places that differ in what they leave, tightest island first, then lowest GPU."""
    if size > max(len(island) for island, _ in free):
        idle = {gpu for _, gpus in free for gpu in gpus}
        unions = _unions(size, [island for island, _ in free])
        yield from (gpus for gpus in unions if idle.issuperset(gpus))
        return
    seen: set[int] = set()
    for _, gpus in sorted(free, key=lambda pair: len(pair[1])):
        if len(gpus) >= size and len(gpus) not in seen:
            seen.add(len(gpus))
            yield gpus[:size]


def _unplaceable(need: Counter[GroupKind], islands: Sequence[Gpus]) -> str:
    groups = ", ".join(
        f"{count} x {_together(services)} on {tensor_parallel} GPUs"
        for (services, tensor_parallel), count in sorted(need.items())
    )
    return f"{groups} do not fit NVLink islands of {', '.join(str(len(i)) for i in islands)} GPUs"
