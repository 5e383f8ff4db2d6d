"""Every scheduler of one engine on the same loads: `python -m harness league [LOAD ...]`.

The policies, their limits and objectives are those of `scenarios/scenario/league_requests.yaml`,
for applications of `compare_applications.yaml`; the loads, and the machines that serve them, of
`scenarios/league.yaml`. Each load is served at shares of what the reference can serve of it, which
is measured first, with the KV that the GPU has, and with room for a few requests. Writes
league.csv: a row per load, share, KV, policy and figure, with its mean over seeds, its ratio to the
reference, its regret - how much worse than the best - its rank (1 and the number of policies that
are better beyond noise, paired by seed) and a bound that no scheduler passes. With --publish below
results/league, else below results/local. Draws a plot and writes a page. The whole league ends with
`harness.winners` and `harness.league_checks`, which write parts of that page.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness import api
from harness.config.hydra_words import word
from harness.config.paths import ROOT
from harness.config.yaml_files import read_yaml
from harness.costs.model_facts import model_facts
from harness.interface.policies import Capability
from harness.report.render import render
from harness.runs import published
from harness.runs.bound import bounds_of_run
from harness.runs.comparison import compared
from harness.runs.figures import header_of
from harness.runs.limits import POLICY
from harness.runs.published import RESULTS
from harness.runs.record import read_run
from harness.runs.stats import Estimate, geometric_mean_of
from harness.runs.table import basis

KINDS = read_yaml(ROOT / "scenarios" / "league.yaml")
"""By scenario: loads, the figures that are ranked of them and those that are drawn."""
MACHINES: Mapping[str, Mapping[str, Any]] = KINDS.pop("machines")
"""By name: a model, and the words of the GPU that serves it; the first serves all loads."""
MACHINE = next(iter(MACHINES))


def _names(kind: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each load of a kind: its name, that of what is served, and the machine."""
    for name in kind["loads"]:
        yield name, name, MACHINE
        for machine in kind.get("also", {}).get(name, ()):
            yield f"{name}_{machine}", name, machine


LOADS: Mapping[str, str] = {name: kind for kind, it in KINDS.items() for name, _, _ in _names(it)}
"""By name, the scenario of a load."""
PLACES = {name: (load, machine) for it in KINDS.values() for name, load, machine in _names(it)}
"""By name of a load, what is served, and on which machine."""
CONTEXT_TOKENS, SEEDS = 16_384, (0, 1, 2)
ALSO = ("preemptions", "prefix_hit_ratio", "fairness_jain")
"""Figures that are listed without a rank."""
SHARES = (0.5, 0.95, 1.5)
SHORT_SHARES = (0.5, 0.95, 1.5)
"""Of what the reference can serve with short KV, where the order of requests matters most."""
SHORT_REQUESTS = 16
"""Requests of mean length for which short KV has room."""
REFERENCE = "vllm"
AMPLE, SHORT = "ample", "short"
RATE = "config.workload.arrivals.rate_per_s"


def league(
    names: Iterable[str],
    *,
    policies: Sequence[str] = (),
    only: Sequence[str] = (),
    results: Path = RESULTS,
    more: Sequence[str] = (),
) -> tuple[pd.DataFrame, str]:
    """What these loads give, and what its seconds rest on. ValueError where a run fails.

    Rows are those of `harness.runs.comparison.compared` by `load`, `share`, `kv` and `policy`, with
    the mean `bound` that no scheduler passes where there is one. `policies` are served beside those
    of the scenario, of which `only` some and the reference where they are named; `more` are further
    words of a command line.
    """
    parts, bases = [], dict[str, str]()
    for name in names:
        words = [*words_of(name, results), *more]
        axes = {"seed": [*SEEDS], "policy": [*_entered(name, only), *policies]}
        ample_per_s, tokens = backlog(words, kv="null")
        token_bytes = model_facts(str(model_of_load(name))).kv_bytes_per_token
        kv_bytes = str(int(tokens * SHORT_REQUESTS) * token_bytes)
        short_per_s, _ = backlog(words, kv=kv_bytes)
        for kv, memory, capacity_per_s, shares in (
            (AMPLE, "null", ample_per_s, SHARES),
            (SHORT, kv_bytes, short_per_s, SHORT_SHARES),
        ):
            rates = {share * capacity_per_s: share for share in shares}
            matrix = word("++matrix", {"workload.arrivals.rate_per_s": [*rates], **axes})
            rows = served([*words, f"hardware.kv_bytes={memory}", matrix])
            parts.append(rows.assign(load=name, share=rows[RATE].map(rates), kv=kv))
            bases.setdefault(str(MACHINES[PLACES[name][1]]["said"]), basis(rows))
        print(f"{name}: {ample_per_s:.3g}/s, with short KV {short_per_s:.3g}/s", flush=True)
    found = [bounded(judged(rows), rows) for rows in parts]
    said = (about if len(bases) == 1 else f"{machine}: {about}" for machine, about in bases.items())
    return pd.concat(found, ignore_index=True), ". ".join(said)


def judged(rows: pd.DataFrame) -> pd.DataFrame:
    """Runs of one load compared: its figures, and `ALSO` without regret and rank."""
    ranked = KINDS[LOADS[str(rows["load"].iloc[0])]]["judged"]
    at = ["load", "share", "kv"]
    figures = (*ranked, *(name for name in ALSO if name in rows))
    found = compared(rows, figures, by=POLICY, reference=REFERENCE, at=at)
    found.loc[~found["figure"].isin(ranked), ["regret", "rank"]] = np.nan
    return found


def bounded(found: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The same with a column `bound`, of the reference's runs among these rows; see `bounds_of`."""
    if not KINDS[LOADS[str(rows["load"].iloc[0])]]["bounds"]:
        return found.assign(bound=np.nan)
    own, at = rows[rows[POLICY] == REFERENCE], ["load", "share", "kv"]
    least = [bounds_of_run(read_run(Path(it))) for it in own["folder"]]
    means = own[at].join(pd.DataFrame(least, own.index)).groupby(at).mean().reset_index()
    long = means.melt(id_vars=at, var_name="figure", value_name="bound")
    return found.merge(long, on=[*at, "figure"], how="left")


def _entered(name: str, only: Sequence[str]) -> list[str]:
    """The policies of a load's scenario, or the reference and those that are named.

    Raises ValueError for an unknown name.
    """
    known = api.policies_of(LOADS[name])
    if unknown := [it for it in only if it not in known]:
        raise ValueError(f"{unknown[0]} is no policy of {name}; there are {', '.join(known)}")
    return [it for it in known if not only or it in (REFERENCE, *only)]


def model_of_load(name: str) -> Path:
    """The config of the model that a load is for."""
    machine = MACHINES[PLACES[name][1]]
    return ROOT / "scenarios" / "models" / str(machine["model"]) / "config.json"


def load_words(name: str) -> list[str]:
    """What a load is, on one GPU, beside the scenario that serves it."""
    kind, (load, machine) = KINDS[LOADS[name]], PLACES[name]
    places = {"root": ROOT, "model": model_of_load(name)}
    return [
        *MACHINES[machine]["words"],
        *(it.format(**places) for it in (*kind["words"], *kind["loads"][load])),
        # Some policies never cut a prompt: a batch has room for the longest.
        f"engine.max_num_batched_tokens={CONTEXT_TOKENS}",
    ]


def words_of(name: str, results: Path) -> list[str]:
    """The words of a command line that serves a load in the league's scenario."""
    place = (f"+scenario={LOADS[name]}", f"name=league_{name}", "tracking=none")
    return [*load_words(name), *place, word("results", str(results))]


def served(words: Sequence[str]) -> pd.DataFrame:
    """Rows of all cells. ValueError where one has failed."""
    rows = api.sweep(overrides=words)
    if len(lost := rows[rows["failed"] != ""]):
        raise ValueError(f"{lost['policy'].iloc[0]}: {lost['failed'].iloc[0]}")
    return rows


def backlog(words: Sequence[str], *, kv: str) -> tuple[float, float]:
    """What the reference serves of a backlog per busy second, and mean tokens of its requests."""
    rest = [word for word in words if not word.startswith("workload/arrivals=")]
    rest = [word for word in rest if not word.startswith("workload.arrivals.")]
    memory = f"hardware.kv_bytes={kv}"
    axes = f"++matrix={{policy:[{REFERENCE}],seed:[0]}}"
    row = served([*rest, "workload/arrivals=at_once", memory, axes]).iloc[0]
    count = row["applications"] if pd.notna(row["applications"]) else row["requests"]
    requests = pd.read_parquet(Path(str(row["folder"])) / "requests.parquet")
    tokens = requests["prompt_tokens"] + requests["output_tokens"]
    return float(count) / float(row["gpu_busy_s"]), float(tokens.mean())


def of_requests(found: pd.DataFrame) -> pd.DataFrame:
    """The rows of independent requests, with policies that served all alike as one."""
    return folded(found[[bool(KINDS[LOADS[name]]["bounds"]) for name in found["load"]]])


def page(found: pd.DataFrame, about: str, told: Collection[str]) -> str:
    """A league as a page: what it answers, and tables of loads of requests, and of applications.

    `told` are policies that go by the lengths of answers.
    """
    tables = {
        f"{KINDS[kind]['size']} of {', '.join(names)}": table_of(found, names)
        for kind, names in kinds_of(found).items()
    }
    rows = of_requests(found)
    drawn = KINDS["league_requests"]["drawn"] if len(rows) else []
    frames = {
        "about": about,
        "context_tokens": CONTEXT_TOKENS,
        "shares": SHARES,
        "short_shares": SHORT_SHARES,
        "short_requests": SHORT_REQUESTS,
        "machines": [it["said"] for it in MACHINES.values()],
        "tables": tables,
        "told": [it for it in told if it in {n for name in rows["policy"] for n in _each(name)}],
        "answers": answers(rows, told) if len(rows) else [],
        "against": {header_of(it): against(rows, it) for it in drawn},
        "bounds": over_bounds(rows) if len(rows) else None,
        "real": _real_orders(),
    }
    return render("league.md.j2", **frames, seeds=len(SEEDS), reference=REFERENCE) + "\n"


def folded(found: pd.DataFrame) -> pd.DataFrame:
    """The rows with policies whose figures are all alike as one, named `first = second`."""
    judged_rows = found[found["rank"].notna()]
    wide = judged_rows.pivot_table("value", "policy", ["load", "share", "kv", "figure"])
    alike: dict[str, list[str]] = {}
    order = [REFERENCE, *(name for name in wide.index if name != REFERENCE)]
    for name in filter(wide.index.__contains__, order):
        same = (it for it in alike if np.allclose(wide.loc[it], wide.loc[name], equal_nan=True))
        alike.setdefault(next(same, name), []).append(name)
    names = {first: " = ".join(every) for first, every in alike.items()}
    rows = found[found["policy"].isin(names)]
    return rows.assign(policy=rows["policy"].map(names))


def _each(name: str) -> list[str]:
    """The policies of a name of `folded`."""
    return name.split(" = ")


def _zone(rows: pd.DataFrame) -> "pd.Series[str]":
    """What a setting is like: the KV, and the rate over what the reference can serve."""
    room = rows["kv"].map({AMPLE: "all KV", SHORT: f"KV of {SHORT_REQUESTS} requests"})
    rate = rows["share"].lt(1).map({True: ", below capacity", False: ", above capacity"})
    return room.str.cat(rate)


def _ratios(found: pd.DataFrame, figure: str) -> Iterator[tuple[str, str, Estimate, str]]:
    """By policy and zone the mean ratio to the reference, and settings better, worse, of all.

    Without the reference itself.
    """
    rows = found[(found["figure"] == figure) & found["ratio"].notna()]
    rows = rows[[REFERENCE not in _each(name) for name in rows["policy"]]]
    for (zone, policy), here in rows.groupby([_zone(rows), rows["policy"]], sort=False):
        better, worse = ((here["sign"] == sign).sum() for sign in (1, -1))
        of = f"{better}/{worse}/{len(here)}"
        yield str(policy), str(zone), geometric_mean_of(here["ratio"]), of


def against(found: pd.DataFrame, figure: str) -> pd.DataFrame:
    """A figure of every policy over the reference's by zone; the least mean over zones first."""
    rows = list(_ratios(found, figure))
    texts = {(policy, zone): f"{_text(it)} ({of})" for policy, zone, it, of in rows}
    values = {(policy, zone): it.value for policy, zone, it, _ in rows}
    order = pd.Series(values).unstack().mean(axis=1).sort_values().index
    return pd.Series(texts).unstack().loc[order, [*dict.fromkeys(zone for _, zone, _, _ in rows)]]


def answers(found: pd.DataFrame, told: Collection[str]) -> list[str]:
    """Which policy where, by how much, how sure: a sentence for each figure, and one on noise."""
    said = []
    for figure in KINDS["league_requests"]["drawn"]:
        parts = []
        rows = list(_ratios(found, figure))
        for zone in dict.fromkeys(it[1] for it in rows):
            here = [it for it in rows if it[1] == zone and it[2].count > 1 and it[2].ends[1] < 1]
            here.sort(key=lambda it: it[2].value)
            blind = [it for it in here if not set(_each(it[0])) <= set(told)]
            best = [*here[:1], *(it for it in blind[:1] if it not in here[:1])]
            known = {it[0]: "" if it in blind else ", told true lengths" for it in best}
            text = " and ".join(f"{it[0]}{known[it[0]]} {_text(it[2])} ({it[3]})" for it in best)
            parts.append(f"{zone}: {text or 'none'}")
        said.append(f"{header_of(figure)} over {REFERENCE}'s, {'; '.join(parts)}")
    return said


def _text(found: Estimate) -> str:
    """A mean over settings with its interval, where there are several."""
    return found.text() if found.count > 1 else f"{found.value:.2f}"


def over_bounds(found: pd.DataFrame) -> pd.DataFrame:
    """By zone and figure the least value of any policy over the bound: median, and from to."""
    rows = found[found["bound"].notna()]
    rows = rows.assign(zone=_zone(rows), over=rows["value"] / rows["bound"])
    best = rows.groupby(["zone", "figure", "load", "share"], sort=False)["over"].min()
    own = rows[[REFERENCE in _each(name) for name in rows["policy"]]]
    of_reference = own.set_index(["zone", "figure", "load", "share"])["over"]
    return pd.DataFrame(
        {
            f"{header_of(figure)}: {name}": each.xs(figure, level="figure")
            .groupby("zone", sort=False)
            .apply(lambda it: f"{it.median():.2f}x ({it.min():.2f} to {it.max():.2f})")
            for figure in rows["figure"].unique()
            for name, each in (("the best policy", best), (REFERENCE, of_reference))
        }
    )


def _real_orders() -> list[Mapping[str, Any]]:
    """What measured runs of the same policies say of their order, where there are any."""
    path = RESULTS / "fidelity_runs" / "league_real.json"
    return list(json.loads(path.read_text(encoding="utf-8"))["order"]) if path.is_file() else []


def told_lengths(names: Iterable[str]) -> list[str]:
    """The policies of the scenarios of some loads that go by predicted lengths."""
    found: dict[str, bool] = {}
    for kind, name in {LOADS[it]: it for it in names}.items():
        for policy in (it for it in api.policies_of(kind) if it not in found):
            axes = {"policy": [policy], "seed": [0]}
            alone = f"compare.reference={policy}", word("++matrix", axes)
            system = api.first_cell([*words_of(name, RESULTS), *alone]).system
            found[policy] = Capability.PREDICTIONS in system.scheduling.requires
    return [policy for policy, is_told in found.items() if is_told]


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


def write_league(loads: Sequence[str], policies: Sequence[str], *, publish: bool) -> None:
    """Run the league on these loads, or all, and write its table, page and picture.

    Some `policies` and the reference, or all.
    """
    check_loads(loads)
    found, about = league(loads or list(LOADS), only=policies)
    os.environ.setdefault("MPLBACKEND", "agg")
    from plots.comparison import plot

    folder = published.place("", publish=publish)
    told = told_lengths(found["load"].unique())
    text, rows = page(found, about, told), of_requests(found)
    answered = answers(rows, told) if len(rows) else []
    content = {"answers": answered, "about": about}
    published.write(folder / "league" / "answers.json", json.dumps(content, indent=1) + "\n")
    published.write(folder / "league" / "league.csv", found.round(6).to_csv(index=False))
    published.write(folder / "pages" / "league.md", text)
    ticks = found["share"].map("{:g}".format) + found["kv"].map({AMPLE: "", SHORT: "s"})
    said = f"{about[0].upper()}{about[1:]}. Columns: shares of capacity; s: KV for a few requests."
    panels = [KINDS[kind]["drawn"] for kind in kinds_of(found)]
    figure = plot(found.assign(group=found["load"], tick=ticks), panels, said)
    (folder / "figures").mkdir(exist_ok=True)
    figure.savefig(folder / "figures" / "league.png")
    print(text)


def league_of(folder: Path) -> pd.DataFrame:
    """The league of this folder, or else the published one. ValueError where there is none."""
    places = (folder, published.place("", publish=True))
    found = [it for place in places if (it := place / "league" / "league.csv").is_file()]
    if not found:
        raise ValueError("there is no league.csv: run python -m harness league")
    return pd.read_csv(found[0])


def write_part(folder: Path, name: str, part: str) -> None:
    """Write a generated part between its marks on the league's page, if that is there."""
    page = folder / "pages" / "league.md"
    if page.is_file():
        published.write(page, with_part(page.read_text(encoding="utf-8"), name, part))


def with_part(page: str, name: str, part: str) -> str:
    """A page with this part between the marks of its name."""
    marks = re.compile(rf"(<!-- generated: {name} -->\n).*?(<!-- end: {name} -->)", re.DOTALL)
    return marks.sub(lambda found: f"{found[1]}{part}\n{found[2]}", page)
