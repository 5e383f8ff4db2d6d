"""Regret and rank of a league, by hand."""

import pandas as pd
import pytest

from harness.league import (
    KINDS,
    LOADS,
    PLACES,
    against,
    answers,
    folded,
    judged,
    model_of_load,
    over_bounds,
    table_of,
    with_part,
)
from harness.runs.limits import POLICY


def runs() -> pd.DataFrame:
    """Three seeds: `vllm` takes 1 s, `b` half as long again, and `c` meets no objective."""
    place = {"load": "sharegpt", "share": 0.5, "kv": "ample"}
    return pd.DataFrame(
        {**place, POLICY: policy, "config.seed": seed, "preemptions": 1.0}
        | dict.fromkeys(KINDS["league_requests"]["judged"], jct_s)
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


def rows_of(values: dict[str, tuple[float, float, float]], bound: float = 0.5) -> pd.DataFrame:
    """Mean JCT and P99 TTFT of policies in three settings where KV is short, at a load of 1.5."""
    parts = []
    for place, load in enumerate(("azure_conv", "azure_code", "mooncake")):
        for figure in KINDS["league_requests"]["drawn"]:
            for policy, each in values.items():
                ratio = each[place] / values["vllm"][place]
                row = {"load": load, "share": 1.5, "kv": "short", "policy": policy}
                row |= {"figure": figure, "value": each[place], "ratio": ratio, "bound": bound}
                parts.append(row | {"rank": 1.0, "sign": float(ratio < 0.99) - float(ratio > 1.01)})
    return pd.DataFrame(parts)


FOUND = rows_of({"vllm": (1, 2, 4), "a": (0.5, 1, 2), "b": (0.8, 1.5, 3.2), "same": (1, 2, 4)})
OLDER = rows_of({"vllm": (1, 2, 4), "vllm_0_4": (0.25, 0.5, 1), "b": (0.8, 1.5, 3.2)})


def test_policies_that_serve_all_alike_are_one() -> None:
    assert folded(FOUND)["policy"].unique().tolist() == ["vllm = same", "a", "b"]


def test_the_best_policy_and_the_best_without_lengths_are_named_by_hand() -> None:
    """a halves all; b has ratios 0.8, 0.75 and 0.8, of which the geometric mean is 0.783."""
    (jct, _) = answers(folded(FOUND), told=["a"])
    said = "mean JCT s over vllm's, KV of 16 requests, above capacity: a, told true lengths 0.50 ["
    assert jct.startswith(said)
    assert "and b 0.78 [0.71, 0.86] (3/0/3)" in jct
    (alone, _) = answers(folded(FOUND), told=[])
    assert " and b" not in alone
    table = against(folded(FOUND), "jct_s_mean")
    assert table.index.tolist() == ["a", "b"]
    (jct, _) = answers(folded(OLDER), told=[])
    assert ": vllm_0_4 0.25 [" in jct


def test_the_best_of_all_stands_over_the_bound_by_hand() -> None:
    """0.5, 1 and 2 s over 0.5 s."""
    table = over_bounds(folded(FOUND))
    assert table["mean JCT s: the best policy"].tolist() == ["2.00x (1.00 to 4.00)"]
    assert table["mean JCT s: vllm"].tolist() == ["4.00x (2.00 to 8.00)"]
    older = over_bounds(folded(OLDER))
    assert older["mean JCT s: vllm"].tolist() == ["4.00x (2.00 to 8.00)"]


def test_a_load_may_be_served_on_other_machines() -> None:
    assert PLACES["azure_conv_gpt_oss_b200"] == ("azure_conv", "gpt_oss_b200")
    assert model_of_load("azure_conv_gpt_oss_b200").parent.name == "gpt-oss-120b"
    assert model_of_load("agents").parent.name == "llama-3.1-8b-16k"
    assert set(LOADS.values()) == set(KINDS)


def test_a_part_of_a_page_is_replaced_between_its_marks() -> None:
    page = "a\n<!-- generated: x -->\nold\n<!-- end: x -->\nb\n"
    assert with_part(page, "x", "new") == page.replace("old", "new")
