"""Capacity from the runs of backlogs, by hand."""

from typing import Any

import pandas as pd
import pytest

from harness.tools.benchmarks.capacity import SETTING, capacities

AT_ONCE = "harness.workloads.arrivals.AtOnce"


def rows(arrivals: str = AT_ONCE) -> pd.DataFrame:
    """100 requests in 20 and in 50 s of two seeds with 2 slots, and in 10 s with 4 slots."""
    found: list[dict[str, Any]] = [
        {
            **dict.fromkeys(SETTING.values(), "x"),
            SETTING["max_num_seqs"]: slots,
            SETTING["refills"]: float("nan"),
            "config.workload.arrivals._target_": arrivals,
            "config.seed": seed,
            "requests": 100.0,
            "load_s": 5.0,
            "inference_s": 5.0 + seconds,
        }
        for slots, seed, seconds in ((2, 0, 20.0), (2, 1, 50.0), (4, 0, 10.0))
    ]
    return pd.DataFrame(found)


def test_capacity_is_the_mean_over_seeds_in_every_setting() -> None:
    table = capacities(rows(), "backlogs")
    found = {row["setting"]["max_num_seqs"]: row["requests_per_s"] for row in table["rows"]}
    assert found == {2: pytest.approx((5.0 + 2.0) / 2), 4: pytest.approx(10.0)}
    assert table["seeds"] == 1
    assert table["rows"][0]["setting"]["refills"] is None
    assert table["source"].endswith("capacity backlogs")


def test_what_is_no_backlog_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^rates serves no backlogs: its requests come by a\.Gamma"
    ):
        capacities(rows("a.Gamma"), "rates")
