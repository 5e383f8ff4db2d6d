"""How many GPUs for a recorded load: `python -m harness plan TRACE --model CONFIG --slo TEXT`.

TRACE, CONFIG and the GPU are those of `python -m harness compare`. The objectives are limits of
seconds, `METRIC SECONDS pNN` with commas between them. Every setting of `scenarios/scenario/
plan.yaml` serves the same requests, split over 1, 2, 4 ... GPUs of a machine, with as many replicas
as keep the objectives: the answer is the one with the fewest GPUs, or with prices the fewest
dollars. What is assumed is printed first. Then come the answer, up to which load it holds and what
binds there, the ten best settings, and how sure that is: intervals over blocks of the trace, and
the GPUs needed where seconds are off by the error of the costs. With `--observed` the seconds are
fitted to the log of a server of yours (`harness/observed.py`), and the error is that of the half
that the fit has not seen. With `--scale` and `--hours` the search is made again at other loads, and
for each hour of the trace. CSV files and a plot are written; of the runs the answer's own is kept.

From Python, `plan(...)` returns the same as values.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from harness import api
from harness.capacity import texts
from harness.capacity.assumptions import assumptions
from harness.capacity.binding import binding, parts_kept, pressure_of
from harness.capacity.grid import Trial
from harness.capacity.objectives import seconds_of
from harness.capacity.question import CapacityQuestion, Prepared, prepared
from harness.capacity.search import (
    ALONE,
    FIRST_GPUS,
    Margin,
    Rated,
    cheapest,
    fewest_replicas,
    largest_load,
)
from harness.capacity.serving import Servers
from harness.capacity.sureness import error_of, intervals
from harness.capacity.texts import Alike, alike
from harness.config.paths import ROOT
from harness.costs.model_names import shown_name
from harness.observed import FittedFactors, ObservedServer, fit
from harness.observed import shown as print_fitted
from harness.runs import published
from harness.runs.building import cell_of
from harness.runs.cells import Run, compute
from harness.runs.figures import View
from harness.runs.progress import CellProgress
from harness.runs.published import shown
from harness.runs.table import print_table

NOWHERE = "1x1"
"""Copies x GPUs of a server where no other are given."""
CURVE = ("curve.csv", "curve.png")
MARGINS = 3
"""Settings of the table that have a margin."""
BEST = f"the best settings; margin, of the first {MARGINS}: load up to which it keeps them"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """What was found.

    `found` are all settings that were served, the answer first, and `rows` those that differ in
    more than limits that do not matter. `margins` has those of the first rows, `sentences` are the
    answer, its margin and what binds, `sure` what is said of the errors. `curve` has a row for each
    load and each hour. `run` is the answer's, `folder` where it is kept.
    """

    prepared: Prepared
    found: Sequence[Rated]
    rows: Sequence[Alike]
    margins: Mapping[Trial, Margin]
    sentences: tuple[str, ...]
    sure: tuple[str, ...]
    basis: tuple[str, ...]
    curve: pd.DataFrame
    folder: Path


def plan(
    asked: CapacityQuestion,
    say: Callable[[str], None] = lambda _: None,
    fitted: FittedFactors | None = None,
) -> CapacityPlan:
    """Search the cheapest setting that keeps the objectives; `say` hears what is assumed, before.

    `fitted` has factors of the seconds and their error, as `harness.observed.fit` finds them.
    Raises ValueError, in one sentence, for bad input and for objectives that no setting keeps.
    """
    if fitted:
        asked = replace(asked, more=(*asked.more, *fitted.words))
    ready = prepared(asked)
    basis = assumptions(asked, ready)
    for line in basis:
        say(line)
    with _Searching(ready) as searching:
        found = searching.cheapest("settings")
        if not found[0].is_kept:
            raise ValueError(texts.unmet(ready.problem, found))
        rows = alike(found)
        margins = searching.margins(rows)
        config = ready.site.configuration(found[0].trial)
        run, folder = api.run(config), cell_of(config).folder
        return CapacityPlan(
            prepared=ready,
            found=found,
            rows=rows,
            margins=margins,
            sentences=_sentences(searching, rows, margins[found[0].trial]),
            sure=_sure(searching, found[0], run, fitted),
            basis=tuple(basis),
            curve=_curve(searching, asked, found),
            folder=folder,
        )


def server_of(asked: CapacityQuestion, log: Path, at: str = NOWHERE) -> ObservedServer:
    """The server of a log, with the model, GPU and keys of `hardware` that a plan has.

    `at` is copies x GPUs of a copy, and keys that the server had, with blanks between them. Raises
    ValueError for a bad split and for a plan over several kinds of GPUs.
    """
    split, *keys = at.split() or [""]
    copies, _, gpus = split.partition("x")
    if not (copies.isdecimal() and gpus.isdecimal() and int(copies) and int(gpus)):
        raise ValueError(f"--observed-at {at}: it begins with copies x GPUs of a copy, as 2x4")
    if len(asked.gpus) > 1:
        raise ValueError(
            f"--observed: the log of a server is of one kind of GPU, --gpu has {len(asked.gpus)}"
        )
    return ObservedServer(
        log=log.expanduser(),
        model=asked.model,
        gpu=asked.gpus[0],
        tensor_parallel=int(gpus),
        data_parallel=int(copies),
        more=[*(it for it in asked.more if it.lstrip("+").startswith("hardware.")), *keys],
    )


class _Searching:
    """Processes that serve the trials of a question, with progress; a context, which ends them."""

    def __init__(self, ready: Prepared) -> None:
        self.ready, self._servers = ready, Servers(ready.site, ready.workers)
        self.serve = self._servers.serve

    def __enter__(self) -> "_Searching":
        """Nothing runs yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self._servers.__exit__()

    def cheapest(self, name: str, first_gpus: float = FIRST_GPUS, **at: Any) -> list[Rated]:
        """All settings, under this name, at a load or in an hour."""
        candidates, done = self.ready.candidates, 0
        with CellProgress(len(candidates)) as progress:
            progress.says(name)

            def decided(count: int) -> None:
                nonlocal done
                for _ in range(count - done):
                    progress.done()
                done = count

            problem = self.ready.problem
            return cheapest(
                problem, candidates, self.serve, at=at, first_gpus=first_gpus, decided=decided
            )

    def margins(self, rows: Sequence[Alike]) -> dict[Trial, Margin]:
        """Of the first rows."""
        trials = [it.rated.trial for it in rows[:MARGINS] if it.rated.is_kept]
        with CellProgress(len(trials)) as progress:
            progress.says("margins")
            found = {}
            for trial in trials:
                found[trial] = largest_load(self.ready.problem, trial, self.serve)
                progress.done()
            return found


def _sentences(searching: _Searching, rows: Sequence[Alike], margin: Margin) -> tuple[str, ...]:
    """The answer, its margin, and what binds."""
    problem, load, trial = searching.ready.problem, searching.ready.load, rows[0].rated.trial
    per_s = load.requests_per_s or 0.0
    tokens_per_s = per_s * (load.prompt_tokens + load.output_tokens) / load.requests
    said = [texts.answer(problem, rows, tokens_per_s), texts.margin_said(problem, margin, per_s)]
    if load.left_out:
        without = f"{load.left_out:,} requests of the file are too long and not in it"
        said[0] = f"{said[0][:-1]}; {without}."
    if margin.fails_at is None:
        return *said, f"Nothing binds up to {margin.kept_at:g} times this load."
    if not margin.failing_s:
        return (*said,)
    (alone,) = searching.serve([replace(trial, load=ALONE)])
    failing = replace(trial, load=margin.fails_at)
    run = compute(cell_of(searching.ready.site.configuration(failing, logs=True)))
    calm = parts_kept(problem.objectives, seconds_of(View(run)))
    what = binding(problem.objectives, margin.failing_s, alone.values_s, pressure_of(run), calm)
    return *said, f"What binds there is {what}."


def _sure(
    searching: _Searching, best: Rated, run: Run, fitted: FittedFactors | None
) -> tuple[str, ...]:
    """Intervals over blocks of the trace, and what the error of the costs changes."""
    problem, view = searching.ready.problem, View(run)
    spans, share = intervals(problem.objectives, seconds_of(view))
    trial, cell = best.trial, cell_of(searching.ready.site.configuration(best.trial))
    model, degree = searching.ready.model, trial.candidate.tensor_parallel
    error, of = error_of(cell.costs.error(model, degree)), "of prompts or decodes"
    basis = f"simulated, {cell.costs.label(model, degree)}"
    if fitted:
        error, of = fitted.error, f"of TTFT or TPOT, {fitted.withheld:,} requests of {fitted.log}"
        basis = f"simulated, with {fitted.basis}; before the fit {basis.partition(', ')[2]}"
    needed = [
        fewest_replicas(problem, replace(trial, slower=it), searching.serve)
        for it in (1 + error, 1 / (1 + error))
    ]
    outside = run.facts["outside_profile_share"]
    beyond = f"; {outside:.1%} of the GPU seconds lie outside the batches that were measured"
    return (
        texts.intervals_said(problem.objectives, best.values_s, spans, share),
        texts.costs_said(problem, trial, error, of, needed),
        f"Basis: {basis}{f'{beyond}, to which no error is known' if outside > 0 else ''}.",
    )


def _curve(searching: _Searching, asked: CapacityQuestion, found: Sequence[Rated]) -> pd.DataFrame:
    """The cheapest setting at each load that is asked for, and in each hour, a row each."""
    ready, rows = searching.ready, []
    gpus = found[0].trial.gpus
    for load in sorted({*asked.loads}):
        first = gpus * max(1.0, load)
        of = (
            found if load == 1 else searching.cheapest(f"{load:g} times the load", first, load=load)
        )
        rate = load * (ready.load.requests_per_s or 0.0)
        rows.append({"what": "load", "at": f"{load:g}", "requests_per_s": rate, **_best(ready, of)})
    for number, hour in ready.hours.items():
        of = searching.cheapest(hour.label, gpus, hour=number)
        rate = ready.rates[number]
        rows.append({"what": "hour", "at": hour.label, "requests_per_s": rate, **_best(ready, of)})
    return pd.DataFrame(rows)


def _best(ready: Prepared, found: Sequence[Rated]) -> dict[str, object]:
    """The columns of the first setting; GPUs are None where none keeps the objectives."""
    first = found[0]
    if not first.is_kept:
        return {"gpus": None, "gpu": ", ".join(ready.site.machines)}
    return {"gpus": first.trial.gpus, **_columns(ready, first)}


def _columns(ready: Prepared, one: Rated) -> dict[str, object]:
    of = one.trial.candidate
    values = one.values_s or (float("nan"),) * len(ready.problem.objectives)
    return {
        "gpu": of.gpu,
        "replicas": one.trial.replicas,
        "tensor_parallel": of.tensor_parallel,
        "expert_parallel": of.expert_parallel,
        "max_num_batched_tokens": of.max_num_batched_tokens,
        "max_num_seqs": of.max_num_seqs,
        "policy": of.policy,
        "dispatch": of.dispatch,
        "cost": one.cost,
        **{
            f"{it.name.replace(' ', '_')}_s": value_s
            for it, value_s in zip(ready.problem.objectives, values, strict=True)
        },
    }


def printed(found: CapacityPlan, console: Console) -> None:
    """Print what was found: the answer, the best settings, how sure, and the curve."""
    for line in found.sentences:
        console.print(line, highlight=False)
    table = texts.table_of(found.rows, found.prepared.problem, found.margins)
    print_table(table, console, BEST)
    for line in _beside(found):
        console.print(line, highlight=False)
    for title, rows in _curves(found).items():
        print_table(rows, console, title)


def content_of(found: CapacityPlan) -> dict[str, object]:
    """The same as a page has it."""
    table = texts.table_of(found.rows, found.prepared.problem, found.margins)
    return {
        "assumed": found.basis,
        "answer": found.sentences,
        "best": _plain(table),
        "sure": _beside(found),
        "curves": {title: _plain(rows) for title, rows in _curves(found).items()},
    }


def _plain(table: pd.DataFrame) -> list[dict[str, str]]:
    return [
        {str(k): str(v) for k, v in it.items()} for it in table.reset_index().to_dict("records")
    ]


def _beside(found: CapacityPlan) -> list[str]:
    return [*found.sure, *texts.left_out(found.found), *_few(found.prepared)]


def _curves(found: CapacityPlan) -> dict[str, pd.DataFrame]:
    """Tables of the curve by their title."""
    if found.curve.empty:
        return {}
    most = found.prepared.problem.most_gpus
    groups = found.curve.groupby("what", sort=False)
    return {f"GPUs by {what}": texts.curve_of(rows, most) for what, rows in groups}


def _few(ready: Prepared) -> list[str]:
    if not ready.few:
        return []
    each = ", ".join(f"{it.label} ({it.requests:,})" for it in ready.few)
    return [f"hours with too few requests for the objectives: {each}"]


def written(found: CapacityPlan, folder: Path) -> list[Path]:
    """Write settings.csv, and of a curve curve.csv and curve.png; their paths."""
    ready = found.prepared
    folder.mkdir(parents=True, exist_ok=True)
    for name in CURVE:
        (folder / name).unlink(missing_ok=True)
    rows = [
        {
            "gpus": one.trial.gpus,
            "is_kept": one.is_kept,
            "is_least": one.is_least,
            **_columns(ready, one),
            "why": one.why.replace(f"{ROOT}/", ""),
        }
        for one in found.found
    ]
    paths = [folder / "settings.csv"]
    pd.DataFrame(rows).to_csv(paths[0], index=False, float_format="%.6g")
    if len(found.curve):
        os.environ.setdefault("MPLBACKEND", "agg")
        from plots.capacity import plot

        paths += [folder / name for name in CURVE]
        found.curve.to_csv(paths[1], index=False, float_format="%.6g")
        plot(found.curve, texts.about(ready.problem.objectives, ready.model, found.sure)).savefig(
            paths[2]
        )
    return paths


def follow(
    asked: CapacityQuestion,
    out: Path | None,
    log: Path | None = None,
    at: str = NOWHERE,
    page: str = "",
) -> None:
    """Search, print and write; with the seconds of the `server_of` a log, where there is one.

    A `page` is the name by which pages/plan has the answer. Raises ValueError for bad input.
    """
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False)

    def say(line: str) -> None:
        console.print(line, highlight=False)

    fitted = None
    if log:
        fitted = fit(server_of(asked, log, at), say)
        print_fitted(fitted, console)
        if fitted.is_at_limit:
            raise ValueError(fitted.notes[-1])
    elif at != NOWHERE:
        raise ValueError(f"--observed-at {at}: no log is given, --observed LOG")
    found = plan(asked, say, fitted)
    printed(found, console)
    kept = published.place("plans", publish=bool(page)) / (page or asked.trace.stem)
    if page:
        title = f"{asked.trace.name}: {shown_name(found.prepared.model)} on {', '.join(asked.gpus)}"
        content = {"title": title, "command": _command(asked, page), **content_of(found)}
        text = json.dumps(content, indent=1).replace(f"{ROOT}/", "")
        published.write(kept / "plan.json", f"{text}\n")
    for path in written(found, out or kept):
        print(f"wrote {shown(path)}")
    print(f"the run of the answer: {shown(found.folder)}")


def _command(asked: CapacityQuestion, page: str) -> str:
    """The command line, with the trace by its name alone and without the page."""
    own = {"--publish", page, f"--publish={page}"}
    words = [it for it in sys.argv[1:] if it not in own]
    return shlex.join(asked.trace.name if it == str(asked.trace) else it for it in words)
