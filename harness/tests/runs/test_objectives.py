"""Which requests met their objectives, by hand and against the simulator."""

import numpy as np
import pandas as pd
import pytest

from harness.runs.objectives import met_objectives

ROWS = pd.DataFrame(
    {
        "service": ["m", "m", "m"],
        "arrival_s": [0.0, 1.0, 2.0],
        "started_s": [0.5, 3.0, np.nan],
        "first_token_s": [1.0, 4.0, np.nan],
        "finished_s": [5.0, 4.0, np.nan],
        "prompt_tokens": [8, 8, 8],
        "output_tokens": [5, 1, 0],
    }
)
"""TTFT 1, 3, 8+ s; TPOT 1 s, none, none; JCT 5, 3, 8+ s at 10 s."""


def met(slo: dict[str, float | None], rows: pd.DataFrame = ROWS) -> list[bool] | None:
    found = met_objectives(rows, slo, horizon_s=10.0, solo_s=np.array([2.0, 2.0, 2.0]))
    return None if found is None else found.tolist()


@pytest.mark.parametrize(
    ("slo", "expected"),
    [
        ({"ttft_s": 2.0}, [True, False, False]),
        ({"ttft_s": 9.0}, [True, True, False]),
        ({"tpot_s": 0.5}, [False, True, False]),
        ({"jct_s": 3.0}, [False, True, False]),
        ({"ttft_s": 3.0, "jct_s": 5.0}, [True, True, False]),
        ({"scale": 2.0}, [False, True, False]),
        ({"scale": None, "ttft_s": None}, None),
        ({}, None),
    ],
)
def test_objectives_by_hand(slo: dict[str, float | None], expected: list[bool] | None) -> None:
    assert met(slo) == expected


def test_a_deadline_counts_where_a_request_has_one() -> None:
    rows = ROWS.assign(deadline_s=[4.9, np.nan, 3.0])
    assert met({}, rows) == [False, True, False]
