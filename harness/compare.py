"""Which scheduler for a recorded load: `python -m harness compare TRACE --model CONFIG --gpu GPU`.

TRACE is a file as `workload=trace` reads it, CONFIG a model's config.json, a folder with one or a
name, GPU a file of scenarios/hardware. Every policy (those of `scenarios/scenario/compare.yaml`)
serves the same requests on the same engine: at the trace's own rate, and at shares of what the
reference can serve, which is measured first. Of a long trace as many requests are taken as take two
minutes or so, around its busiest minute. What is compared is printed before it runs. Then come the
answer, the figures at the own rate, which policy is best at which load, and how sure that is:
intervals over blocks of the trace, and the range over costs that the error of the profile allows.
All figures are written as CSV beside a plot of attainment and goodput against load.

A load is a share of the reference's capacity: of what it serves a second when all requests are
there at once. Sessions are scaled in their arrivals; turns wait for answers and delays as ever.
Bad input ends in one sentence and exit code 2.

From Python, `compare(...)` returns the same as data frames.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd
from rich.console import Console

from harness import api
from harness.config.engine_limits import LIMITS
from harness.config.hydra_words import word
from harness.config.names import unknown_name
from harness.config.paths import ROOT
from harness.config.yaml_files import read_choice
from harness.report.comparison import BETTER_HIGH, JUDGED, Comparison, shown, written
from harness.runs.cells import Cell
from harness.runs.compare import served_of
from harness.runs.gpu_time import served_per_s
from harness.runs.limits import limits_of
from harness.runs.published import RESULTS
from harness.runs.record import NOTES
from harness.runs.table import POLICY, basis
from harness.runs.trace_intervals import Contrast, Served, contrast, trace_intervals
from harness.workloads.recorded import Trace
from harness.workloads.trace_load import TraceLoad

SCENARIO = "compare"
SHARES = (0.5, 0.8, 0.95, 1.2)
"""Of the reference's capacity."""
DRAWS = 2
"""Costs that the error of the profile allows, beside those that it has."""
RATE, DRAW = "config.workload.rate_scale", "config.hardware.cost_draw"
PARALLEL = " (--tensor-parallel, --data-parallel)"
NEAR = 1e-3
"""Of the own load: a share as near is not served again."""
OWN_KEYS = {
    **{"hardware.gpu_count": PARALLEL, "hardware.nvlink_island": "", "hardware.cost_draw": ""},
    **{"system.placement": PARALLEL, "system": PARALLEL, "hardware": " (--gpu)"},
    **{"slo": " (--ttft, --tpot, --itl)", "policy": " (--policies)", "results": " (--results)"},
    **{"matrix": "", "vary": "", "compare": " (--reference)", "name": ""},
    **{"workload.file": "", "workload.model": " (--model)", "workload.requests": " (--requests)"},
    **{"workload.rate_scale": "", "engine.horizon_s": ": figures are of whole runs"},
}
"""Keys that no further word may have, and what says their values."""
BUDGET_S = 120.0
REQUEST_CELL_S = 2.1e-3
"""Seconds of a core that a request takes in a cell: measured on a shared machine of two cores, ten
policies of `compare.yaml` on 2,000 requests of an 8B model (298 s for 70 cells)."""
CORES = 2
_ALL_AT_ONCE = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to compare. Limits and objectives that are None are the engine's, or none.

    `arrivals` is a process of scenarios/workload/arrivals with its rate, for a file without times.
    `more` are further words of `harness/run.py`.
    """

    trace: Path
    model: str
    gpu: str = "h100_80g_8"
    policies: Sequence[str] = ()
    reference: str = "vllm"
    requests: int | None = None
    tensor_parallel: int = 1
    data_parallel: int = 1
    ttft_s: float | None = 1.0
    tpot_s: float | None = 0.05
    itl_s: float | None = None
    more: Sequence[str] = ()
    results: Path = RESULTS

    @property
    def gpus(self) -> int:
        """GPUs that hold the model."""
        return self.tensor_parallel * self.data_parallel

    @property
    def words(self) -> list[str]:
        """The configuration, but for what differs from run to run."""
        slo = {"ttft_s": self.ttft_s, "tpot_s": self.tpot_s, "itl_s": self.itl_s}
        return [
            *(f"+scenario={SCENARIO}", f"hardware={self.gpu}"),
            *(f"hardware.gpu_count={self.gpus}", f"hardware.nvlink_island={self.gpus}"),
            f"system.placement.tensor_parallel={self.tensor_parallel}",
            f"system.placement.data_parallel={self.data_parallel}",
            word("workload.file", str(self.trace.absolute())),
            word("workload.model", self.model),
            "workload.too_long=drop",
            *(word(f"slo.{name}", limit) for name, limit in slo.items()),
            f"compare.reference={self.reference}",
            *(word("results", str(self.results)), "tracking=none", *self.more),
        ]

    def check(self) -> None:
        """Raise ValueError for GPUs that are not there, and for words that compare sets itself."""
        machine = _gpus_of(self.gpu)
        if self.gpus > machine:
            raise ValueError(f"{self.gpu} has {machine} GPUs, {self.gpus} were asked for")
        for given in self.more:
            key = given.lstrip("+~").partition("=")[0]
            for own, how in OWN_KEYS.items():
                is_below = own not in ("hardware", "system") and key.startswith(f"{own}.")
                if key == own or is_below:
                    raise ValueError(f"{given}: compare sets {own} itself{how}")


def compare(asked: Question, say: Callable[[str], None] = lambda _: None) -> Comparison:
    """Serve a trace by every policy at several loads; `say` hears what is compared, before.

    Raises ValueError, in one sentence, for bad input and where the reference fails.
    """
    asked.check()
    words = [*asked.words, *_taken(asked)]
    cell = api.first_cell([*words, f"policy={asked.reference}"])
    words += [f"engine.{limit}={number}" for limit, number in _limits(cell).items()]
    load = _load(cell)
    policies, left_out = _chosen(asked, words, load)
    lines = [*basis_lines(asked, cell, load), *_left(left_out)]
    for line in lines:
        say(line)
    capacity_per_s, own_per_s = _capacity(asked, words), load.requests_per_s or np.nan
    own_load = own_per_s / capacity_per_s
    lines.append(_loads_line(asked, cell, load, capacity_per_s))
    say(lines[-1])
    scales = [share / own_load for share in SHARES if abs(share - own_load) > NEAR]
    rows = api.sweep(overrides=[*words, _axes([1.0, *scales], policies)])
    lost = rows[rows["failed"] != ""]
    failed = dict(zip(lost["policy"], lost["failed"], strict=True))
    if asked.reference in failed:
        raise ValueError(f"{asked.reference}: {failed[asked.reference]}")
    for line in _left(failed):
        say(line)
    rows = rows[~rows["policy"].isin(failed)]
    rows = rows.assign(load=(rows[RATE].astype(float) * own_load).round(4))
    figures, best = _judged(rows, asked.reference)
    plain = rows[rows[DRAW].astype(int) == 0]
    return Comparison(
        figures=figures,
        best=best,
        reference=asked.reference,
        capacity_per_s=capacity_per_s,
        own_load=round(own_load, 4),
        basis=(*lines, *_left(failed)),
        limits=limits_of(plain).set_index(plain[POLICY]).groupby(level=0).first(),
        left_out=left_out | failed,
        about=basis(plain[plain[RATE].astype(float) == 1].drop(columns=[NOTES])),
    )


def _gpus_of(gpu: str) -> int:
    """GPUs of a machine. ValueError for one that is not known."""
    known = {path.stem: None for path in (ROOT / "scenarios" / "hardware").glob("*.yaml")}
    if gpu not in known:
        raise ValueError(unknown_name("file of scenarios/hardware", gpu, known))
    count = read_choice("hardware", gpu).gpu_count
    return count if isinstance(count, int) else 1


def _taken(asked: Question) -> list[str]:
    """Words for how many requests are taken: all, or those that the budget allows."""
    there = _load(api.first_cell([*asked.words, f"policy={asked.reference}"])).requests
    policies = len(asked.policies) + 1 if asked.policies else len(api.policies_of(SCENARIO))
    cells = policies * (1 + len(SHARES) + DRAWS)
    if asked.requests and asked.requests > there:
        raise ValueError(f"{asked.trace} has {there:,} requests, {asked.requests:,} were asked for")
    count = asked.requests or int(BUDGET_S * CORES / (cells * REQUEST_CELL_S))
    if count >= there:
        return []
    return [f"workload.requests={count}", "workload.requests_from=busiest"]


def _load(cell: Cell) -> TraceLoad:
    """What a cell serves. ValueError where it is no trace, or has no rate."""
    recipe = cell.workload_factory
    if not isinstance(recipe, Trace):
        raise ValueError(
            f"{type(recipe).__name__} is no trace: runs of others are compared by seed"
        )
    load = recipe.load(cell.seed)
    if load.arrivals < 2:
        raise ValueError("one request, or one session, has no rate to compare at")
    if load.requests_per_s is None:
        raise ValueError("all requests come at one instant, or when others are answered: no rate")
    return load


def _chosen(
    asked: Question, words: Sequence[str], load: TraceLoad
) -> tuple[list[str], dict[str, str]]:
    """Policies to run, the reference first, and those that cannot serve the load, with why."""
    names = list(dict.fromkeys((asked.reference, *(asked.policies or api.policies_of(SCENARIO)))))
    left_out = {}
    for name in names:
        cell = api.first_cell([*words, f"policy={name}"])
        most = _limits(cell)["max_num_batched_tokens"]
        if not _cuts_prompts(cell) and load.longest_prompt_tokens > most:
            left_out[name] = (
                f"never cuts a prompt, and the longest has {load.longest_prompt_tokens:,} tokens, "
                f"more than max_num_batched_tokens {most:,}"
            )
    return [name for name in names if name not in left_out], left_out


def _limits(cell: Cell) -> dict[str, int]:
    """The limits of a cell's engine."""
    engine = cell.config["engine"]
    assert isinstance(engine, Mapping)
    return {limit: int(engine[limit]) for limit in LIMITS}


def _cuts_prompts(cell: Cell) -> bool:
    """Whether a policy's file says that prompts are cut, or nothing of it."""
    policy = cell.config["policy"]
    rule = policy.get("rule") if isinstance(policy, Mapping) else None
    return not isinstance(rule, Mapping) or rule.get("chunked_prefill") is not False


def _left(left_out: Mapping[str, str]) -> Iterator[str]:
    """A line for each reason why policies are left out."""
    for why in dict.fromkeys(left_out.values()):
        yield f"left out: {', '.join(name for name in left_out if left_out[name] == why)}: {why}"


def basis_lines(asked: Question, cell: Cell, load: TraceLoad) -> list[str]:
    """What is compared, in lines: requests, objectives, limits, GPUs."""
    slo, predictor = cell.config["slo"], cell.config["predictor"]
    assert isinstance(slo, Mapping)
    assert isinstance(predictor, Mapping)
    names = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "longest gap", "jct_s": "JCT"}
    objectives = [f"{name} {slo[key]:g} s" for key, name in names.items() if slo.get(key)]
    limits = " and ".join(f"{limit} {number:,}" for limit, number in _limits(cell).items())
    machine = _gpus_of(asked.gpu)
    idle = f", {machine - asked.gpus} of {machine} idle" if machine > asked.gpus else ""
    prompts, answers = (total / load.requests for total in (load.prompt_tokens, load.output_tokens))
    left = f" ({load.left_out:,} left out)" if load.left_out else ""
    shared = load.shared_tokens / load.prompt_tokens
    alike = f" ({shared:.0%} of it as an earlier request's)" if shared else ""
    lines = [
        f"compared: {load.requests:,} requests{left}, mean prompt {prompts:,.0f}{alike} and answer "
        f"{answers:,.0f} tokens; {'; '.join(cell.workload_factory.build(cell.seed).notes)}",
        f"objectives: {', '.join(objectives) or 'none'} (--ttft, --tpot, --itl)",
        f"engine: {limits}, for every policy (engine.max_num_seqs=N ...)",
        f"GPUs: {asked.gpus} of {asked.gpu}, tensor parallel {asked.tensor_parallel}, data "
        f"parallel {asked.data_parallel}{idle}",
    ]
    if isinstance(cell.workload_factory, Trace) and not cell.workload_factory.is_replay:
        lines.append(
            f"arrivals: drawn by seed {cell.seed}, {load.requests_per_s:.3g}/s over "
            f"{load.span_s:,.4g} s: one draw, as if it was the trace"
        )
    if predictor.get("name") == "oracle":
        lines.append("predictor: oracle, true lengths, the most that orders by length could have")
    return lines


def _capacity(asked: Question, words: Sequence[str]) -> float:
    """Requests that the reference serves a second of a backlog."""
    axes = word("++matrix", {"policy": [asked.reference]})
    at_once = f"workload.rate_scale={_ALL_AT_ONCE:g}"
    return served_per_s(_only(api.sweep(overrides=[*words, axes, at_once])))


def _only(rows: pd.DataFrame) -> "pd.Series[float]":
    """The row of a single run. ValueError where it has failed."""
    if why := str(rows["failed"].iloc[0]):
        raise ValueError(why)
    return rows.iloc[0]


def _loads_line(asked: Question, cell: Cell, load: TraceLoad, capacity_per_s: float) -> str:
    """Capacity and own rate."""
    tokens = (load.prompt_tokens + load.output_tokens) / load.requests
    sessions, own_per_s = "", load.requests_per_s or np.nan
    if load.sessions is not None:
        turns = load.requests / load.sessions
        sessions = f" ({load.arrivals_per_s:.3g} sessions/s of {turns:.3g} turns)"
    all_run = load.requests <= _limits(cell)["max_num_seqs"]
    bound = "; all may run at once, so that capacity is a lower bound" if all_run else ""
    return (
        f"own rate: {own_per_s:.3g} requests/s{sessions}, of {capacity_per_s:.3g}/s "
        f"({capacity_per_s * tokens:,.0f} tokens/s) that {asked.reference} serves of a backlog "
        f"without pauses: load {own_per_s / capacity_per_s:.2f}{bound}"
    )


def _axes(scales: Sequence[float], policies: Sequence[str]) -> str:
    """A word for every policy at every rate, and on other costs at the trace's own, the first."""
    draws = list(range(DRAWS + 1))
    cases = [
        {"workload.rate_scale": scales[0], "hardware.cost_draw": draws},
        {"workload.rate_scale": list(scales[1:]), "hardware.cost_draw": 0},
    ]
    return word("++matrix", {"policy": list(policies), "cases": cases})


def _judged(rows: pd.DataFrame, reference: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`figures` and `best` of a comparison, from rows that have their `load`."""
    plain = rows[rows[DRAW].astype(int) == 0]
    figures, best = [], []
    for load, at in plain.groupby("load"):
        at = at.set_index(POLICY)
        served = {str(name): served_of(row) for name, row in at.iterrows()}
        for figure in JUDGED:
            numbers = pd.to_numeric(at[figure], errors="coerce")
            values = {str(name): float(value) for name, value in numbers.items()}
            if all(np.isnan(value) for value in values.values()):
                continue
            place = {"load": load, "figure": figure}
            for name, run in served.items():
                ends = trace_intervals(run, {figure: values[name]}).get(figure, {})
                found = {"value": values[name], **_named(ends)}
                found |= _against(contrast(run, served[reference], figure), figure)
                drawn = rows[(rows["load"] == load) & (rows[POLICY] == name)]
                costs = _over_draws(drawn, rows[rows["load"] == load], reference, figure)
                figures.append({**place, "policy": name, **found, **costs})
            best.append({**place, **_best(values, served, figure)})
    return pd.DataFrame(figures), pd.DataFrame(best)


def _named(ends: object) -> dict[str, float]:
    """`low` and `high`, NaN where they are not told."""
    found = ends if isinstance(ends, Mapping) else {}
    return {end: float(found.get(end, np.nan)) for end in ("low", "high")}


def _against(found: Contrast, figure: str) -> dict[str, float]:
    """The ratio to the reference and whether it is better, as columns of `figures`."""
    ratio = found.ratio
    low, high = (np.nan, np.nan) if ratio is None else ratio.ends
    sign = np.nan if found.sign is None else float(_better(found.sign, figure))
    value = np.nan if ratio is None else ratio.value
    return {"ratio": value, "ratio_low": low, "ratio_high": high, "sign": sign}


def _better(sign: int, figure: str) -> int:
    return sign if figure in BETTER_HIGH else -sign


def _over_draws(
    rows: pd.DataFrame, everything: pd.DataFrame, reference: str, figure: str
) -> dict[str, float]:
    """Smallest and largest ratio to the reference over costs that the profile's error allows."""
    both = (everything[everything[POLICY] == reference], rows)
    base, own = (pd.to_numeric(it.set_index(DRAW)[figure], errors="coerce") for it in both)
    ratios = own / base.reindex(own.index).where(lambda values: values > 0)
    if len(ratios) < 2 or ratios.isna().any():
        return {"costs_low": np.nan, "costs_high": np.nan}
    return {"costs_low": float(ratios.min()), "costs_high": float(ratios.max())}


def _best(values: Mapping[str, float], served: Mapping[str, Served], figure: str) -> dict[str, str]:
    """The best policy of a figure, policies that are alike to it, and those it is not told of."""
    up = 1 if figure in BETTER_HIGH else -1
    there = [name for name in values if not np.isnan(values[name])]
    first = max(there, key=lambda name: up * values[name])
    signs = {
        name: contrast(served[first], served[name], figure).sign for name in there if name != first
    }
    alike = [name for name in signs if signs[name] == 0]
    unknown = [name for name in values if name != first and signs.get(name) is None]
    return {"policy": first, "alike": " ".join(alike), "not_told": " ".join(unknown)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    given = _parser().parse_intermixed_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False)
    try:
        trace = given.trace.expanduser()
        if not trace.is_file():
            raise ValueError(f"{trace} is no file")
        asked = Question(
            trace=trace,
            model=given.model,
            gpu=given.gpu,
            policies=[name for name in given.policies.split(",") if name],
            reference=given.reference,
            requests=given.requests,
            tensor_parallel=given.tensor_parallel,
            data_parallel=given.data_parallel,
            ttft_s=given.ttft,
            tpot_s=given.tpot,
            itl_s=given.itl,
            more=given.more,
            results=given.results.resolve(),
        )
        found = compare(asked, say=lambda line: console.print(line, highlight=False))
        shown(found, console)
        out = given.out or RESULTS / "local" / "compare" / trace.stem
        for path in written(found, out):
            print(f"wrote {path}")
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2."""
        print(f"error: {message}; --help lists the options", file=sys.stderr)
        sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m harness compare", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("trace", type=Path)
    parser.add_argument("more", nargs="*", help="further KEY=VALUE words, as of harness/run.py")
    parser.add_argument("--model", required=True, help="config.json of a model, or its name")
    parser.add_argument("--gpu", default="h100_80g_8", help="a file of scenarios/hardware")
    parser.add_argument("--policies", default="", help="files of scenarios/policy, with commas")
    parser.add_argument("--reference", default="vllm", help="what the others are compared with")
    parser.add_argument("--requests", type=_count, help="around the busiest minute; default: 2 min")
    parser.add_argument("--tensor-parallel", type=_count, default=1)
    parser.add_argument("--data-parallel", type=_count, default=1)
    for name, default, what in (
        ("ttft", 1.0, "to the first token"),
        ("tpot", 0.05, "for a further token, the mean"),
        ("itl", None, "for the longest gap between tokens"),
    ):
        parser.add_argument(f"--{name}", type=float, default=default, help=f"seconds {what}")
    parser.add_argument("--out", type=Path, help="folder for figures.csv and loads.png")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for runs")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1 on")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
