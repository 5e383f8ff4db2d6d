"""Two public statements, by hand."""

import pandas as pd

from harness.league_checks import BUDGETS, budgets_said, starvation_said, verdicts
from harness.runs.comparison import compared


def budget_rows() -> pd.DataFrame:
    """At a load of 0.5 the largest budget is the best, at 1.2 the smallest; three seeds alike."""
    least, most = BUDGETS[0], BUDGETS[-1]
    values = {(0.5, least): 2.0, (0.5, most): 1.0, (1.2, least): 1.0, (1.2, most): 3.0}
    return pd.DataFrame(
        {"load": "azure_conv", "share": share, "budget": str(budget), "config.seed": seed}
        | dict.fromkeys(("jct_s_mean", "ttft_s_p99", "itl_s_p99"), value)
        for (share, budget), value in values.items()
        for seed in (0, 1, 2)
    )


def test_no_budget_is_best_at_both_loads_by_hand() -> None:
    figures = ("jct_s_mean", "ttft_s_p99", "itl_s_p99")
    found = compared(
        budget_rows(), figures, by="budget", reference=str(BUDGETS[-1]), at=["load", "share"]
    )
    said = {one["budget"]: one for one in budgets_said(found) if one["figure"] == "mean JCT s"}
    assert said[str(BUDGETS[0])]["most"] == 1.0
    assert said[str(BUDGETS[-1])]["most"] == 2.0
    assert [one["first"] for one in said.values()] == [1, 1]
    text = verdicts(found, [])["budgets"]
    assert text.startswith("by mean JCT s it holds: ")
    assert "not beaten beyond noise in 1 of 2 settings" in text


def test_starvation_is_over_the_cache_aware_order_by_hand() -> None:
    """P99 TTFT 10 s by lpm, 5 s and 4 s with aging: 0.45 of it; means are alike."""
    league = pd.DataFrame(
        {"load": load, "share": 1.5, "kv": "short", "figure": figure, "policy": policy}
        | {"value": value}
        for load, aged in (("mooncake", 5.0), ("mooncake_qwen3_h100", 4.0))
        for figure, of in (("ttft_s_p99", aged), ("ttft_s_mean", 10.0), ("jct_s_mean", 10.0))
        for policy, value in (("lpm", 10.0), ("lpm_aging", of))
    )
    (tail, mean, _) = starvation_said(league)
    assert (tail["policy"], tail["settings"], tail["least"]) == ("lpm_aging", 2, 0.4)
    assert tail["mean"].startswith("0.45 [")
    assert mean["mean"].startswith("1.00 [")
