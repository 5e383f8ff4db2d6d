"""Tokens to compute times requests, counted by hand; blocks of 4 tokens."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from baselines.lmetric import LMetric
from harness.tests.support.dispatches import groups_given
from harness.tests.support.serving import Everywhere, FlatCosts, rule, workload

TWO = Everywhere(("m", (0,)), ("m", (1,)))
NEW, FIRST = (-1, 0), (0, 8)


def _given(
    prompts: list[int],
    shares: list[tuple[int, int]],
    come_s: list[float],
    outputs: list[int],
    *,
    counts_queued: bool = True,
    ttl_s: float = 120.0,
) -> list[int]:
    """The GPU that each request goes to; `shares` has the earlier request and tokens of it."""
    prefix, tokens = (np.array(column, np.int64) for column in zip(*shares, strict=True))
    load = replace(workload(prompts, outputs, come_s), prefix=prefix, prefix_tokens=tokens)
    policy = LMetric(counts_queued=counts_queued, block_tokens=4, ttl_s=ttl_s)
    costs = FlatCosts(load=0.0, block=4)
    return groups_given(load, policy, TWO, costs=costs, scheduling=Fcfs(rule=rule()))


def test_tokens_times_requests_by_hand() -> None:
    """All answers are long, and every prompt is computed when the next request comes.

    r0: 8 x 1 in both, to the first. r1: 8 x 2 and 8 x 1. r2 to r5 begin as r0 and have 8 tokens
    more. r2: 8 x 2 in the first, 16 x 2 in the second. r3: 8 x 3 and 16 x 2. r4: 8 x 4 and 16 x 2,
    equal, to the second, which has fewer requests. r5: 8 x 4 and, where r4 is, 8 x 3.
    """
    shares = [NEW, NEW, FIRST, FIRST, FIRST, FIRST]
    come_s = [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    given = _given([8, 8, 16, 16, 16, 16], shares, come_s, [90] * 6)
    assert given == [0, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("counts_queued", "goes_to"),
    [
        # 8 tokens of r0 and 4 of r1, times 2, in the first; 12 x 1 in the second.
        (True, 1),
        # 4 x 2 in the first.
        (False, 0),
    ],
)
def test_queued_prompts_count_where_the_paper_says_so(counts_queued: bool, goes_to: int) -> None:
    """r1 begins as r0, whose prompt is being computed."""
    given = _given([8, 12], [NEW, FIRST], [0.0, 0.1], [1, 1], counts_queued=counts_queued)
    assert given == [0, goes_to]


@pytest.mark.parametrize(("ttl_s", "goes_to"), [(120.0, 0), (1.0, 1)])
def test_expired_blocks_are_not_expected_to_be_cached(ttl_s: float, goes_to: int) -> None:
    """r1 begins as r0, which is not answered: 4 x 2 and 12 x 1; 12 x 2 and 12 x 1 once expired."""
    assert _given([8, 12], [NEW, FIRST], [0.0, 2.0], [90, 1], ttl_s=ttl_s) == [0, goes_to]


@pytest.mark.parametrize("wrong", [(0, 1.0), (4, 0.0)])
def test_settings_without_meaning_are_refused(wrong: tuple[int, float]) -> None:
    block_tokens, ttl_s = wrong
    with pytest.raises(ValueError, match="must be at least 1, ttl_s"):
        LMetric(counts_queued=True, block_tokens=block_tokens, ttl_s=ttl_s)
