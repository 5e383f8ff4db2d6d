"""Full blocks shared by requests that begin alike, against what a hand adds up."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from harness.engines.recorder import Recorder
from harness.tests.support.batches import watched
from harness.tests.support.loads import assert_same_times
from harness.tests.support.serving import FlatCosts, rule, serve, workload
from harness.workloads.workload import Workload

BLOCK = 4


def _load(
    prompts: list[int], outputs: list[int], arrivals_s: list[float], *common: tuple[int, int]
) -> Workload:
    """Requests that begin with so many tokens of an earlier one's context, each in `common`."""
    prefix, tokens = np.array(common, np.int64).T
    return replace(workload(prompts, outputs, arrivals_s), prefix=prefix, prefix_tokens=tokens)


def _batches(load: Workload, *, blocks: int = 64, caches: bool = True) -> list[dict[int, int]]:
    """Tokens that each request computes, batch by batch."""
    seen = watched(Fcfs(rule=rule(chunked_prefill=True)))
    costs = FlatCosts(blocks=blocks, block=BLOCK, load=0.0)

    def served(fast: bool) -> Recorder:
        return serve(load, seen, costs=costs, prefix_caching=caches, fast_forward=fast)

    frame = assert_same_times(served).requests
    if caches and not frame["preemptions"].any():
        computed = [sum(step.get(r, 0) for _, step in seen.steps) for r in range(len(load))]
        whole = load.prompt_tokens + load.output_tokens - 1
        assert (computed + frame["cached_tokens"] == whole).all()
    return [step for _, step in seen.steps]


def test_a_prompt_is_spared_the_full_blocks_that_it_shares() -> None:
    """Of the 10 tokens that both begin with two blocks of four are full."""
    load = _load([10, 13], [3, 1], [0.0, 9.0], (-1, 0), (0, 10))
    assert _batches(load) == [{0: 10}, {0: 1}, {0: 1}, {1: 5}]
    assert _batches(load, caches=False) == [{0: 10}, {0: 1}, {0: 1}, {1: 13}]


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    """All eight tokens are cached: the second block, which has the last one, is computed anew."""
    load = _load([10, 8], [1, 1], [0.0, 9.0], (-1, 0), (0, 8))
    assert _batches(load) == [{0: 10}, {1: 4}]


def test_the_next_prompt_of_a_session_finds_the_answer() -> None:
    """Of 13 tokens of the first turn 12 have KV: its last one is never computed."""
    load = _load([10, 16], [3, 1], [0.0, 9.0], (-1, 0), (0, 13))
    assert _batches(load) == [{0: 10}, {0: 1}, {0: 1}, {1: 4}]


def test_the_next_request_of_a_batch_finds_what_the_one_before_it_computes() -> None:
    """As in vLLM, which caches a block when it is given out; both hold the two blocks at once."""
    load = _load([8, 12], [2, 2], [0.0, 0.0], (-1, 0), (0, 8))
    # r0 takes 2 blocks, r1 one more; then a block for each answer: 5 of them, not 7.
    assert _batches(load, blocks=5) == [{0: 8, 1: 4}, {0: 1, 1: 1}]


def test_blocks_that_are_used_least_recently_go_first() -> None:
    """Six blocks. r0 leaves two, r1 two; r2, with three, takes the empty two and r0's last.

    So r3 finds r0's first, and takes both of r1's beside it: r4 finds none.
    """
    load = _load(
        [9, 9, 12, 9, 9],
        [1] * 5,
        [0.0, 9.0, 19.0, 29.0, 39.0],
        *((-1, 0), (-1, 0), (-1, 0), (0, 9), (1, 9)),
    )
    assert _batches(load, blocks=6)[-2:] == [{3: 5}, {4: 9}]


def test_a_preempted_request_finds_its_own_blocks_when_it_comes_back() -> None:
    """Five blocks. Both decode until r0 needs a third one: r1 gives way and keeps its cached ones.

    r0 takes the free one for its third, so r1 has lost nothing but the last tokens.
    """
    load = _load([8, 8], [6, 4], [0.0, 0.0], (-1, 0), (-1, 0))
    batches = _batches(load, blocks=5)
    assert batches[:2] == [{0: 8, 1: 8}, {0: 1}]
    assert batches[-1] == {1: 1}


@pytest.mark.parametrize(
    ("prefix", "tokens", "message"),
    [
        (1, 4, "request 1 begins like request 1, which is not ahead of it"),
        (0, 9, "request 1 shares 9 tokens, which its prompt does not have"),
        (-1, 2, "request 1 shares 2 tokens, which the other's context does not have"),
    ],
)
def test_prefixes_that_cannot_be_are_refused(prefix: int, tokens: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _load([8, 8], [6, 4], [0.0, 0.0], (-1, 0), (prefix, tokens))
