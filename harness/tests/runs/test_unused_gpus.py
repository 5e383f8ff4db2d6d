"""GPUs that nothing ran on are said."""

import numpy as np
import pandas as pd
import pytest

from harness.runs.unused_gpus import unused_gpus

KEY = "system.placement.data_parallel"
PLACED = "config.system.placement."


@pytest.mark.parametrize(
    ("count", "used", "copies", "said"),
    [
        ([8], [4.0], [1], f"4 of 8 GPUs were never used; {KEY}=2 has 2 copies of every model"),
        ([8], [8.0], [2], None),
        # Two services with a copy each; a third of 4 GPUs each would not fit.
        ([16], [8.0], [1], f"8 of 16 GPUs were never used; {KEY}=2 has 2 copies of every model"),
        ([12], [8.0], [1], "4 of 12 GPUs were never used"),
        # Of three copies one has served nothing; no placement of copies alone.
        ([12], [8.0], [3], "4 of 12 GPUs were never used"),
        ([8], [4.0], [np.nan], "4 of 8 GPUs were never used"),
        ([8, 8], [4.0, 8.0], [1, 2], f"4 of 8 GPUs were never used in 1 of 2 runs; {KEY}=2"),
        ([8, 16], [4.0, 4.0], [1, 1], "4 to 12 of 8 or 16 GPUs were never used"),
        ([8, 8], [np.nan, 8.0], [1, 2], None),
    ],
)
def test_gpus_that_nothing_ran_on_are_said(
    count: list[int], used: list[float], copies: list[float], said: str | None
) -> None:
    rows = pd.DataFrame({"config.hardware.gpu_count": count, "gpus_used": used})
    rows[f"{PLACED}data_parallel"] = copies
    rows[f"{PLACED}tensor_parallel"] = 4
    found = unused_gpus(rows)
    assert found == said if said is None or "in 1" not in said else str(found).startswith(said)


def test_without_the_figure_nothing_is_said() -> None:
    assert unused_gpus(pd.DataFrame({"config.hardware.gpu_count": [8]})) is None
