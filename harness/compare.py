"""Which scheduler for a recorded load: `python -m harness.compare TRACE --model CONFIG --gpu GPU`.

TRACE is a file as `workload=trace` reads it, CONFIG a model's config.json or name, GPU a file of
scenarios/hardware. The first --requests of the trace are served by every policy of the scenario
(`scenarios/scenario/compare.yaml`) at equal limits: at the trace's own rate, and at shares of what
the scenario's reference can serve, which is measured first. Printed are the figures at the own
rate, which policy is best at which load and by how much, how sure that is - intervals over blocks
of the trace, and the range over costs that the error of the profile allows -, and what the trace
does not tell. Bad input ends in one sentence and exit code 2.

From Python, `compare(...)` returns the same as data frames.
"""

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from harness.config.paths import ROOT
from harness.runs.compare import compared
from harness.runs.published import RESULTS
from harness.runs.record import read_summaries
from harness.runs.stats import Estimate
from harness.runs.table import FIGURES, POLICY, basis, notes_of
from harness.runs.trace_intervals import LEAST_REQUESTS

SCENARIO = "compare"
SHARES = (0.5, 0.8, 0.95, 1.2)
"""Of the reference's capacity."""
DRAWS = 3
"""Costs that the error of the profile allows, beside those that it has."""
LEAST_BATCH_TOKENS = 8192
"""vLLM's limit on GPUs of this size."""
JUDGED = ("ttft_s_mean", "ttft_s_p99", "tpot_s_mean", "jct_s_mean", "jct_s_p99", "slo_attainment")
RATE, DRAW = "config.workload.rate_scale", "config.hardware.cost_draw"
_ALL_AT_ONCE = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a comparison found.

    `figures` has a row per load, policy and figure: its value, and the ends of its interval over
    blocks of the trace. `ratios` has the same figures over those of `reference`, with the range of
    the ratio over drawn costs at the own rate. `best` has by load and figure the best policy, and
    those that are not told apart from it. Loads are shares of `capacity_per_s`, the requests that
    the reference serves per second of a backlog; `own_load` is the trace's. `about` says what the
    seconds rest on, `notes` what the trace does not tell.
    """

    figures: pd.DataFrame
    ratios: pd.DataFrame
    best: pd.DataFrame
    reference: str
    capacity_per_s: float
    own_load: float
    about: str
    notes: tuple[str, ...]


def compare(
    trace: Path | str,
    model: str,
    gpu: str = "h100_80g_8",
    *,
    policies: Sequence[str] = (),
    requests: int = 1000,
    tensor_parallel: int = 1,
    reference: str = "vllm",
    results: Path = RESULTS,
    more: Sequence[str] = (),
) -> Comparison:
    """Serve a trace by every policy (none: those of the scenario) at several loads.

    `more` are further words of `harness/run.py`. Raises ValueError, in one sentence, for bad input
    and where a run fails.
    """
    file = str(Path(trace).resolve())
    gpus = (f"hardware.gpu_count={tensor_parallel}", f"hardware.nvlink_island={tensor_parallel}")
    words = [
        *(f"+scenario={SCENARIO}", f"hardware={gpu}", *gpus),
        f"system.placement.tensor_parallel={tensor_parallel}",
        *(f"workload.file={file}", f"workload.model={model}", "workload.too_long=drop"),
        *(f"results={results}", *more),
    ]
    at_once = f"workload.rate_scale={_ALL_AT_ONCE:g}"
    backlog = run_words([*words, f"policy={reference}", at_once], results, SCENARIO)
    backlog = backlog[backlog["config.workload.file"] == file]
    count, longest, capacity_per_s, own_per_s = _facts(backlog, requests)
    scales = [1.0, *(share * capacity_per_s / own_per_s for share in SHARES)]
    words += [f"workload.requests={count}", f"limits.max_num_batched_tokens={longest}"]
    words += _axes(scales, [reference, *policies] if policies else [])
    rows = run_words(words, results, SCENARIO)
    is_own = (rows["config.workload.file"] == file) & rows[RATE].isin(scales)
    rows = rows[is_own & (rows["config.workload.requests"] == count)]
    loads = rows[RATE].astype(float) * own_per_s / capacity_per_s
    rows = rows.assign(load=loads.round(4))
    return _found(rows, reference, capacity_per_s, round(own_per_s / capacity_per_s, 4))


def run_words(words: Sequence[str], results: Path, scenario: str) -> pd.DataFrame:
    """The rows of a scenario's runs after `harness/run.py` with these words.

    Raises ValueError, with its sentence, where the command fails.
    """
    ran = subprocess.run(
        [sys.executable, str(ROOT / "harness" / "run.py"), *words, "tracking=none"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    said = [line for line in ran.stderr.splitlines() if line.startswith("error: ")]
    if ran.returncode:
        raise ValueError(said[0].removeprefix("error: ") if said else ran.stderr.strip()[-500:])
    return read_summaries(ROOT / results / scenario)


def _axes(scales: Sequence[float], policies: Sequence[str]) -> list[str]:
    """Words for every policy at every rate, and on other costs at the trace's own, the first."""
    draws = list(range(DRAWS + 1))
    axes = f"workload.rate_scale:{[*scales]},hardware.cost_draw:{draws}"
    chosen = f",policy:[{','.join(dict.fromkeys(policies))}]" if policies else ""
    skip = f"[{{workload.rate_scale:{[*scales[1:]]},hardware.cost_draw:{draws[1:]}}}]"
    return [f"++matrix={{{axes}{chosen}}}", f"skip={skip}"]


def _facts(rows: pd.DataFrame, most: int) -> tuple[int, int, float, float]:
    """How many of a trace's requests are compared (the first), and tokens that a batch may have.

    With them requests per second that its backlog was served at, and at which these come.
    """
    row = rows[rows[RATE] == _ALL_AT_ONCE].sort_values("started").iloc[-1]
    requests = pd.read_parquet(Path(str(row["folder"])) / "requests.parquet")
    requests = requests.sort_values("arrival_s")
    count = min(most, len(requests))
    span_s = float(np.ptp(requests["arrival_s"][:count])) * _ALL_AT_ONCE
    if not span_s:
        raise ValueError(f"{row['config.workload.file']} has requests of one instant: no rate")
    served = float(row["requests"]) / (float(row["inference_s"]) - float(row["load_s"]))
    # Some policies never cut a prompt: a batch has room for the longest.
    longest = 1 << (int(requests["prompt_tokens"].max()) - 1).bit_length()
    return count, max(LEAST_BATCH_TOKENS, longest), served, (count - 1) / span_s


def _found(rows: pd.DataFrame, reference: str, capacity: float, own: float) -> Comparison:
    """Figures, ratios and best policies of rows, which have their `load`."""
    newest = rows.sort_values("started").drop_duplicates(["load", POLICY, DRAW], keep="last")
    plain = newest[newest[DRAW].astype(int) == 0]
    names = [name for name in JUDGED if plain[name].notna().all()]
    figures, ratios, best = [], [], []
    for load, at in plain.groupby("load"):
        base = at[at[POLICY] == reference]
        for policy, row in at.groupby(POLICY):
            drawn = newest[(newest["load"] == load) & (newest[POLICY] == policy)]
            for name in names:
                ends = [row.iloc[0].get(f"trace_interval.{name}.{end}") for end in ("low", "high")]
                at_all = {"load": load, "policy": policy, "figure": name}
                figures.append({**at_all, "value": row.iloc[0][name], **_ends(ends)})
                found = _ratio(row, base, name)
                ratios.append({**at_all, **found, **_over_draws(drawn, newest, reference, name)})
        best += [{"load": load, "figure": name, **_best(at, name)} for name in names]
    return Comparison(
        figures=pd.DataFrame(figures),
        ratios=pd.DataFrame(ratios),
        best=pd.DataFrame(best),
        reference=reference,
        capacity_per_s=capacity,
        own_load=own,
        about=basis(plain),
        notes=_not_told(plain),
    )


def _ends(ends: Sequence[object]) -> dict[str, float]:
    low, high = (np.nan if end is None else float(str(end)) for end in ends)
    return {"low": low, "high": high}


def _ratio(one: pd.DataFrame, other: pd.DataFrame, figure: str) -> dict[str, float]:
    """A figure of one run over that of another, with its interval over blocks of the trace."""
    estimate: Estimate | None = compared(one, other, [figure])["A / B"].iloc[0]
    if estimate is None:
        return {"ratio": np.nan, "low": np.nan, "high": np.nan}
    return {"ratio": estimate.value, **_ends([estimate.low, estimate.high])}


def _over_draws(
    rows: pd.DataFrame, everything: pd.DataFrame, reference: str, figure: str
) -> dict[str, float]:
    """Smallest and largest ratio to the reference over costs that the profile's error allows."""
    base = everything[everything[POLICY] == reference].set_index(["load", DRAW])[figure]
    own = rows.set_index(["load", DRAW])[figure]
    ratios = (own / base.reindex(own.index)).astype(float)
    return {"costs_low": ratios.min(), "costs_high": ratios.max()}


def _best(at: pd.DataFrame, figure: str) -> dict[str, str]:
    """The best policy at a load, and those whose interval over it has 1."""
    more = figure == "slo_attainment"
    order = at.sort_values(figure, ascending=not more, kind="stable")
    first, alike = order.iloc[[0]], []
    for place in range(1, len(order)):
        found = _ratio(order.iloc[[place]], first, figure)
        if np.isnan(found["low"]) or found["low"] <= 1.0 <= found["high"]:
            alike.append(str(order.iloc[place][POLICY]))
    return {"policy": str(first.iloc[0][POLICY]), "alike": " ".join(alike)}


def _not_told(rows: pd.DataFrame) -> tuple[str, ...]:
    """What the trace does not tell, and what each would change."""
    given = "orders by length were given true lengths, the most that a predictor could do"
    return *notes_of(rows), given


def shown(found: Comparison, console: Console) -> None:
    """Print a comparison."""
    console.print(found.about, highlight=False)
    own = found.figures[found.figures["load"] == found.own_load]
    table = Table(
        title=f"at the trace's own rate, load {found.own_load:.2f} of {found.reference}'s"
    )
    names = [str(name) for name in own["figure"].unique()]
    for heading in ("policy", *(FIGURES[name] for name in names)):
        table.add_column(heading)
    order = sorted(own["policy"].unique(), key=lambda name: name != found.reference)
    for policy in order:
        rows = own[own["policy"] == policy]
        by_name = rows.set_index("figure")
        table.add_row(str(policy), *(_cell(dict(by_name.loc[name])) for name in names))
    console.print(table)
    for line in advice(found):
        console.print(line, highlight=False)
    for name in names:
        console.print(f"[b]{FIGURES[name]}[/b]: {_answer(found, name)}", highlight=False)
    console.print("Not told by the trace: " + "; ".join(found.notes), highlight=False)


def advice(found: Comparison) -> list[str]:
    """A sentence per load: the policy that is beaten in the fewest figures, and at what price."""
    lines = []
    if found.ratios["low"].isna().all():
        return [f"Fewer than {LEAST_REQUESTS} requests: no intervals, policies cannot be compared"]
    for load in found.best["load"].unique().tolist():
        best = found.best[found.best["load"] == load]
        unbeaten = Counter(
            name
            for row in best.to_dict("records")
            for name in {str(row["policy"]), *str(row["alike"]).split()}
        )
        most = max(unbeaten.values())
        tied = [name for name in unbeaten if unbeaten[name] == most]
        at = found.ratios[found.ratios["load"] == load].pivot(
            index="policy", columns="figure", values="ratio"
        )
        at = at.assign(**{name: 1 / at[name] for name in at if name == "slo_attainment"})
        policy = min(tied, key=lambda name: (name != found.reference, at.loc[name].mean(), name))
        where = "the trace's own rate, " if load == found.own_load else ""
        line = f"At {where}load {load:.2f}: {policy}, beaten beyond noise in "
        line += f"{len(best) - most} of {len(best)} figures"
        if policy != found.reference:
            gain, loss = str(at.loc[policy].idxmin()), str(at.loc[policy].idxmax())
            line += f"; {_times(found, load, policy, gain)}, {_times(found, load, policy, loss)}"
        lines.append(line)
    return lines


def _times(found: Comparison, load: float, policy: str, figure: str) -> str:
    """A figure of a policy as a multiple of the reference's."""
    rows = found.ratios[(found.ratios["load"] == load) & (found.ratios["policy"] == policy)]
    row = rows.set_index("figure").loc[figure]
    interval = "" if np.isnan(row["low"]) else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return f"{FIGURES[figure]} {row['ratio']:.2f}x{interval} of {found.reference}'s"


def _cell(row: Mapping[Any, Any]) -> str:
    interval = "" if np.isnan(row["low"]) else f" [{row['low']:.3g}, {row['high']:.3g}]"
    return f"{row['value']:.3g}{interval}"


def _answer(found: Comparison, figure: str) -> str:
    """Which policy is best at the own rate, by how much, how sure, and where that turns."""
    best = found.best[found.best["figure"] == figure].set_index("load")
    ratios = found.ratios[found.ratios["figure"] == figure].set_index(["load", "policy"])
    words = {}
    for load, row in best.iterrows():
        is_alike = found.reference in (row["policy"], *str(row["alike"]).split())
        beaten = f"no policy beats {found.reference} beyond noise"
        words[load] = beaten if is_alike else str(row["policy"])
    here = best.loc[found.own_load]
    row = ratios.loc[[(found.own_load, str(here["policy"]))]].iloc[0]
    interval = "" if np.isnan(row["low"]) else f" [{row['low']:.2f}, {row['high']:.2f}]"
    size = (
        f"{row['ratio']:.2f}x{interval} of {found.reference}'s, {row['costs_low']:.2f} to "
        f"{row['costs_high']:.2f}x as costs may be off"
    )
    answer = f"{words[found.own_load]}, {size}"
    if words[found.own_load] != here["policy"]:
        answer = f"{words[found.own_load]} ({here['policy']}: {size})"
    if found.reference == here["policy"]:
        answer = words[found.own_load]
    alike = [name for name in str(here["alike"]).split() if name != found.reference]
    if alike and words[found.own_load] == here["policy"]:
        answer += f"; not told apart from it: {', '.join(alike)}"
    loads: dict[str, list[str]] = {}
    for load, word in words.items():
        if load != found.own_load:
            loads.setdefault(word, []).append(f"{load:.2f}")
    others = [f"{word} at {', '.join(at)}" for word, at in loads.items()]
    return f"{answer}. At other loads: {'; '.join(others)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.compare", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("trace", type=Path)
    parser.add_argument("--model", required=True, help="config.json of a model, or its name")
    parser.add_argument("--gpu", default="h100_80g_8", help="a file of scenarios/hardware")
    parser.add_argument("--policies", default="", help="files of scenarios/policy, with commas")
    parser.add_argument("--requests", type=int, default=1000, help="of the trace, the first")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--reference", default="vllm", help="what the others are compared with")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    try:
        if not given.trace.is_file():
            raise ValueError(f"{given.trace} is no file")
        found = compare(
            given.trace,
            given.model,
            given.gpu,
            policies=[name for name in given.policies.split(",") if name],
            requests=given.requests,
            tensor_parallel=given.tensor_parallel,
            reference=given.reference,
            results=given.results.resolve(),
        )
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    shown(found, Console(width=200 if not sys.stdout.isatty() else None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
