"""Blocks that a group has to compute and to hold, counted by hand; blocks of 4 tokens."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from baselines.prefix_aware import PrefixAware
from harness.interface.policies import DispatchPolicy
from harness.tests.support.dispatches import groups_given
from harness.tests.support.serving import Everywhere, FlatCosts, rule, workload

TWO = Everywhere(("m", (0,)), ("m", (1,)))


def _policy(weight: float = 1.0, ttl_s: float = 120.0) -> DispatchPolicy:
    return PrefixAware(overlap_weight=weight, block_tokens=4, ttl_s=ttl_s)


def _given(
    prompts: list[int],
    shares: list[tuple[int, int]],
    come_s: list[float],
    policy: DispatchPolicy,
    outputs: list[int] | None = None,
) -> list[int]:
    """The GPU that each request goes to; `shares` has the earlier request and tokens of it."""
    load = workload(prompts, outputs or [1] * len(prompts), come_s)
    prefix, tokens = (np.array(column, np.int64) for column in zip(*shares, strict=True))
    load = replace(load, prefix=prefix, prefix_tokens=tokens)
    costs = FlatCosts(load=0.0, block=4)
    return groups_given(load, policy, TWO, costs=costs, scheduling=Fcfs(rule=rule()))


NEW, FIRST, SECOND = (-1, 0), (0, 8), (1, 8)


def test_cached_blocks_against_load_by_hand() -> None:
    """Half a second for a prompt; every answer has one token.

    r0 goes to the first. r1 at 0.1 s would make 16 tokens to compute and 4 blocks to hold there, 8
    and 2 in the second. At 2 s all is answered: r2 begins as r1, 4 in the first, 1 token and 2
    blocks, 2.25, in the second. r3 and r4 begin as r0: 2.25 and 2.5 in the first; 9 tokens and 4
    blocks, 6.25, in the second, where r2 still has 1 token to compute.
    """
    shares = [NEW, NEW, SECOND, FIRST, FIRST]
    given = _given([8] * 5, shares, [0.0, 0.1, 2.0, 2.1, 2.2], _policy())
    assert given == [0, 1, 1, 0, 0]


def test_expired_blocks_are_not_expected_to_be_cached() -> None:
    """As above until r2, which comes after what r1 was sent has expired: equal, to the first."""
    given = _given([8] * 3, [NEW, NEW, SECOND], [0.0, 0.1, 3.0], _policy(ttl_s=2.0))
    assert given == [0, 1, 0]


@pytest.mark.parametrize(
    ("weight", "goes_to"),
    [
        # r1 has its first token and holds 10 blocks in the first. There r2 has 1 token to compute
        # and holds 2 more, 12.25; in the second 8 and 2, 4.
        (1.0, 1),
        # 100 / 4 + 12 = 37 in the first, 800 / 4 + 2 = 202 in the second.
        (100.0, 0),
    ],
)
def test_load_outweighs_what_is_cached(weight: float, goes_to: int) -> None:
    """r1 has 40 tokens and comes when all is answered: 20 in both, to the first."""
    given = _given(
        [8, 40, 8], [NEW, NEW, FIRST], [0.0, 1.0, 2.0], _policy(weight), outputs=[1, 90, 1]
    )
    assert given == [0, 0, goes_to]


def test_requests_of_one_instant_see_each_other() -> None:
    """r1 would make 16 tokens to compute and 4 blocks to hold in the first group."""
    assert _given([8] * 3, [NEW] * 3, [0.0] * 3, _policy()) == [0, 1, 0]


def test_equal_costs_go_where_fewest_requests_are() -> None:
    """Blocks alone count, and they are shared: 2 in either group for every request."""
    given = _given([8] * 3, [NEW, FIRST, FIRST], [0.0] * 3, _policy(weight=0.0))
    assert given == [0, 1, 0]


def test_blocks_that_are_not_full_are_held_alone() -> None:
    """Prompts of 3 tokens have no full block: each holds one, and is computed."""
    assert _given([3] * 4, [NEW] * 4, [0.0, 0.1, 0.2, 0.3], _policy()) == [0, 1, 0, 1]


@pytest.mark.parametrize("wrong", [(-1.0, 4, 1.0), (1.0, 0, 1.0), (1.0, 4, 0.0)])
def test_settings_without_meaning_are_refused(wrong: tuple[float, int, float]) -> None:
    weight, block_tokens, ttl_s = wrong
    with pytest.raises(ValueError, match="must be at least"):
        PrefixAware(overlap_weight=weight, block_tokens=block_tokens, ttl_s=ttl_s)
