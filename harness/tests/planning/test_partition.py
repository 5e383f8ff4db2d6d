"""Sizes of groups: equal ones, and merged ones where services do not fit."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pytest

from harness.interface.entities import Service, ServiceId
from harness.planning.partition import GroupMemory, partition
from harness.tests.support.serving import LinearCosts


@dataclass(frozen=True)
class Weights(LinearCosts):
    """A GPU has 100 bytes, services have weights."""

    weights: Mapping[ServiceId, int] = field(default_factory=dict)

    def kv_bytes(self, services: Collection[ServiceId], tensor_parallel: int) -> int:
        """What the weights leave."""
        return max(0, 100 * tensor_parallel - sum(self.weights[name] for name in services))


def _memory(*weights: int, together: int = 2) -> GroupMemory:
    """Services with these weights; the longest request of each has 10 bytes of KV."""
    of = {ServiceId(f"m{at}"): weight for at, weight in enumerate(weights)}
    services = {name: Service(name, 1, 10) for name in of}
    return GroupMemory(Weights(weights=of), services, services_per_group=together)


@pytest.mark.parametrize(
    ("weights", "size", "islands", "expected"),
    [
        ((30, 30), 1, [4], [1, 1, 1, 1]),
        ((30, 30), 4, [8, 3], [4, 4]),
        # m1 needs two GPUs.
        ((30, 150), 1, [4], [2, 1, 1]),
        # Four GPUs for one: two pairs of two.
        ((30, 300), 1, [4, 4], [1, 1, 1, 1, 4]),
        # Each needs two, and both do not fit two: another pair of small groups, not of those.
        ((150, 150), 1, [4], [2, 2]),
        # Each fits one GPU beside nothing else, and there are three of them on two GPUs.
        ((60, 60, 60), 1, [2], None),
        # Any two fit together on two GPUs alone.
        ((60, 60, 60, 60), 1, [2], None),
        ((60, 60, 60), 1, [2, 1], [1, 1, 1]),
        # Places are lacking, not memory.
        ((1, 1, 1), 2, [2], None),
    ],
)
def test_sizes_by_hand(
    weights: tuple[int, ...], size: int, islands: list[int], expected: list[int] | None
) -> None:
    sizes = partition(islands, size, _memory(*weights))
    assert (None if sizes is None else sorted(sizes)) == (
        None if expected is None else sorted(expected)
    )


def test_groups_are_merged_for_memory_but_not_for_places() -> None:
    """A GPU holds one service of 50 bytes and two hold three; two groups have no place for five."""
    assert partition([4], 1, _memory(*[50] * 5, together=3)) == [2, 1, 1]
    assert partition([4], 2, _memory(*[60] * 5)) is None


def test_a_group_holds_weights_and_the_longest_requests() -> None:
    memory = _memory(40, 40, 45)
    m0, m1, m2 = memory.services
    assert memory.holds(frozenset({m0, m1}), 1)
    assert not memory.holds(frozenset({m0, m2}), 1)
    assert not memory.holds(frozenset({m0, m1, m2}), 8)
    assert memory.least_size(m0, 8) == 1
    with pytest.raises(ValueError, match="m0 does not fit 2 GPUs, the most that a group may have"):
        _memory(500).least_size(m0, 2)
