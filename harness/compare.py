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

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console

from harness import api
from harness.config.engine_limits import LIMITS
from harness.config.hydra_words import word
from harness.config.names import unknown_name
from harness.config.paths import ROOT
from harness.config.yaml_files import read_choice
from harness.runs.cells import Cell
from harness.runs.comparison import compared, differences, table_of
from harness.runs.figures import DRAW, header_of
from harness.runs.gpu_time import served_per_s
from harness.runs.limits import POLICY
from harness.runs.published import RESULTS
from harness.runs.record import NOTES
from harness.runs.table import basis, print_table
from harness.runs.trace_intervals import ATTAINMENT
from harness.workloads.recorded import Trace
from harness.workloads.trace_load import TraceLoad

SCENARIO = "compare"
SHARES = (0.5, 0.8, 0.95, 1.2)
"""Of the reference's capacity."""
DRAWS = 2
"""Costs that the error of the profile allows, beside those that it has."""
RATE = "config.workload.rate_scale"
JUDGED = (
    *("ttft_s_mean", "ttft_s_p99", "tpot_s_mean", "jct_s_mean", "jct_s_p99"),
    *(ATTAINMENT, "goodput_per_s", "requests_per_s"),
)
DRAWN = (ATTAINMENT, "goodput_per_s", "jct_s_mean")
NONE, NOT_TOLD = "-", "?"
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
_ALL_AT_ONCE = "workload.rate_scale=1e9"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a comparison found.

    `figures` are those of `harness.runs.comparison.compared` by `load` and `policy`, with the range
    of the ratio over drawn costs at the own rate (`costs_low`, `costs_high`). Loads are shares of
    `capacity_per_s`, requests a second; `own_load` is the trace's. `basis` are lines that say what
    was compared, `left_out` policies that could not serve the load and why.
    """

    figures: pd.DataFrame
    reference: str
    capacity_per_s: float
    own_load: float
    basis: tuple[str, ...]
    left_out: Mapping[str, str]
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to compare; None: no objective, or as many requests as take two minutes.

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
            *(word("results", str(self.results.absolute())), "tracking=none", *self.more),
        ]

    def check(self) -> None:
        """Raise ValueError for a trace or GPUs that are not there, and words that are not free."""
        if not self.trace.is_file():
            raise ValueError(f"{self.trace} is no file")
        machine = gpus_of(self.gpu)
        if self.gpus > machine:
            raise ValueError(f"{self.gpu} has {machine} GPUs, {self.gpus} were asked for")
        refuse_own_keys("compare", self.more, OWN_KEYS)


def refuse_own_keys(command: str, words: Sequence[str], own_keys: Mapping[str, str]) -> None:
    """Raise ValueError for a word whose key the command sets; `own_keys` has the option for each.

    Below `hardware` and `system` keys are free where they are not named themselves.
    """
    for given in words:
        key = given.lstrip("+~").partition("=")[0]
        for own, how in own_keys.items():
            is_below = own not in ("hardware", "system") and key.startswith(f"{own}.")
            if key == own or is_below:
                raise ValueError(f"{given}: {command} sets {own} itself{how}")


def compare(asked: Question, say: Callable[[str], None] = lambda _: None) -> Comparison:
    """Serve a trace by every policy at several loads; `say` hears what is compared, before.

    Raises ValueError, in one sentence, for bad input and where the reference fails.
    """
    asked.check()
    words = [*asked.words, *_taken(asked)]
    cell = _first_cell(asked, words)
    words += [f"engine.{limit}={number}" for limit, number in _limits(cell).items()]
    load = load_of(cell)
    lines = basis_lines(asked, cell, load)
    for line in lines:
        say(line)
    backlog = [*words, word("++matrix", {"policy": [asked.reference]}), _ALL_AT_ONCE]
    capacity_per_s = served_per_s(_ran(backlog, asked.reference)[0].iloc[0])
    own_load = (load.requests_per_s or np.nan) / capacity_per_s
    rates = [1.0, *(share / own_load for share in SHARES if abs(share - own_load) > NEAR)]
    policies = [asked.reference, *(asked.policies or api.policies_of(SCENARIO))]
    lines.append(_loads_line(asked, cell, load, capacity_per_s))
    say(lines[-1])
    rows, failed = _ran([*words, _axes(rates, [*dict.fromkeys(policies)])], asked.reference)
    rows = rows.assign(load=(rows[RATE].astype(float) * own_load).round(4))
    rows = rows.sort_values("load", kind="stable")
    plain = rows[rows[DRAW].astype(int) == 0]
    also = [
        *(f"left out: {name}: {why}" for name, why in failed.items()),
        *differences(plain, POLICY),
    ]
    for line in also:
        say(line)
    figures = compared(plain, JUDGED, by=POLICY, reference=asked.reference, at=["load"])
    return Comparison(
        figures=figures.join(_over_draws(rows, asked.reference), on=["load", "policy", "figure"]),
        reference=asked.reference,
        capacity_per_s=capacity_per_s,
        own_load=round(own_load, 4),
        basis=(*lines, *also),
        left_out=failed,
        about=basis(plain[plain[RATE].astype(float) == 1].drop(columns=[NOTES])),
    )


def _first_cell(asked: Question, words: Sequence[str]) -> Cell:
    """The reference's, when all policies are there. Raises ValueError for one that is not."""
    for name in asked.policies:
        api.configuration(*words, f"policy={name}")
    return api.first_cell([*words, f"policy={asked.reference}"])


def _ran(words: Sequence[str], reference: str) -> tuple[pd.DataFrame, dict[str, str]]:
    """Runs of policies of which no run has failed, and why others have.

    ValueError where the reference has.
    """
    rows = api.sweep(overrides=words)
    lost = rows[rows["failed"] != ""]
    failed = dict(zip(lost["policy"], lost["failed"], strict=True))
    if reference in failed:
        raise ValueError(f"{reference}: {failed[reference]}")
    return rows[~rows["policy"].isin(failed)], failed


def gpus_of(gpu: str) -> int:
    """GPUs of a machine. ValueError for one that is not known."""
    known = {path.stem: None for path in (ROOT / "scenarios" / "hardware").glob("*.yaml")}
    if gpu not in known:
        raise ValueError(unknown_name("file of scenarios/hardware", gpu, known))
    count = read_choice("hardware", gpu).gpu_count
    return count if isinstance(count, int) else 1


def _taken(asked: Question) -> list[str]:
    """Words for how many requests are taken: all, or those that the budget allows."""
    there = load_of(api.first_cell([*asked.words, f"policy={asked.reference}"])).requests
    policies = len(asked.policies) + 1 if asked.policies else len(api.policies_of(SCENARIO))
    cells = policies * (1 + len(SHARES) + DRAWS)
    if asked.requests and asked.requests > there:
        raise ValueError(f"{asked.trace} has {there:,} requests, {asked.requests:,} were asked for")
    count = asked.requests or int(BUDGET_S * CORES / (cells * REQUEST_CELL_S))
    if count >= there:
        return []
    return [f"workload.requests={count}", "workload.requests_from=busiest"]


def load_of(cell: Cell) -> TraceLoad:
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


def _limits(cell: Cell) -> dict[str, int]:
    """The limits of a cell's engine."""
    engine = cell.config["engine"]
    assert isinstance(engine, Mapping)
    return {limit: int(engine[limit]) for limit in LIMITS}


def basis_lines(asked: Question, cell: Cell, load: TraceLoad) -> list[str]:
    """What is compared, in lines: requests, objectives, limits, GPUs."""
    slo, predictor = cell.config["slo"], cell.config["predictor"]
    assert isinstance(slo, Mapping)
    assert isinstance(predictor, Mapping)
    names = {"ttft_s": "TTFT", "tpot_s": "TPOT", "itl_s": "longest gap", "jct_s": "JCT"}
    objectives = [f"{name} {slo[key]:g} s" for key, name in names.items() if slo.get(key)]
    limits = " and ".join(f"{limit} {number:,}" for limit, number in _limits(cell).items())
    machine = gpus_of(asked.gpu)
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


def _over_draws(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Smallest and largest ratio to the reference over costs that the profile's error allows."""
    numbers = rows.set_index(["load", DRAW, POLICY])[list(JUDGED)].rename_axis(columns="figure")
    drawn = numbers.apply(pd.to_numeric, errors="coerce").stack().unstack(POLICY)
    ratios = drawn.div(drawn[reference].where(lambda it: it > 0), axis=0)
    each = ratios.rename_axis(columns="policy").stack().groupby(["load", "policy", "figure"])
    found = each.agg(
        costs_low=lambda it: it.min(skipna=False), costs_high=lambda it: it.max(skipna=False)
    )
    return pd.DataFrame(found.where(each.size() > 1))


def _winners(found: Comparison) -> pd.DataFrame:
    """By figure and load the best policy where it beats the reference beyond noise.

    `NONE` where no policy does, `NOT_TOLD` where that is not told.
    """
    rows = found.figures[found.figures["policy"] == found.reference]
    won = rows["best"].where(rows["to_best"] < 0, NONE).where(rows["to_best"].notna(), NOT_TOLD)
    return rows.assign(won=won).pivot(index="figure", columns="load", values="won")


def answer(found: Comparison) -> list[str]:
    """Three sentences: attainment and mean JCT at the own rate, and attainment at other loads."""
    winners = _winners(found)
    first = ATTAINMENT if ATTAINMENT in winners.index else "jct_s_mean"
    said = [f"At the trace's own rate, load {found.own_load:.2f}: {_winner(found, first)}."]
    if first == ATTAINMENT:
        said.append(f"Of answers: {_winner(found, 'jct_s_mean')}.")
    by_name: dict[str, list[str]] = {}
    for load, name in winners.drop(columns=found.own_load).loc[first].to_dict().items():
        by_name.setdefault(name, []).append(f"{load:.2f}")
    words = {NONE: f"no policy beyond {found.reference}", NOT_TOLD: "not told"}
    each = (f"{words.get(it, it)} at {', '.join(loads)}" for it, loads in by_name.items())
    return [*said, f"Best {header_of(first)} at other loads: {'; '.join(each)}."]


def _winner(found: Comparison, figure: str) -> str:
    """Which policy is best in a figure at the own rate, by how much, and how sure."""
    name, reference, rows = header_of(figure), found.reference, found.figures
    rows = rows[(rows["load"] == found.own_load) & (rows["figure"] == figure)].set_index("policy")
    policy, won = str(rows["best"].iloc[0]), _winners(found)[found.own_load][figure]
    row = rows.loc[policy]
    size = f"{row['value']:.3g} against {row['base']:.3g} of {reference}"
    if not np.isnan(row["ratio_low"]):
        size += f", {row['ratio']:.2f}x [{row['ratio_low']:.2f}, {row['ratio_high']:.2f}]"
    if row["costs_high"] > row["costs_low"]:
        size += f", {row['costs_low']:.2f} to {row['costs_high']:.2f}x as costs may be off"
    if won == NOT_TOLD:
        return f"whether {policy} has a better {name} than {reference} is not told ({size})"
    if won == NONE:
        more = "" if policy == reference else f" ({policy}: {size})"
        return f"no policy beats {reference} in {name} beyond noise{more}"
    alike = [it for it in rows.index[rows["to_best"] == 0] if it not in (policy, reference)]
    return f"{policy} has the best {name}, {size}" + (
        f"; {', '.join(alike)} alike" if alike else ""
    )


def shown(found: Comparison, console: Console) -> None:
    """Print what was found: the answer, the figures at the own rate, the best by load."""
    for line in answer(found):
        console.print(line, highlight=False)
    own = found.figures[found.figures["load"] == found.own_load]
    own = own.sort_values("policy", key=lambda it: it != found.reference, kind="stable")
    title = f"at the trace's own rate, load {found.own_load:.2f}"
    print_table(table_of(own, ["policy"], "figure"), console, title)
    winners = _winners(found).reindex(own["figure"].unique()).rename(index=header_of)
    title = (
        f"best beyond noise, by load; {NONE}: none beats {found.reference}; {NOT_TOLD}: not told"
    )
    print_table(winners.rename(columns="{:.2f}".format), console, title)
    console.print(f"{found.about}; rates are until the last answer", highlight=False)


def written(found: Comparison, folder: Path) -> list[Path]:
    """Write figures.csv and loads.png; their paths."""
    os.environ.setdefault("MPLBACKEND", "agg")
    from plots.comparison import plot

    folder.mkdir(parents=True, exist_ok=True)
    table, picture = folder / "figures.csv", folder / "loads.png"
    found.figures.to_csv(table, index=False, float_format="%.6g")
    panels = [[name] for name in DRAWN if (found.figures["figure"] == name).any()]
    ticks, group = found.figures["load"].map("{:.2f}".format), f"of what {found.reference} serves"
    rows = found.figures.assign(group=group, tick=ticks)
    plot(rows, panels, "; ".join(found.basis), text="value").savefig(picture)
    return [table, picture]


def follow(asked: Question, out: Path | None) -> None:
    """Compare, print and write. Raises ValueError for bad input."""
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False)
    found = compare(asked, say=lambda line: console.print(line, highlight=False))
    shown(found, console)
    for path in written(found, out or RESULTS / "local" / "compare" / asked.trace.stem):
        print(f"wrote {path}")
