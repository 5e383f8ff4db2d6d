"""GPU assignment: small cases by hand, and all small cases against brute force."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random

import pytest

from harness.interface.entities import Cluster, GpuId, Group, GroupId, ServiceId
from harness.planning.gpu_assignment import assign

BIG, SMALL, TINY = ServiceId("big"), ServiceId("small"), ServiceId("tiny")
LOAD_S = {BIG: 30.0, SMALL: 10.0, TINY: 4.0}
Wanted = tuple[ServiceId, int, int]


def load_s(service: ServiceId, tensor_parallel: int) -> float:
    return LOAD_S[service] + tensor_parallel


def a_cluster(*island_sizes: int) -> Cluster:
    islands = []
    first = 0
    for size in island_sizes:
        islands.append(frozenset(GpuId(gpu) for gpu in range(first, first + size)))
        first += size
    return Cluster(tuple(GpuId(gpu) for gpu in range(first)), tuple(islands))


def a_group(service: ServiceId, *gpus: int) -> Group:
    name = GroupId(f"{service}@{'-'.join(map(str, gpus))}")
    return Group(name, frozenset((service,)), tuple(GpuId(gpu) for gpu in gpus))


def reload_s(groups: Sequence[Group], current: Sequence[Group]) -> float:
    return sum(
        load_s(next(iter(group.services)), group.tensor_parallel)
        for group in groups
        if group not in current
    )


PAIRS = a_cluster(2, 2)


def test_the_cheapest_model_moves_when_a_pair_is_needed() -> None:
    """Singles on GPUs 0, 1 and 2 leave only GPU 3; a pair needs 0-1 or 2-3.

    When big leaves GPU 1 for good, the pair costs moving tiny off GPU 0 or small off GPU 2: tiny
    is the cheaper one, so the pair gets 0-1 and tiny goes to 3, next to small.
    """
    current = [a_group(TINY, 0), a_group(BIG, 1), a_group(SMALL, 2)]
    wanted: list[Wanted] = [(TINY, 1, 1), (SMALL, 1, 1), (BIG, 1, 2)]
    assert assign(wanted, current, PAIRS, load_s) == (
        a_group(TINY, 3),
        a_group(SMALL, 2),
        a_group(BIG, 0, 1),
    )


def test_services_that_share_gpus_are_kept_and_placed_together() -> None:
    """The pair of both is kept, though either alone would do for SMALL; BIG is loaded anew."""
    both = frozenset((SMALL, TINY))
    pair = Group(GroupId("small+tiny@2-3"), both, (GpuId(2), GpuId(3)))
    groups = assign([(BIG, 1, 2), (both, 1, 2)], [a_group(SMALL, 0), pair], PAIRS, load_s)
    assert groups == (a_group(BIG, 0, 1), pair)
    (again,) = assign([(both, 1, 1)], [], PAIRS, load_s)
    assert (again.id, again.services) == ("small+tiny@0", both)
    with pytest.raises(ValueError, match=r"1 x small\+tiny on 3 GPUs do not fit"):
        assign([(both, 1, 3)], [], PAIRS, load_s)


def test_a_group_larger_than_an_island_takes_whole_neighbours() -> None:
    eight = a_cluster(2, 2, 2, 2)
    groups = assign([(BIG, 1, 4), (SMALL, 1, 2)], [a_group(SMALL, 2, 3)], eight, load_s)
    assert groups == (a_group(BIG, 4, 5, 6, 7), a_group(SMALL, 2, 3))


def test_without_nvlink_neighbours_are_consecutive_gpus() -> None:
    lonely = Cluster(tuple(GpuId(gpu) for gpu in range(4)), ())
    assert assign([(BIG, 1, 3)], [a_group(TINY, 0)], lonely, load_s) == (a_group(BIG, 0, 1, 2),)


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ([(BIG, 2, 2), (TINY, 1, 1)], "5 GPUs wanted, the cluster has 4"),
        ([(BIG, 1, 3)], r"1 x big on 3 GPUs do not fit NVLink islands of 2, 2 GPUs"),
        ([(BIG, 1, 0)], "big wants 1 groups of 0 GPUs"),
        ([(BIG, 0, 1)], "big wants 0 groups of 1 GPUs"),
    ],
)
def test_the_unplaceable_is_refused_with_numbers(wanted: list[Wanted], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        assign(wanted, [], PAIRS, load_s)


def is_legal(gpus: tuple[int, ...], cluster: Cluster) -> bool:
    """The placement rule, stated anew."""
    islands = [sorted(island) for island in cluster.nvlink_islands]
    if len(gpus) <= max(map(len, islands)):
        return any(set(gpus) <= set(island) for island in islands)
    whole = [island for island in islands if set(island) <= set(gpus)]
    return sum(map(len, whole)) == len(gpus) and list(gpus) == list(range(gpus[0], gpus[-1] + 1))


def all_placements(
    kinds: Sequence[tuple[ServiceId, int]], free: frozenset[int], cluster: Cluster
) -> Iterator[list[Group]]:
    if not kinds:
        yield []
        return
    (service, tensor_parallel), *rest = kinds
    for gpus in combinations(sorted(free), tensor_parallel):
        if is_legal(gpus, cluster):
            for others in all_placements(rest, free - set(gpus), cluster):
                yield [a_group(service, *gpus), *others]


@pytest.mark.parametrize("sizes", [(2, 2), (4,), (1, 1, 1, 1), (2, 1, 2), (3, 2), (2, 2, 2)])
def test_no_placement_is_cheaper(sizes: tuple[int, ...]) -> None:
    """Against every placement there is, for random wishes and random loaded groups."""
    cluster = a_cluster(*sizes)
    count = len(cluster.gpus)
    rng = Random(sum(sizes))
    for _ in range(60):
        current = random_groups(rng, cluster)
        kinds = [
            (rng.choice([BIG, SMALL, TINY]), rng.choice([1, 1, 2, 2, 3, 4]))
            for _ in range(rng.randint(1, 4))
        ]
        while sum(tensor_parallel for _, tensor_parallel in kinds) > count:
            kinds.pop()
        wanted = [(service, 1, tensor_parallel) for service, tensor_parallel in kinds]
        costs = [
            reload_s(groups, current)
            for groups in all_placements(kinds, frozenset(cluster.gpus), cluster)
        ]
        if not costs:
            with pytest.raises(ValueError, match="do not fit"):
                assign(wanted, current, cluster, load_s)
            continue
        groups = assign(wanted, current, cluster, load_s)
        assert [(next(iter(g.services)), g.tensor_parallel) for g in groups] == kinds
        gpus = [gpu for group in groups for gpu in group.gpus]
        assert len(set(gpus)) == len(gpus)
        assert all(is_legal(group.gpus, cluster) for group in groups)
        assert reload_s(groups, current) == pytest.approx(min(costs))
        rng.shuffle(current)
        assert assign(wanted, current, cluster, load_s) == groups


def random_groups(rng: Random, cluster: Cluster) -> list[Group]:
    """Some loaded groups on disjoint GPUs."""
    free = sorted(cluster.gpus)
    groups = []
    while free:
        gpus = tuple(free[: rng.choice([1, 1, 2])])
        del free[: len(gpus)]
        if rng.random() < 0.8 and is_legal(gpus, cluster):
            groups.append(a_group(rng.choice([BIG, SMALL, TINY]), *gpus))
    return groups
