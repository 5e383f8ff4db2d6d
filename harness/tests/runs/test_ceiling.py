"""The most that any scheduler could serve, by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.costs.iteration import IterationTable
from harness.runs.ceiling import Room, kv_tokens, most_of, most_per_s
from harness.runs.record import as_yaml
from harness.tests.support.configured import first_cell_of


def folder_of(folder: Path, scenario: str, prompts: list[int], answers: list[int]) -> Path:
    """What the ceiling is computed from, of a scenario's first cell."""
    (folder / "config.yaml").write_text(as_yaml(first_cell_of(f"+scenario={scenario}").config))
    rows = {"prompt_tokens": prompts, "output_tokens": answers}
    pd.DataFrame(rows).to_parquet(folder / "requests.parquet")
    return folder


def test_one_length_on_an_a100_by_hand(tmp_path: Path) -> None:
    """OPT-13B, 12 GB: 457 blocks of 32, 14,624 tokens; prompts of 161 and answers of 338 tokens.

    A request holds 161 + 169 + 16 = 346 tokens, so that 42 run; an iteration takes 23.475 ms, 42 x
    0.0607 ms and 0.5929 us for each of 42 x 330 tokens, 34.24 ms. For an answer that is 338 x 34.24
    / 42 = 275.6 ms, and 161 tokens of prompt at 0.1405 ms are 22.6 ms, 161^2 more 0.2 ms.
    """
    folder = folder_of(tmp_path, "ecoserve_capacity", [161] * 3, [338] * 3)
    assert kv_tokens(folder) == 457 * 32
    assert most_per_s(folder) == pytest.approx(1 / (0.2756 + 0.0226 + 0.0002), rel=1e-3)


def test_a_limit_of_requests_binds_before_kv() -> None:
    """Iterations of 1 s with 2 requests of 10 tokens: an answer takes 10 s, so that 0.2 a second.

    With room for ten it would be 1 a second, and with KV for three of 14 + 4 tokens 0.3.
    """
    flat = IterationTable(
        *(np.full(100, it) for it in (9.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0))
    )
    prompts, answers = np.full(5, 9), np.full(5, 10)
    for room, per_s in ((Room(1000, 8, 2), 0.2), (Room(1000, 8, 10), 1.0), (Room(55, 8, 10), 0.3)):
        assert most_of(flat, room, prompts, answers) == pytest.approx(per_s)


def test_long_answers_hold_their_kv_longer() -> None:
    """Answers of 2 and 8 tokens, no prompts: of ten iterations eight hold 4 tokens and two 1."""
    flat = IterationTable(
        *(np.full(100, it) for it in (0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0))
    )
    held = (2 * 1 + 8 * 4) / 10 + 0.5
    found = most_of(flat, Room(int(held * 20), 1, 1000), np.array([0, 0]), np.array([2, 8]))
    assert found == pytest.approx(20 / 5)
