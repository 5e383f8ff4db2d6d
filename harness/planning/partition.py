"""Sizes of groups that share a cluster: all equal, but where a service needs larger ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.interface.entities import Service, ServiceId
from harness.interface.policies import CostModel

ServiceSet = frozenset[ServiceId]


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """Which services a group of so many GPUs may share: at most `services_per_group` that fit.

    They fit where beside their weights there is KV for the longest request of each.
    """

    costs: CostModel
    services: Mapping[ServiceId, Service]
    services_per_group: int
    _known: dict[tuple[ServiceSet, int], bool] = field(default_factory=dict)

    def holds(self, names: ServiceSet, gpus: int) -> bool:
        """Whether a group of so many GPUs holds these services."""
        if len(names) > self.services_per_group:
            return False
        if (names, gpus) not in self._known:
            longest = (self.services[name] for name in names)
            need = sum(one.max_context_tokens * one.kv_bytes_per_token for one in longest)
            self._known[names, gpus] = self.costs.kv_bytes(names, gpus) >= need
        return self._known[names, gpus]

    def least_size(self, service: ServiceId, most: int) -> int:
        """The smallest power of two of GPUs that holds a service alone.

        ValueError where even `most` GPUs do not.
        """
        for gpus in powers_of_two(most):
            if self.holds(frozenset({service}), gpus):
                return gpus
        raise ValueError(f"{service} does not fit {most} GPUs, the most that a group may have")


def powers_of_two(most: int) -> Iterator[int]:
    """1, 2, 4 and so on, up to `most`."""
    size = 1
    while size <= most:
        yield size
        size *= 2


def partition(islands: Sequence[int], size: int, memory: GroupMemory) -> list[int] | None:
    """GPUs of each group where all have `size` at first, or None where not all services fit.

    `islands` are numbers of GPUs, over which no group goes beyond. While a service finds no place
    beside the others, two groups are merged into one: the largest ones that are still too small
    for it, or the smallest ones.
    """
    most = max(islands)
    least = {name: memory.least_size(name, most) for name in memory.services}
    sizes = [[size] * (gpus // size) for gpus in islands]
    while True:
        flat = [one for of_island in sizes for one in of_island]
        left = _without_place(flat, least, memory)
        if left is None:
            return flat
        pairs = {z for of_island in sizes for z in of_island if of_island.count(z) > 1}
        pairs = {z for z in pairs if 2 * z <= most}
        if not pairs or memory.services_per_group * len(flat) <= len(least):
            return None
        merged = max((z for z in pairs if z < least[left]), default=min(pairs))
        of_island = next(one for one in sizes if one.count(merged) > 1)
        of_island.remove(merged)
        of_island[of_island.index(merged)] = 2 * merged


def _without_place(
    sizes: Sequence[int], least: Mapping[ServiceId, int], memory: GroupMemory
) -> ServiceId | None:
    """The first service, by GPUs needed, that finds no place in such groups."""
    groups = [(size, ServiceSet()) for size in sorted(sizes)]
    for service in sorted(least, key=lambda name: (-least[name], name)):
        for at, (size, names) in enumerate(groups):
            if memory.holds(names | {service}, size):
                groups[at] = size, names | {service}
                break
        else:
            return service
    return None
