"""GPUs for shared groups: what is loaded stays where it is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interface.entities import Cluster, GpuId, Group, ServiceId
from harness.planning.forecast import ForecastGroup
from harness.planning.in_place import loading_s, placed_in_place
from harness.tests.support.serving import LinearCosts

SECONDS = {"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}


def _load_s(service: ServiceId, tensor_parallel: int) -> float:
    return SECONDS[service]


def _cluster(*islands: int) -> Cluster:
    gpus = tuple(GpuId(at) for at in range(sum(islands)))
    ends = [sum(islands[: at + 1]) for at in range(len(islands))]
    parts = (frozenset(gpus[e - n : e]) for e, n in zip(ends, islands, strict=True))
    return Cluster(gpus, tuple(parts))


def _wanted(*groups: str) -> list[ForecastGroup]:
    """Each as services and the number of GPUs: ab2."""
    return [
        ForecastGroup(
            services=frozenset(map(ServiceId, group[:-1])), tensor_parallel=int(group[-1])
        )
        for group in groups
    ]


def _place(groups: list[str], cluster: Cluster, current: tuple[Group, ...] = ()) -> list[Group]:
    return list(placed_in_place(_wanted(*groups), current, cluster, _load_s))


def _said(groups: list[Group]) -> list[str]:
    return [f"{''.join(sorted(g.services))}@{'-'.join(map(str, g.gpus))}" for g in groups]


def test_groups_lie_inside_islands_the_largest_at_multiples_of_their_size() -> None:
    found = _place(["a1", "bc4", "d2", "b1"], _cluster(4, 4))
    assert _said(found) == ["a@6", "bc@0-1-2-3", "d@4-5", "b@7"]
    assert [group.id for group in found] == ["gpu6", "gpu0-1-2-3", "gpu4-5", "gpu7"]


def test_what_is_loaded_stays_and_a_group_that_changes_keeps_its_name() -> None:
    """ab stays; cd becomes ad where d, the longest to load, is; bc finds c beside nothing else."""
    before = tuple(_place(["ab1", "cd1", "c1", "b1"], _cluster(4)))
    after = _place(["bc1", "ad1", "ab1", "d1"], _cluster(4), before)
    assert _said(after) == ["bc@2", "ad@1", "ab@0", "d@3"]
    assert after[2] in before
    assert {group.id for group in after} == {group.id for group in before}


def test_a_larger_group_takes_gpus_of_what_loads_fastest() -> None:
    before = tuple(_place(["d1", "c1", "a1", "b1"], _cluster(2, 2)))
    assert _said(_place(["ab2", "d1", "c1"], _cluster(2, 2), before)) == ["ab@2-3", "d@0", "c@1"]


def test_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 groups of 4 GPUs, and there are 1 in islands of 4, 2"):
        _place(["a4", "b4"], _cluster(4, 2))


@settings(max_examples=25)
@given(
    data=st.data(), islands=st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=3)
)
def test_no_gpu_has_two_groups_and_none_moves_without_need(
    data: st.DataObject, islands: list[int]
) -> None:
    """Halves of halves of the islands always fit; placed again, all are as they were."""
    sizes: list[int] = []
    for gpus in islands:
        left = gpus
        while left:
            size = data.draw(st.sampled_from([z for z in (1, 2, 4, 8) if z <= left]))
            sizes.append(size)
            left -= size
    cluster = _cluster(*islands)
    names = [data.draw(st.sampled_from(["a", "ab", "cd", "bd"])) + str(size) for size in sizes]
    found = _place(names, cluster)
    used = [gpu for group in found for gpu in group.gpus]
    assert len(set(used)) == len(used)
    assert all(any(set(g.gpus) <= island for island in cluster.nvlink_islands) for g in found)
    assert set(_place(names, cluster, tuple(found))) == set(found)


def test_seconds_until_groups_serve() -> None:
    """A start takes 0.25 s and reading 0.75 s each: none where a service stays, else as needed."""
    before = tuple(_place(["ab1", "c1", "d2"], _cluster(4)))
    after = _place(["ac1", "d1", "ab2"], _cluster(4), before)
    assert _said(after) == ["ac@3", "d@2", "ab@0-1"]
    assert loading_s(after, before, LinearCosts()) == [0.0, 0.75, 1.5]
    assert loading_s(after, (), LinearCosts()) == [1.75, 1.0, 1.75]
