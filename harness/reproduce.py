"""Makes a paper's figures again: `python -m harness.reproduce <paper> [<figure> ...]`.

Runs the scenarios that they read (by harness/run.py), draws them from the runs and holds the claims
that they feed against them, as results/claims/<paper>/figures.yaml says; without a figure all of
them, and the curves over what the paper leaves open. Figures and verdicts are written below
results/local/, or with `--publish`, for all figures alone, where git tracks them. `--variant code`
runs and judges what the authors' program does instead, and leaves figures alone that show something
else. `--no-runs` draws and judges the runs that are there, `--draw-only` judges nothing either,
`--list` says what there is. Bad input and missing runs end in one sentence and exit code 2.
"""

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from harness.claims import command
from harness.claims.derived.columns import named, with_derived
from harness.claims.figures import FigureEntry, PaperFigures, read_figures
from harness.claims.reading import read_claims
from harness.costs.model_facts import unknown_name
from harness.lanes import FAILED, Job, cores_here, run_all, scenario_job
from harness.runs import published
from harness.runs.cell_lists import Runs, reader
from harness.runs.config import VARIANTS
from harness.runs.ending import by_sigterm, terminate
from plots import specifications, style
from plots.inputs import Inputs

Claims = Mapping[str, Mapping[str, Any]]

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
TERMINATED = 128 + signal.SIGTERM


def runs_of(figures: Sequence[FigureEntry], variants: Sequence[str]) -> list[str]:
    """What harness/run.py is to be told, once each, of what can run on this machine."""
    lost = {run for figure in figures for run in _lost(figure)}
    runs = (run for figure in figures for v in variants for run in figure.runs.get(v, ()))
    return [run for run in dict.fromkeys(runs) if run not in lost]


def _lost(figure: FigureEntry) -> list[str]:
    """Its runs that cannot be here, since a module is not installed."""
    return [run for name, runs in figure.needs.items() if not _is_here(name) for run in runs]


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def refuse_unknown(figures: Sequence[FigureEntry], claims: Path) -> None:
    """Raise ValueError for a claim or a function that is named and not there."""
    known = dict.fromkeys(one.id for one in read_claims(claims))
    for figure in figures:
        for claim in figure.claims:
            if claim not in known:
                raise ValueError(f"{figure.name}: {unknown_name('claim', claim, known)}")
        for place in (*figure.derive.values(), *figure.tables.values(), figure.plotter):
            if place:
                named(place)


def jobs_of(figures: Sequence[FigureEntry], variants: Sequence[str], results: Path) -> list[Job]:
    """The scenarios that they read; real engines are what some need that may not be installed."""
    measured = {run for figure in figures for runs in figure.needs.values() for run in runs}
    runs = runs_of(figures, variants)
    return [scenario_job(run, results, alone=run in measured) for run in runs]


def goes_on(status: int) -> bool:
    """Whether what has run is judged: where some cells have failed the others count."""
    return status in (0, FAILED)


def inputs_of(
    figure: FigureEntry, *, claims: Claims, variants: Sequence[str], runs: Runs
) -> Inputs:
    """What its plotter is handed. Raises ValueError where a function that it names is not there."""
    printed = {name: claims[name] for name in figure.claims}
    rows = {
        scenario: _rows(figure, runs(scenario, variant))
        for variant in variants
        for scenario in figure.scenarios(variant)
    }
    tables = {name: named(place)(printed) for name, place in figure.tables.items()}
    return Inputs(name=figure.name, runs=rows, printed=printed, tables=tables)


def _rows(figure: FigureEntry, rows: pd.DataFrame) -> pd.DataFrame:
    """The scenario's own cells that the figure is about, without what was varied beside them."""
    if "config.varied" in rows:
        rows = rows[rows["config.varied"].fillna("") == ""]
    for column, value in figure.where.items():
        rows = rows[rows[column] == value] if column in rows else rows[:0]
    return rows if rows.empty else with_derived(rows, figure.derive)


def draw(stem: Path, figure: FigureEntry, inputs: Inputs) -> None:
    """Write a figure, or print a table. ValueError where runs are missing."""
    drawn = named(figure.plotter)(inputs)
    if not isinstance(drawn, Figure):
        Console().print(drawn)
        return
    for path in style.save(drawn, stem):
        print(f"wrote {published.shown(path)}")


def draw_all(
    given: argparse.Namespace, of: PaperFigures, chosen: Sequence[FigureEntry], runs: Runs
) -> None:
    """Draw those that are drawn. Raises ValueError where runs are missing."""
    paper, results = given.paper, given.results
    folder = published.place("figures", publish=given.publish, results=results)
    claims = {one.id: one.facts for one in read_claims(results / "claims" / f"{paper}.yaml")}
    for figure in chosen:
        if lost := _lost(figure):
            print(f"{figure.name} is kept as it is: {', '.join(lost)} cannot run here")
        elif figure.plotter:
            inputs = inputs_of(figure, claims=claims, variants=of.variants, runs=runs)
            draw(folder / f"{paper}_{figure.name}", figure, inputs)


def judge(
    given: argparse.Namespace,
    chosen: Sequence[FigureEntry],
    variant: str,
    before: Mapping[str, str],
    runs: Runs,
) -> None:
    """Hold the claims that these figures feed, all for all figures, against the runs.

    `before` has the verdicts that were published, by claim.
    """
    paper, results = given.paper, given.results
    only = [claim for figure in chosen for claim in figure.claims] if given.figures else []
    if given.figures and not only:
        return
    rows = command.judged(paper, results=results, variant=variant, runs=runs, only=only)
    name = "_".join((paper, *given.figures))
    command.report(rows, before, name=name, results=results, variant=variant, publish=given.publish)


def draw_specifications(paper: str, *, results: Path, publish: bool) -> None:
    """Write how every claim comes out over what its paper leaves open, where any was judged so."""
    folder = published.place("claims", publish=publish, results=results)
    path = folder / command.verdict_file(paper, "paper")
    rows = command.read_verdicts(path) if path.is_file() else []
    judged = [row for row in rows if "specifications" in row]
    if specifications.curves_of(judged):
        stem = folder.parent / "figures" / f"{paper}_specifications"
        for written in style.save(specifications.draw(judged), stem):
            print(f"wrote {published.shown(written)}")


def list_figures(chosen: Sequence[FigureEntry], variants: Sequence[str]) -> None:
    """Print what there is, and how long its runs take."""
    table = Table("figure", "shows", "minutes", "runs", box=None, pad_edge=False)
    for figure in chosen:
        runs = ", ".join(run for variant in variants for run in figure.runs.get(variant, ()))
        table.add_row(figure.name, figure.shows, f"{figure.minutes:g}", runs or "none")
    Console().print(table)


def reproduce(given: argparse.Namespace) -> int:
    """Run, draw, judge; the exit status of a scenario that fails.

    Where some cells have failed the rest is drawn and judged all the same. ValueError: bad input.
    """
    if given.publish and given.figures:
        raise ValueError(f"--publish is for all figures, not for {', '.join(given.figures)} alone")
    of = read_figures(given.results / "claims", given.paper)
    chosen = of.chosen(given.figures)
    if given.list:
        list_figures(chosen, of.variants)
        return 0
    refuse_unknown(chosen, given.results / "claims" / f"{given.paper}.yaml")
    variants = [given.variant] if given.variant else of.variants
    before = {
        variant: command.published_verdicts(given.paper, results=given.results, variant=variant)
        for variant in variants
    }
    jobs = [] if given.draw_only or given.no_runs else jobs_of(chosen, variants, given.results)
    failed = run_all(jobs, lanes=cores_here(), goes_on=goes_on)
    if not goes_on(failed):
        return failed
    runs = reader(given.results)
    if given.draw_only or variants == of.variants:
        draw_all(given, of, chosen, runs)
    if not given.draw_only:
        for variant in variants:
            judge(given, chosen, variant, before[variant], runs)
    if not given.figures and (given.draw_only or "paper" in variants):
        draw_specifications(given.paper, results=given.results, publish=given.publish)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and follow it; the exit status."""
    parser = argparse.ArgumentParser(description="Make a paper's figures again, and judge them.")
    parser.add_argument("paper", help="a folder of results/claims")
    parser.add_argument("figures", nargs="*", help="of its figures.yaml; all of them for none")
    parser.add_argument("--variant", choices=VARIANTS, help="run and judge this one alone")
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--draw-only", action="store_true", help="from the runs that are there")
    parser.add_argument("--no-runs", action="store_true", help="draw and judge what is there")
    parser.add_argument(
        "--results", type=Path, default=published.RESULTS, help="where the runs are"
    )
    published.add_publish(parser)
    given = parser.parse_args(arguments)
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        return reproduce(given)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt as interrupt:
        return TERMINATED if by_sigterm(interrupt) else INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
