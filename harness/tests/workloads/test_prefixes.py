"""Prefixes of contexts, by hand."""

from dataclasses import replace

import numpy as np

from harness.tests.support.serving import workload
from harness.workloads.prefixes import Prefixes, prefixes_of_hashes
from harness.workloads.together import together


def test_prompts_share_the_longest_run_of_equal_blocks() -> None:
    """A tree: the third has two blocks of the first, the fourth three of the third."""
    hashes = [[1, 2, 3], [9, 2], [1, 2, 4, 5], [1, 2, 4, 7], []]
    prefix, tokens = prefixes_of_hashes(hashes, 10, np.array([25, 20, 40, 38, 5]))
    assert prefix.tolist() == [-1, -1, 0, 2, -1]
    assert tokens.tolist() == [0, 0, 20, 30, 0]


def test_a_last_block_that_is_not_full_is_shared_as_it_is() -> None:
    prefix, tokens = prefixes_of_hashes([[1, 2], [1, 2]], 10, np.array([15, 15]))
    assert (prefix.tolist(), tokens.tolist()) == ([-1, 0], [0, 15])


def test_tokens_are_named_after_the_first_that_has_them() -> None:
    common = Prefixes([-1, 0, 1], [0, 5, 7])
    assert common.token_owners(2, 9) == [0] * 5 + [1] * 2 + [2] * 2
    assert [common.owner(2, end) for end in (5, 6, 8)] == [0, 1, 2]
    names = common.contents(4)
    assert [names(2, 0), names(1, 0), names(2, 1)] == [(0, 0), (0, 0), (2, 1)]


def test_workloads_together_keep_what_their_requests_share() -> None:
    first = workload([8, 9], [1, 1], [0.0, 2.0])
    second = workload([8, 9], [1, 1], [1.0, 3.0], services=2)
    shares = np.array([-1, 0]), np.array([0, 6])
    second = replace(second, prefix=shares[0], prefix_tokens=shares[1])
    both = together([first, second])
    assert both.prefix.tolist() == [-1, -1, -1, 1]
    assert both.prefix_tokens.tolist() == [0, 0, 0, 6]
