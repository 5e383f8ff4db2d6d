"""Two public statements checked on the league's loads: the end of `python -m harness league`.

* vLLM RFC 52906: no static `max_num_batched_tokens` is best over loads. vLLM's order is served with
  several budgets, and P-PAS, which changes it by pressure, at each load and rate.
* SGLang issue 31954, PR 31723, PR 32911: under a cache-aware order requests without a cached prefix
  starve, and aging or the highest response ratio bounds that at little cost. The league's own runs
  of loads whose prompts begin alike say by how much.

Writes league/checks.json and a part of the league's page.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from harness.config.hydra_words import word
from harness.league import (
    MACHINES,
    PLACES,
    RATE,
    REFERENCE,
    SEEDS,
    backlog,
    league_of,
    served,
    words_of,
    write_part,
)
from harness.report.render import render
from harness.runs import published
from harness.runs.comparison import compared
from harness.runs.figures import header_of
from harness.runs.published import RESULTS
from harness.runs.stats import geometric_mean_of

LOADS = ("azure_conv", "azure_code", "mooncake")
"""Served on each machine that the league has for them."""
SHARES = (0.5, 0.8, 0.95, 1.2)
BUDGETS = (2048, 4096, 8192, 16384)
ADAPTIVE = "p_pas"
FIGURES = ("jct_s_mean", "ttft_s_p99", "itl_s_p99")
CACHED, ORDER, BOUNDED = "mooncake", "lpm", ("lpm_aging", "hrrn", REFERENCE)
"""Loads whose names begin so; a cache-aware order, and others held against it."""
STARVED = ("ttft_s_p99", "ttft_s_mean", "jct_s_mean")


def budgets(results: Path = RESULTS) -> pd.DataFrame:
    """Rows of `compared` by `load`, `share` and `budget`: static ones, and the adaptive policy."""
    parts = []
    for name in (it for it, (load, _) in PLACES.items() if load in LOADS):
        words = [it for it in words_of(name, results) if not it.startswith("engine.max_num_b")]
        per_s, _ = backlog([*words, f"engine.max_num_batched_tokens={BUDGETS[-1]}"], kv="null")
        rates = {share * per_s: share for share in SHARES}
        axes = {"workload.arrivals.rate_per_s": [*rates], "seed": [*SEEDS]}
        for policy, sizes in ((REFERENCE, BUDGETS), (ADAPTIVE, BUDGETS[-1:])):
            sized = {"engine.max_num_batched_tokens": [*sizes], "policy": [policy]}
            own = [f"compare.reference={policy}", word("++matrix", axes | sized)]
            rows = served([*words, *own])
            size = rows["config.engine.max_num_batched_tokens"].astype(int).astype(str)
            side = size if policy == REFERENCE else ADAPTIVE
            parts.append(rows.assign(load=name, share=rows[RATE].map(rates), budget=side))
    return compared(
        pd.concat(parts), FIGURES, by="budget", reference=str(BUDGETS[-1]), at=["load", "share"]
    )


def budgets_said(found: pd.DataFrame) -> list[dict[str, Any]]:
    """By figure and budget: median and worst regret, in how many settings none is better."""
    return [
        {
            "figure": header_of(str(figure)),
            "budget": str(budget),
            "median": float(rows["regret"].median()),
            "most": float(rows["regret"].max()),
            "first": int((rows["rank"] == 1).sum()),
            "settings": len(rows),
        }
        for (figure, budget), rows in found.groupby(["figure", "budget"], sort=False)
    ]


def starvation_said(league: pd.DataFrame) -> list[dict[str, Any]]:
    """By figure and policy the ratio to the cache-aware order over settings of shared prompts."""
    rows = league[league["load"].str.startswith(CACHED) & league["figure"].isin(STARVED)]
    wide = rows.pivot_table("value", ["figure", "load", "kv", "share"], "policy")
    found = []
    for figure in STARVED:
        for policy in (it for it in BOUNDED if {it, ORDER} <= set(wide)):
            pair = wide.xs(figure, level="figure")[[policy, ORDER]].dropna().to_numpy(float)
            ratios = pair[:, 0] / pair[:, 1]
            mean = geometric_mean_of(ratios)
            worst = {"least": float(ratios.min()), "most": float(ratios.max())}
            one = {"figure": header_of(figure), "policy": policy, "mean": mean.text()}
            found.append(one | worst | {"settings": len(ratios)})
    return found


def verdicts(found: pd.DataFrame, starved: list[dict[str, Any]]) -> dict[str, str]:
    """What both checks come to, a sentence each."""
    static = found[found["budget"] != ADAPTIVE]
    parts = []
    for figure in FIGURES:
        rows = static[static["figure"] == figure]
        settings = rows.groupby(["load", "share"]).ngroups
        unbeaten = rows[rows["rank"] == 1].groupby("budget").size()
        best, count = str(unbeaten.idxmax()), int(unbeaten.max())
        most = float(rows.loc[rows["budget"] == best, "regret"].max())
        holds = "holds" if count < settings else "does not hold"
        parts.append(
            f"by {header_of(figure)} it {holds}: {best} is not beaten beyond noise in {count} of "
            f"{settings} settings, and at worst {most:.0%} behind"
        )
    tail = [it for it in starved if it["figure"] == header_of(STARVED[0])]
    mean = {it["policy"]: it["mean"] for it in starved if it["figure"] == header_of(STARVED[1])}
    said = "; ".join(
        f"{it['policy']}: {it['mean']} of its {it['figure']}, {mean[it['policy']]} of the mean"
        for it in tail
    )
    return {"budgets": f"{'; '.join(parts)}.", "starvation": f"{said}."}


def content_of(found: pd.DataFrame, league: pd.DataFrame) -> dict[str, Any]:
    """What is stored of both checks."""
    starved = starvation_said(league)
    return {
        "verdicts": verdicts(found, starved),
        "budgets": budgets_said(found),
        "adaptive": ADAPTIVE,
        "starvation": starved,
        "order": ORDER,
        "reference": REFERENCE,
        "shares": [*SHARES],
        "loads": [*LOADS],
        "machines": [it["said"] for it in MACHINES.values()],
        "seeds": len(SEEDS),
    }


def write_checks(*, publish: bool) -> None:
    """Check both statements, and write what came out beside the league and on its page."""
    folder = published.place("", publish=publish)
    content = content_of(budgets(), league_of(folder))
    published.write(folder / "league" / "checks.json", json.dumps(content, indent=1) + "\n")
    part = render("league_checks.md.j2", **content)
    write_part(folder, "checks", part)
    print(part)
