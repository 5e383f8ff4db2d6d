"""Every scheduler of one engine on the same loads: `python -m harness.report.league [LOAD ...]`.

The policies, their limits and objectives are those of `scenarios/scenario/compare.yaml`, for
applications of `compare_applications.yaml`. Each load
is served at shares of what the reference can serve of it, which is measured first, with the KV that
the GPU has, and at one share with room for a few requests only. Writes league.csv: a row per load,
share, KV, policy and figure, with its mean over seeds, its regret - how much worse than the best -
and its rank: 1 and the number of policies that are better beyond noise, paired by seed. With
--publish below results/league, else below results/local. Draws plots.league:plot and writes a page.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from harness import api
from harness.config.hydra_words import word
from harness.config.paths import PROFILES, ROOT
from harness.costs.model_facts import model_facts
from harness.report.render import render
from harness.runs.figures import header_of
from harness.runs.published import RESULTS
from harness.runs.stats import paired_ratio
from harness.runs.table import POLICY, basis

MODEL = ROOT / "scenarios" / "models" / "llama-3.1-8b-16k" / "config.json"
CONTEXT_TOKENS = 16_384
REQUESTS, APPLICATIONS, SEEDS = 300, 60, (0, 1, 2)
OF_REQUESTS = (
    *("jct_s_mean", "jct_s_p99", "ttft_s_mean", "ttft_s_p99", "tpot_s_mean", "itl_s_p99"),
    *("slo_attainment", "goodput_per_s"),
)
OF_APPLICATIONS = ("act_s_mean", "act_s_p95", "ttft_s_mean", "tpot_s_mean", "itl_s_p99")
ALSO = ("preemptions", "schedule_s_p99", "prefix_hit_ratio", "fairness_jain")
"""Figures that are listed without a rank."""
BETTER_HIGH = frozenset({"slo_attainment", "goodput_per_s"})


@dataclass(frozen=True, slots=True)
class Load:
    """One load: the words that say it, on which scenario, and the figures that are ranked."""

    words: Sequence[str]
    scenario: str = "compare"
    judged: Sequence[str] = OF_REQUESTS


def _chats(*words: str) -> Load:
    lengths, arrivals, *rest = words
    return Load(
        [
            *("workload=chats", f"workload/lengths={lengths}", f"workload/arrivals={arrivals}"),
            *(f"workload.model={MODEL}", f"workload.requests={REQUESTS}", *rest),
            "workload.max_output_tokens=1024",
        ]
    )


LOADS: Mapping[str, Load] = {
    "azure_conv": _chats("azure_llm_conv", "azure_llm_conv"),
    "azure_code": _chats("azure_llm_code", "azure_llm_code"),
    "servegen": _chats("sharegpt", "servegen"),
    "mooncake": Load(
        [
            f"workload.file={PROFILES / 'traces' / 'mooncake_conversation.jsonl'}",
            *("workload/arrivals=gamma", f"workload.model={MODEL}"),
            *(f"workload.requests={REQUESTS}", "workload.max_output_tokens=1024"),
        ]
    ),
    "sharegpt": _chats("sharegpt", "gamma"),
    "sharegpt_bursty": _chats("sharegpt", "gamma", "workload.arrivals.burstiness=4"),
    "lmsys": _chats("lmsys", "gamma"),
    "agents": Load(
        [
            *("workload/arrivals=gamma", f"workload.services.llm={MODEL}"),
            *(f"workload.applications={APPLICATIONS}", "workload.context_tokens=null"),
        ],
        "compare_applications",
        OF_APPLICATIONS,
    ),
}
"""By name. Of `mooncake` prompts begin alike, and KV is used again where a policy allows that."""
SHARES = (0.5, 0.8, 0.95, 1.2)
SHORT_AT = 0.95
"""The share that is tried with short KV, too."""
SHORT_REQUESTS = 16
"""Requests of mean length for which short KV has room."""
REFERENCE = "vllm"
AMPLE, SHORT = "ample", "short"
SEED = "config.seed"
RATE = "config.workload.arrivals.rate_per_s"


def league(
    names: Iterable[str],
    *,
    policies: Sequence[str] = (),
    results: Path = RESULTS,
    more: Sequence[str] = (),
) -> tuple[pd.DataFrame, str]:
    """The table of these loads, and what its seconds rest on. ValueError where a run fails.

    `policies` are served beside those of the scenario; `more` are further words of a command line.
    """
    parts, about = [], ""
    for name in names:
        words = [*_words(name, results), *more]
        ample_per_s, tokens = _backlog(words, kv="null")
        kv_bytes = str(int(tokens * SHORT_REQUESTS) * _token_bytes())
        short_per_s, _ = _backlog(words, kv=kv_bytes)
        cases = [(AMPLE, "null", share, share * ample_per_s) for share in SHARES]
        cases.append((SHORT, kv_bytes, SHORT_AT, SHORT_AT * short_per_s))
        for kv in (AMPLE, SHORT):
            rates = {rate: share for one, _, share, rate in cases if one == kv}
            memory = next(given for one, given, *_ in cases if one == kv)
            axes: dict[str, object] = {"workload.arrivals.rate_per_s": list(rates)}
            axes |= {
                "seed": list(SEEDS),
                "policy": [*api.policies_of(LOADS[name].scenario), *policies],
            }
            rows = _ran([*words, f"hardware.kv_bytes={memory}", word("++matrix", axes)])
            about = about or basis(rows)
            parts.append(_ranked(rows.assign(share=rows[RATE].map(rates)), name, kv))
        print(f"{name}: {ample_per_s:.3g}/s, with short KV {short_per_s:.3g}/s", flush=True)
    return pd.concat(parts, ignore_index=True), about


def _words(name: str, results: Path) -> list[str]:
    """What a load is, on one GPU."""
    load = LOADS[name]
    return [
        *(f"+scenario={load.scenario}", f"name=league_{name}", *load.words, "tracking=none"),
        word("results", str(results)),
        # Some policies never cut a prompt: a batch has room for the longest.
        f"engine.max_num_batched_tokens={CONTEXT_TOKENS}",
    ]


def _ran(words: Sequence[str]) -> pd.DataFrame:
    """Rows of all cells. ValueError where one has failed."""
    ran = api.run(words)
    if ran.failed:
        raise ValueError(f"{ran.failed[0]}: {ran.failed[0].failure.sentence}")
    return ran.rows


def _backlog(words: Sequence[str], *, kv: str) -> tuple[float, float]:
    """What the reference serves of a backlog per busy second, and mean tokens of its requests."""
    rest = [word for word in words if not word.startswith("workload/arrivals=")]
    rest = [word for word in rest if not word.startswith("workload.arrivals.")]
    memory = f"hardware.kv_bytes={kv}"
    axes = f"++matrix={{policy:[{REFERENCE}],seed:[0]}}"
    row = _ran([*rest, "workload/arrivals=at_once", memory, axes]).iloc[0]
    count = row["applications"] if pd.notna(row["applications"]) else row["requests"]
    requests = pd.read_parquet(Path(str(row["folder"])) / "requests.parquet")
    tokens = requests["prompt_tokens"] + requests["output_tokens"]
    return float(count) / float(row["gpu_busy_s"]), float(tokens.mean())


def _token_bytes() -> int:
    """KV bytes of a token of the model."""
    return model_facts(str(MODEL)).kv_bytes_per_token


def _ranked(rows: pd.DataFrame, name: str, kv: str) -> pd.DataFrame:
    """Mean, regret and rank of every policy at every share of a load."""
    newest = rows.sort_values("started").drop_duplicates(["share", POLICY, SEED], keep="last")
    judged, lines = LOADS[name].judged, []
    for share, at in newest.groupby("share"):
        for figure in (*judged, *(name for name in ALSO if name in at)):
            values = at.pivot(index=SEED, columns=POLICY, values=figure).astype(float)
            means = values.mean()
            sign = -1.0 if figure in BETTER_HIGH else 1.0
            best = float((sign * means).min()) * sign
            for policy, mean in means.items():
                regret, rank = np.nan, np.nan
                if figure in judged and best > 0:
                    if figure in BETTER_HIGH:
                        regret = best / mean - 1 if mean else np.inf
                    else:
                        regret = mean / best - 1
                    rank = 1 + sum(
                        _is_better(values[other], values[policy], sign) for other in values
                    )
                place = {"load": name, "share": share, "kv": kv, "policy": policy}
                lines.append(
                    {**place, "figure": figure, "value": mean, "regret": regret, "rank": rank}
                )
    return pd.DataFrame(lines)


def _is_better(one: "pd.Series[float]", other: "pd.Series[float]", sign: float) -> bool:
    """Whether a policy is better than another beyond noise, paired by seed."""
    if not ((one > 0) & (other > 0)).all() or (one == other).all():
        return bool((sign * one < sign * other).all())
    ratio = paired_ratio(one.to_numpy(float), other.to_numpy(float))
    if ratio.low is None or ratio.high is None:
        return False
    return ratio.high < 1.0 if sign > 0 else ratio.low > 1.0


def page(found: pd.DataFrame, about: str) -> str:
    """The tables of a league as a page: loads of requests, and of applications."""
    counts = {OF_REQUESTS: f"{REQUESTS} requests", OF_APPLICATIONS: f"{APPLICATIONS} applications"}
    frames = {
        "about": about,
        "context_tokens": CONTEXT_TOKENS,
        "shares": SHARES,
        "short_at": SHORT_AT,
        "short_requests": SHORT_REQUESTS,
        "seeds": len(SEEDS),
        "reference": REFERENCE,
        "tables": {
            f"{counts[judged]} of {', '.join(names)}": table_of(found, names, judged)
            for judged, names in kinds_of(found).items()
        },
    }
    return render("league.md.j2", **frames) + "\n"


def kinds_of(found: pd.DataFrame) -> dict[tuple[str, ...], list[str]]:
    """Loads of a league, together where the same figures are ranked of them."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name in LOADS:
        if (found["load"] == name).any():
            kinds.setdefault(tuple(LOADS[name].judged), []).append(name)
    return kinds


def table_of(found: pd.DataFrame, names: Sequence[str], judged: Sequence[str]) -> pd.DataFrame:
    """The summary of these loads, with figures under the names that tables have."""
    rows = found[found["load"].isin(names) & found["figure"].isin(judged)]
    return summary(rows, judged).rename(columns=header_of)


def summary(rows: pd.DataFrame, judged: Sequence[str]) -> pd.DataFrame:
    """Of every policy the median regret, how often it is first, and the regret of each figure.

    Rows are those of `league` for loads that are `judged` by these figures; the best comes first.
    """
    policies = rows.groupby("policy")
    each = rows.groupby(["policy", "figure"])["regret"].median().unstack("figure")
    found = pd.DataFrame({"median regret": policies["regret"].median()})
    found["first in"] = rows.assign(first=rows["rank"] == 1).groupby("policy")["first"].mean()
    return found.join(each.reindex(columns=list(judged))).sort_values("median regret")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.report.league", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("loads", nargs="*", help=f"of {', '.join(LOADS)}; all where none is named")
    parser.add_argument("--publish", action="store_true", help="write what git tracks")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.loads if name not in LOADS]:
        print(f"error: {unknown[0]} is no load; there are {', '.join(LOADS)}", file=sys.stderr)
        return 2
    folder = RESULTS if given.publish else RESULTS / "local"
    try:
        found, about = league(given.loads or LOADS)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    os.environ.setdefault("MPLBACKEND", "agg")
    from plots.league import plot

    for place in ("league", "figures", "pages"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    found.round(6).to_csv(folder / "league" / "league.csv", index=False)
    plot(found, about).savefig(folder / "figures" / "league.png")
    text = page(found, about)
    (folder / "pages" / "league.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
