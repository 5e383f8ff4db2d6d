"""What an actor of Ray is asked, in the order in which it was sent."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.engines.vllm.ray import InTurn  # noqa: E402


@settings(max_examples=25)
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
