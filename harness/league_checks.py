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
    SHORT,
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
LEAST, FEW = 0.02, 0.1
"""What a budget is beaten by, and the share of settings up to which that is few."""


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
    return against_static(pd.concat(parts))


def against_static(rows: pd.DataFrame) -> pd.DataFrame:
    """Runs compared: static budgets with each other, the adaptive policy with the best of them."""
    at, reference = ["load", "share"], str(BUDGETS[-1])
    static = compared(
        rows[rows["budget"] != ADAPTIVE], FIGURES, by="budget", reference=reference, at=at
    )
    every = compared(rows, FIGURES, by="budget", reference=reference, at=at)
    adaptive = every[every["budget"] == ADAPTIVE]
    best = static.groupby([*at, "figure"])["value"].min().rename("least").reset_index()
    own = adaptive.merge(best, on=[*at, "figure"])
    return pd.concat([static, own.assign(regret=own["value"] / own["least"] - 1)])


def budgets_said(found: pd.DataFrame) -> list[dict[str, Any]]:
    """By figure and budget: median and worst regret, in how many settings a static one is better.

    That is by at least `LEAST` and beyond noise.
    """
    return [
        {
            "figure": header_of(str(figure)),
            "budget": str(budget),
            "median": float(rows["regret"].median()),
            "most": float(rows["regret"].max()),
            "beaten": int((_is_beaten(rows)).sum()),
            "settings": len(rows),
        }
        for (figure, budget), rows in found.groupby(["figure", "budget"], sort=False)
    ]


def starvation_said(league: pd.DataFrame) -> list[dict[str, Any]]:
    """By figure and policy the ratio to the cache-aware order over settings of shared prompts.

    Only settings in which requests wait: with short KV, or above capacity.
    """
    waits = (league["kv"] == SHORT) | (league["share"] > 1)
    is_one = league["load"].str.startswith(CACHED) & league["figure"].isin(STARVED)
    rows = league[waits & is_one]
    wide = rows.pivot_table("value", ["figure", "load", "kv", "share"], "policy")
    found = []
    for figure in STARVED:
        for policy in (it for it in BOUNDED if {it, ORDER} <= set(wide)):
            pair = wide.xs(figure, level="figure")[[policy, ORDER]].dropna().to_numpy(float)
            ratios = pair[:, 0] / pair[:, 1]
            if len(ratios) < 2:
                continue
            mean = geometric_mean_of(ratios)
            worst = {"least": float(ratios.min()), "most": float(ratios.max())}
            one = {"figure": header_of(figure), "policy": policy, "mean": mean.text()}
            found.append(one | worst | {"settings": len(ratios)})
    return found


def _is_beaten(rows: pd.DataFrame) -> "pd.Series[bool]":
    return (rows["to_best"] == -1) & (rows["regret"] >= LEAST)


def verdicts(found: pd.DataFrame, starved: list[dict[str, Any]]) -> dict[str, str]:
    """What both checks come to, in sentences."""
    static, parts = found[found["budget"] != ADAPTIVE], []
    for figure in FIGURES:
        rows = static[static["figure"] == figure]
        settings = rows.groupby(["load", "share"]).ngroups
        beaten = _is_beaten(rows).groupby(rows["budget"]).sum()
        worst = rows.groupby("budget")["regret"].max()
        best = str(
            pd.DataFrame({"beaten": beaten, "worst": worst})
            .sort_values(["beaten", "worst"])
            .index[0]
        )
        holds = "holds" if beaten[best] > FEW * settings else "does not hold"
        own = found[(found["budget"] == ADAPTIVE) & (found["figure"] == figure)]
        adaptive = (
            f"; {ADAPTIVE} takes {geometric_mean_of(1 + own['regret']).text()} of the best"
            if len(own) > 1
            else ""
        )
        parts.append(
            f"By {header_of(figure)} it {holds}: {best}, beaten least often, is so in "
            f"{int(beaten[best])} of {settings} settings, by {worst[best]:.0%} at most{adaptive}"
        )
    return {
        "budgets": f"{'. '.join(parts)}.",
        "starvation": _starved(starved),
    }


def _starved(found: list[dict[str, Any]]) -> str:
    tail, mean = (
        {it["policy"]: it["mean"] for it in found if it["figure"] == header_of(figure)}
        for figure in STARVED[:2]
    )
    said = "; ".join(
        f"{policy} takes {tail[policy]} of the {header_of(STARVED[0])} of {ORDER} and "
        f"{mean[policy]} of its {header_of(STARVED[1])}"
        for policy in tail
    )
    if not said:
        return f"No league of {ORDER} is there."
    starve = REFERENCE in tail and float(tail[REFERENCE].split()[0]) < 1
    first = "the tail waits longer than" if starve else "the tail waits no longer than"
    return f"Under {ORDER} {first} under {REFERENCE}. {said}."


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
    part = render("checks.md.j2", **content)
    write_part(folder, "checks", part)
    print(part)
