"""Every scheduler of one engine on the same loads: `python -m harness league [LOAD ...]`.

The policies, their limits and objectives are those of `scenarios/scenario/compare.yaml`, for
applications of `compare_applications.yaml`. Each load
is served at shares of what the reference can serve of it, which is measured first, with the KV that
the GPU has, and at one share with room for a few requests only. Writes league.csv: a row per load,
share, KV, policy and figure, with its mean over seeds, its ratio to the reference, its regret - how
much worse than the best - and its rank: 1 and the number of policies that are better beyond noise,
paired by seed. With --publish below results/league, else below results/local. Draws a plot and
writes a page. The whole league ends with `harness.winners`, which writes a part of that page.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from harness import api
from harness.config.hydra_words import word
from harness.config.paths import ROOT
from harness.config.yaml_files import read_yaml
from harness.costs.model_facts import model_facts
from harness.report.render import render
from harness.runs import published
from harness.runs.comparison import compared
from harness.runs.figures import header_of
from harness.runs.limits import POLICY
from harness.runs.published import RESULTS
from harness.runs.table import basis

KINDS = read_yaml(ROOT / "scenarios" / "league.yaml")
"""By scenario: loads, the figures that are ranked of them and those that are drawn."""
LOADS: Mapping[str, str] = {name: kind for kind, it in KINDS.items() for name in it["loads"]}
"""By name, the scenario of a load."""
MODEL = ROOT / "scenarios" / "models" / "llama-3.1-8b-16k" / "config.json"
CONTEXT_TOKENS, SEEDS = 16_384, (0, 1, 2)
ALSO = ("preemptions", "schedule_s_p99", "prefix_hit_ratio", "fairness_jain")
"""Figures that are listed without a rank."""
SHARES = (0.5, 0.8, 0.95, 1.2)
SHORT_AT = 0.95
"""The share that is tried with short KV, too."""
SHORT_REQUESTS = 16
"""Requests of mean length for which short KV has room."""
REFERENCE = "vllm"
AMPLE, SHORT = "ample", "short"
RATE = "config.workload.arrivals.rate_per_s"


def league(
    names: Iterable[str],
    *,
    policies: Sequence[str] = (),
    results: Path = RESULTS,
    more: Sequence[str] = (),
) -> tuple[pd.DataFrame, str]:
    """What these loads give, and what its seconds rest on. ValueError where a run fails.

    Rows are those of `harness.runs.comparison.compared` by `load`, `share`, `kv` and `policy`.
    `policies` are served beside those of the scenario; `more` are further words of a command line.
    """
    parts, token_bytes = [], model_facts(str(MODEL)).kv_bytes_per_token
    for name in names:
        words = [*_words(name, results), *more]
        axes = {"seed": [*SEEDS], "policy": [*api.policies_of(LOADS[name]), *policies]}
        ample_per_s, tokens = _backlog(words, kv="null")
        kv_bytes = str(int(tokens * SHORT_REQUESTS) * token_bytes)
        short_per_s, _ = _backlog(words, kv=kv_bytes)
        for kv, memory, capacity_per_s, shares in (
            (AMPLE, "null", ample_per_s, SHARES),
            (SHORT, kv_bytes, short_per_s, (SHORT_AT,)),
        ):
            rates = {share * capacity_per_s: share for share in shares}
            matrix = word("++matrix", {"workload.arrivals.rate_per_s": [*rates], **axes})
            rows = _ran([*words, f"hardware.kv_bytes={memory}", matrix])
            parts.append(rows.assign(load=name, share=rows[RATE].map(rates), kv=kv))
        print(f"{name}: {ample_per_s:.3g}/s, with short KV {short_per_s:.3g}/s", flush=True)
    return pd.concat(map(judged, parts), ignore_index=True), basis(parts[0])


def judged(rows: pd.DataFrame) -> pd.DataFrame:
    """Runs of one load compared: its figures, and `ALSO` without regret and rank."""
    ranked = KINDS[LOADS[str(rows["load"].iloc[0])]]["judged"]
    figures = (*ranked, *(name for name in ALSO if name in rows))
    at = ["load", "share", "kv"]
    found = compared(rows, figures, by=POLICY, reference=REFERENCE, at=at)
    found.loc[~found["figure"].isin(ranked), ["regret", "rank"]] = np.nan
    return found


def load_words(name: str) -> list[str]:
    """What a load is, on one GPU, beside the scenario that serves it."""
    kind = KINDS[LOADS[name]]
    return [
        *(it.format(root=ROOT) for it in (*kind["words"], *kind["loads"][name])),
        # Some policies never cut a prompt: a batch has room for the longest.
        f"engine.max_num_batched_tokens={CONTEXT_TOKENS}",
    ]


def _words(name: str, results: Path) -> list[str]:
    place = (f"+scenario={LOADS[name]}", f"name=league_{name}", "tracking=none")
    return [*load_words(name), *place, word("results", str(results))]


def _ran(words: Sequence[str]) -> pd.DataFrame:
    """Rows of all cells. ValueError where one has failed."""
    rows = api.sweep(overrides=words)
    if len(lost := rows[rows["failed"] != ""]):
        raise ValueError(f"{lost['policy'].iloc[0]}: {lost['failed'].iloc[0]}")
    return rows


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


def page(found: pd.DataFrame, about: str) -> str:
    """The tables of a league as a page: loads of requests, and of applications."""
    tables = {
        f"{KINDS[kind]['size']} of {', '.join(names)}": table_of(found, names)
        for kind, names in kinds_of(found).items()
    }
    frames = {"about": about, "context_tokens": CONTEXT_TOKENS, "shares": SHARES, "tables": tables}
    frames |= {"short_at": SHORT_AT, "short_requests": SHORT_REQUESTS}
    return render("league.md.j2", **frames, seeds=len(SEEDS), reference=REFERENCE) + "\n"


def kinds_of(found: pd.DataFrame) -> dict[str, list[str]]:
    """The loads of a league by their scenario."""
    there = [name for name in LOADS if (found["load"] == name).any()]
    return {kind: names for kind in KINDS if (names := [it for it in there if LOADS[it] == kind])}


def table_of(found: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Of every policy the median regret, how often it is first, and the regret of each figure.

    Over these loads of one scenario; the best policy comes first.
    """
    judged = KINDS[LOADS[names[0]]]["judged"]
    rows = found[found["load"].isin(names) & found["figure"].isin(judged)]
    policies = rows.assign(first=rows["rank"] == 1).groupby("policy")
    table = policies.agg(**{"median regret": ("regret", "median"), "first in": ("first", "mean")})
    each = rows.pivot_table("regret", "policy", "figure", "median").reindex(columns=judged)
    return table.join(each.rename(columns=header_of)).sort_values("median regret")


def check_loads(names: Sequence[str]) -> None:
    """Raise ValueError for a load that is none of the league's."""
    if unknown := [name for name in names if name not in LOADS]:
        raise ValueError(f"{unknown[0]} is no load; there are {', '.join(LOADS)}")


def write_league(loads: Sequence[str], *, publish: bool) -> None:
    """Run the league on these loads, or all, and write its table, page and picture."""
    check_loads(loads)
    found, about = league(loads or list(LOADS))
    os.environ.setdefault("MPLBACKEND", "agg")
    from plots.comparison import plot

    folder = published.place("", publish=publish)
    text = page(found, about)
    published.write(folder / "league" / "league.csv", found.round(6).to_csv(index=False))
    published.write(folder / "pages" / "league.md", text)
    ticks = found["share"].map("{:g}".format).where(found["kv"] == AMPLE, "s")
    said = f"{about[0].upper()}{about[1:]}. Columns: shares of capacity; s: KV for a few requests."
    panels = [KINDS[kind]["drawn"] for kind in kinds_of(found)]
    figure = plot(found.assign(group=found["load"], tick=ticks), panels, said)
    (folder / "figures").mkdir(exist_ok=True)
    figure.savefig(folder / "figures" / "league.png")
    print(text)
