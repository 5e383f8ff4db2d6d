"""What an actor of Ray is asked, in the order in which it was sent."""

from queue import Empty

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.engines.vllm.host import InTurn


@given(st.permutations(range(8)), st.integers(0, 8))
def test_things_come_in_the_order_of_their_numbers(numbers: list[int], taken: int) -> None:
    """A group was asked for its report before it was told to begin, and hung for good."""
    turns, got = InTurn[int](), list[int]()
    for count, number in enumerate(numbers, start=1):
        turns.put(number, number)
        there = next(n for n in range(9) if n not in numbers[:count])
        while len(got) < min(there, taken):
            got.append(turns.get(0.0))
    assert got == [*range(taken)]


def test_nothing_comes_before_what_was_sent_first() -> None:
    turns = InTurn[str]()
    turns.put(1, "submit")
    for wait_s in (0.0, 0.01):
        with pytest.raises(Empty):
            turns.get(wait_s)
    turns.put(0, "begin")
    assert [turns.get(0.01), turns.get(0.0)] == ["begin", "submit"]
