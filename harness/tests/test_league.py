"""Regret and rank of a league, by hand."""

import pandas as pd
import pytest

from harness.report.league import OF_REQUESTS, _ranked, summary
from harness.runs.table import POLICY


def runs() -> pd.DataFrame:
    """Three seeds: `a` takes 1 s, `b` half as long again, and `c` meets no objective."""
    rows = []
    for seed in (0, 1, 2):
        for policy, jct_s, met in (("a", 1.0, 0.8), ("b", 1.5, 1.0), ("c", 3.0, 0.0)):
            figures = dict.fromkeys(OF_REQUESTS, jct_s) | {"slo_attainment": met}
            rows.append(
                {POLICY: policy, "config.seed": seed, "share": 0.5, "started": "1", **figures}
            )
    return pd.DataFrame(rows)


def test_regret_is_over_the_best_and_ranks_count_better_policies() -> None:
    found = _ranked(runs(), "sharegpt", "ample").set_index(["figure", "policy"])
    jct = found.loc["jct_s_mean"]
    assert jct["regret"].to_dict() == pytest.approx({"a": 0.0, "b": 0.5, "c": 2.0})
    assert jct["rank"].to_dict() == {"a": 1, "b": 2, "c": 3}
    met = found.loc["slo_attainment"]
    assert met["regret"].to_dict() == pytest.approx({"a": 0.25, "b": 0.0, "c": float("inf")})
    assert met["rank"].to_dict() == {"a": 2, "b": 1, "c": 3}


def test_the_summary_begins_with_the_least_median_regret() -> None:
    found = summary(_ranked(runs(), "sharegpt", "ample"), ("jct_s_mean", "ttft_s_mean"))
    assert found.index.to_list() == ["a", "b", "c"]
    assert found.loc["b", "jct_s_mean"] == pytest.approx(0.5)
