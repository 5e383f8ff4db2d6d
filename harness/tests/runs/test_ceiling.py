"""The most that any scheduler could serve, by hand."""

import numpy as np
import pandas as pd
import pytest

from harness.costs.iteration import IterationTable
from harness.runs.ceiling import Room, kv_tokens, most_of, most_per_s
from harness.tests.support.configured import first_cell_of
from harness.tests.support.run_folders import run_with


def test_one_length_on_an_a100_by_hand() -> None:
    """OPT-13B, 12 GB: 457 blocks of 32, 14,624 tokens; prompts of 161 and answers of 338 tokens.

    A request has 162 + 168.5 tokens of context and holds 16 more, 346.5: 42.2 run. An iteration
    takes 23.475 ms, 42.2 x 0.0607 ms and 0.5929 us for each of 42.2 x 330.5 tokens, 34.31 ms. 337
    decodes are 337 x 34.31 / 42.2 = 273.9 ms, and 161 tokens of prompt at 0.1405 ms 22.6 ms.
    """
    rows = pd.DataFrame({"prompt_tokens": [161] * 3, "output_tokens": [338] * 3})
    cell = first_cell_of("+scenario=ecoserve_capacity")
    run = run_with(config=cell.config, requests=rows)
    assert kv_tokens(run) == 457 * 32
    assert most_per_s(run) == pytest.approx(1 / (0.2739 + 0.0226), rel=1e-3)


def flat(prompt_s: float = 0.0, per_token_s: float = 0.0) -> IterationTable:
    """Iterations of 1 s, whatever decodes; a prompt adds seconds of its own and of its tokens."""
    return IterationTable(
        *(np.full(10_000, it) for it in (prompt_s, per_token_s, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0))
    )


def test_a_limit_of_requests_binds_before_kv() -> None:
    """Iterations of 1 s with 2 requests of 10 decodes: an answer takes 10 s, so that 0.2 a second.

    With room for ten it would be 1 a second; of contexts of 10 + 5 with half a block of 8 tokens 47
    tokens hold 2.47, 0.247 a second.
    """
    prompts, answers = np.full(5, 9), np.full(5, 11)
    for room, per_s in (
        (Room(1000, 8, 2), 0.2),
        (Room(1000, 8, 10), 1.0),
        (Room(47, 8, 10), 0.247),
    ):
        assert most_of(flat(), room, prompts, answers) == pytest.approx(per_s, rel=2e-3)


def test_prompts_go_in_the_pieces_that_take_the_fewest_seconds() -> None:
    """1 s for any piece and 1 ms a token: pieces of 8,192 tokens, 1.122 ms a token."""
    prompts, answers = np.full(5, 1000), np.full(5, 11)
    found = most_of(flat(1.0, 0.001), Room(10**9, 8, 1), prompts, answers)
    assert found == pytest.approx(1 / (10 + 1000 * (0.001 + 1 / 8192)))


def test_long_answers_hold_their_kv_longer() -> None:
    """2 and 8 decodes, no prompts: of ten iterations eight have 5 tokens of context and two 2."""
    held = (2 * 2 + 8 * 5) / 10 + 0.5
    found = most_of(flat(), Room(int(held * 200), 1, 1000), np.array([0, 0]), np.array([3, 9]))
    assert found == pytest.approx(200 / 5)
