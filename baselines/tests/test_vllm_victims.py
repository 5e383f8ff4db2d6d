"""Which request gives way where KV is short."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from baselines.vllm_victims import VllmVictims, cost_aware, least_computed
from harness.interface.policies import SchedulingPolicy
from harness.tests.support.batches import watched
from harness.tests.support.serving import FlatCosts, rule, serve, workload
from harness.workloads.workload import Workload

RULE = rule(chunked_prefill=True)


def victims(victim: str) -> VllmVictims:
    """Of eight slots."""
    return VllmVictims(rule=RULE, victim=victim)


def _holder(name: int, tokens: int, generated: int, most: int) -> Any:
    return SimpleNamespace(
        facts=SimpleNamespace(id=name, max_output_tokens=most),
        kv_tokens=tokens,
        context_tokens=tokens,
        generated_tokens=generated,
    )


def test_victims_by_hand() -> None:
    """Scores 250/4000 x 0.9, 38/600 x 0.1 and 94/1500 x 0.975; then 34/1500 x 0.975 of the last.

    The request that needs the block is spared by one rule, and an equal one that came later is not.
    """
    a, b, c = (_holder(*it) for it in ((0, 4000, 10, 100), (1, 600, 90, 100), (2, 1500, 5, 200)))
    holders = [a, b, c]
    blocks = {0: 250, 1: 38, 2: 94}
    kv: Any = SimpleNamespace(own_blocks=blocks.get)
    assert least_computed(kv, holders, a) is b
    assert least_computed(kv, holders, b) is c
    assert least_computed(kv, [a], a) is a
    assert least_computed(kv, [a, b, twin := _holder(3, 600, 1, 9)], a) is twin
    assert cost_aware(kv, holders, a) is c
    assert cost_aware(kv, holders, c) is c
    blocks[2] -= 60
    assert cost_aware(kv, holders, c) is a


def batches(
    load: Workload, policy: SchedulingPolicy, *, blocks: int, caches: bool = False
) -> list[dict[int, int]]:
    """Tokens that each request computes, in blocks of four."""
    seen = watched(policy)
    costs = FlatCosts(load=0.0, block=4, blocks=blocks)
    serve(load, seen, costs=costs, prefix_caching=caches, fast_forward=False)
    return [step for _, step in seen.steps]


def test_who_gives_way_by_hand() -> None:
    """Prompts take 3, 1 and 3 of seven blocks; the first two need another at their next token.

    Today the last gives way to the first, which leaves room for both. The second has computed
    least; it then finds room when the others have finished. Of blocks per token the last has most.
    """
    load = workload([12, 4, 9], [3, 3, 3])
    all_three = {0: 12, 1: 4, 2: 9}
    last = [all_three, {0: 1, 1: 1}, {0: 1, 1: 1}, {2: 10}, {2: 1}]
    second = [all_three, {0: 1, 2: 1}, {0: 1, 2: 1}, {1: 5}, {1: 1}]
    assert batches(load, Fcfs(rule=RULE), blocks=7) == last
    assert batches(load, victims("lcf"), blocks=7) == second
    assert batches(load, victims("cost_aware"), blocks=7) == last


def test_a_shared_prefix_frees_little_by_hand() -> None:
    """The last request shares two blocks with the first: each would free one, of 10 and 13 tokens.

    The second would free one of 5 tokens. Five blocks are as full as seven without a cache.
    """
    load = replace(
        workload([12, 4, 9], [3, 3, 3]),
        prefix=np.array([-1, -1, 0]),
        prefix_tokens=np.array([0, 0, 8]),
    )
    found = batches(load, victims("cost_aware"), blocks=5, caches=True)
    assert found == [{0: 12, 1: 4, 2: 1}, {0: 1, 2: 1}, {0: 1, 2: 1}, {1: 5}, {1: 1}]


def test_one_that_has_its_block_may_give_way_by_hand() -> None:
    """Prompts take 2 and 3 of five blocks, and both need another: first the first one's is found.

    The second, which has computed more, is the only other one: it gives way. With a sixth block
    the first takes that, and then gives way to the second.
    """
    load = workload([8, 12], [3, 3])
    both = {0: 8, 1: 12}
    first = [both, {0: 1}, {0: 1}, {1: 13}, {1: 1}]
    assert batches(load, victims("lcf"), blocks=5) == first
    second = [both, {1: 1}, {1: 1}, {0: 9}, {0: 1}]
    assert batches(load, victims("lcf"), blocks=6) == second


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"policy\.victim is random, not lcf or cost_aware"):
        victims("random")
    with pytest.raises(ValueError, match=r"chunked_prefill is False, it must be True"):
        VllmVictims(rule=rule(), victim="lcf")
