"""Regret and rank of a league, by hand."""

import pandas as pd
import pytest

from harness.league import KINDS, judged, table_of
from harness.runs.limits import POLICY


def runs() -> pd.DataFrame:
    """Three seeds: `vllm` takes 1 s, `b` half as long again, and `c` meets no objective."""
    place = {"load": "sharegpt", "share": 0.5, "kv": "ample"}
    return pd.DataFrame(
        {**place, POLICY: policy, "config.seed": seed, "preemptions": 1.0}
        | dict.fromkeys(KINDS["league"]["judged"], jct_s)
        | {"slo_attainment": met}
        for seed in (0, 1, 2)
        for policy, jct_s, met in (("vllm", 1.0, 0.8), ("b", 1.5, 1.0), ("c", 3.0, 0.0))
    )


def test_regret_is_over_the_best_and_ranks_count_better_policies() -> None:
    found = judged(runs()).set_index(["figure", "policy"])
    jct = found.loc["jct_s_mean"]
    assert jct["regret"].to_dict() == pytest.approx({"vllm": 0.0, "b": 0.5, "c": 2.0})
    assert jct["rank"].to_dict() == {"vllm": 1, "b": 2, "c": 3}
    assert jct["ratio"].to_dict() == pytest.approx({"vllm": 1.0, "b": 1.5, "c": 3.0})
    assert jct["sign"].to_dict() == {"vllm": 0, "b": -1, "c": -1}
    met = found.loc["slo_attainment"]
    assert met["regret"].to_dict() == pytest.approx({"vllm": 0.25, "b": 0.0, "c": float("inf")})
    assert met["rank"].to_dict() == {"vllm": 2, "b": 1, "c": 3}
    assert met["sign"].to_dict() == {"vllm": 0, "b": 1, "c": -1}
    assert found.loc["preemptions"]["rank"].isna().all()


def test_the_summary_begins_with_the_least_median_regret() -> None:
    found = table_of(judged(runs()), ["sharegpt"])
    assert found.index.to_list() == ["vllm", "b", "c"]
    assert found.loc["b", "mean JCT s"] == pytest.approx(0.5)
