"""Which requests met their objectives, by hand and against the simulator."""

import numpy as np
import pandas as pd
import pytest

from harness.interface.entities import ServiceId, Work
from harness.runs.objectives import met_objectives, solo_seconds
from harness.tests.support.serving import SERVICE, FlatCosts, serve, workload

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


def test_solo_seconds_are_those_of_a_run_alone() -> None:
    """Loads 1 s: what a request takes from there is what it takes alone."""
    load = workload([9], [4])
    alone = serve(load, costs=FlatCosts()).requests
    seconds = solo_seconds(alone, FlatCosts(), {str(SERVICE): 1})
    assert alone["finished_s"].tolist() == pytest.approx(1.0 + seconds)


def test_solo_seconds_grow_with_the_context_of_each_token() -> None:
    """0.5 s for the prompt, 1 ms a token of context: 11, 12 and 13 of them for 10 + 4 tokens."""

    class Growing(FlatCosts):
        def iteration_s(
            self, service: ServiceId, tensor_parallel: int, work: Work, *, gpu_share: float = 1.0
        ) -> float:
            return 0.5 if work.prefill_requests else 0.001 * work.context_tokens

    rows = ROWS.iloc[:1].assign(prompt_tokens=10, output_tokens=4)
    assert solo_seconds(rows, Growing(), {"m": 1}).tolist() == pytest.approx([0.536])
