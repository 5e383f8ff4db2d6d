"""Two public statements, by hand."""

import pandas as pd
import pytest

from harness.league_checks import (
    BUDGETS,
    against_static,
    budgets_said,
    starvation_said,
    verdicts,
)

FIGURES = ("jct_s_mean", "ttft_s_p99", "itl_s_p99")


def rows_of(values: dict[tuple[float, str], float]) -> pd.DataFrame:
    """Runs of three seeds that are alike, by load and budget."""
    return pd.DataFrame(
        {"load": "azure_conv", "share": share, "budget": budget, "config.seed": seed}
        | dict.fromkeys(FIGURES, value)
        for (share, budget), value in values.items()
        for seed in (0, 1, 2)
    )


LEAST, MOST = str(BUDGETS[0]), str(BUDGETS[-1])


def test_no_budget_is_best_at_both_loads_by_hand() -> None:
    """At 0.5 the largest budget is the best, at 1.2 the smallest; P-PAS is the best at both."""
    static = {(0.5, LEAST): 2.0, (0.5, MOST): 1.0, (1.2, LEAST): 1.0, (1.2, MOST): 3.0}
    found = against_static(rows_of(static | {(0.5, "p_pas"): 0.8, (1.2, "p_pas"): 0.9}))
    said = {one["budget"]: one for one in budgets_said(found) if one["figure"] == "mean JCT s"}
    assert [said[it]["most"] for it in (LEAST, MOST)] == [1.0, 2.0]
    assert [said[it]["beaten"] for it in (LEAST, MOST)] == [1, 1]
    assert said["p_pas"]["most"] == pytest.approx(-0.1)
    text = verdicts(found, [])["budgets"]
    assert text.startswith(f"By mean JCT s it holds: {LEAST}, beaten least often, is so in 1 of 2")
    assert "p_pas takes 0.85 [" in text


def test_one_budget_is_best_by_hand() -> None:
    """1% is no loss that counts."""
    found = against_static(
        rows_of({(0.5, LEAST): 1.01, (0.5, MOST): 1.0, (1.2, LEAST): 2.0} | {(1.2, MOST): 1.0})
    )
    text = verdicts(found, [])["budgets"]
    assert text.startswith(
        f"By mean JCT s it does not hold: {MOST}, beaten least often, is so in 0"
    )


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
    said = verdicts(against_static(rows_of({(0.5, MOST): 1.0})), starvation_said(league))
    assert "vllm. lpm_aging takes 0.45 [" in said["starvation"]
    assert "of the P99 TTFT s of lpm and 1.00 [" in said["starvation"]
