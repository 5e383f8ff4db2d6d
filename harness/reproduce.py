"""Reproduces a paper's figures: `python -m harness reproduce <paper> [<figure> ...]`.

Runs the scenarios of the figures at the reference setting, draws the figures
and prints a table of their claims: what the paper says, what came out, a verdict. Without a figure
it does so for all of them. `--sensitivity` adds the variations and the conditions of the authors'
program. Figures and verdicts are written below results/local/, or with `--publish`, for all figures
together, where git tracks them. `--no-runs` draws and judges the runs that are there, `--list`
prints the figures. Bad input and missing runs end in one sentence and exit code 2.

`python -m harness reproduce all --publish` runs the scenarios of every paper with their variations
and the authors' programs, then writes all that is published of them: figures, verdicts, a page per
paper, and the generated parts of README.md and results/pages. Finished cells stay, so the command
can be given again. Measurements (bench, verify, fidelity ...) have commands of their own.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from harness import api
from harness.claims.judge import Source, check, judge, judge_facts
from harness.claims.paper import Fact, FigureSpec, Paper, load_paper, papers
from harness.claims.tables import facts_path, read_csv, read_facts, write_csv, write_facts
from harness.claims.texts import with_texts
from harness.config.hydra_words import word
from harness.report import pages
from harness.report.paper_page import for_terminal, page_of
from harness.runs import published
from harness.runs.basis import cost_basis
from harness.runs.composed_cells import Matrix
from harness.runs.table import print_table
from plots import forest, style
from plots.inputs import Inputs

FAILED = 1
"""Exit code where some cells have failed, or where a signal has ended a scenario."""
VARIATIONS = "variations=true"
ALL = "all"
"""In place of the name of a paper: every one."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What of a paper is reproduced, and how."""

    paper: str
    figures: tuple[str, ...] = ()
    sensitivity: bool = False
    listing: bool = False
    no_runs: bool = False
    results: Path = published.RESULTS
    publish: bool = False


def runs_of(
    figures: Sequence[FigureSpec], facts: Sequence[Fact] = (), *, sensitivity: bool
) -> list[str]:
    """The scenarios of these figures and facts, once each, with other words of harness/run.py."""
    varied = {run for figure in figures for run in figure.scenarios} if sensitivity else set()
    missing = {run for figure in figures for run in _not_installed(figure)}
    sources: list[FigureSpec | Fact] = [*figures, *facts]
    every = [
        *(run for one in sources for run in (*one.scenarios, *(one.code if sensitivity else ()))),
        *(run for figure in figures for run in figure.also),
    ]
    runs = dict.fromkeys(run for run in every if run not in missing)
    return [f"{run} {VARIATIONS}" if run in varied else run for run in runs]


def run_scenarios(runs: Sequence[str], results: Path) -> bool:
    """Run scenarios one after the other, each on all cores; whether all cells have finished.

    Sentences and progress are shown, tables are not. Raises ValueError for bad input.
    """
    # Libraries that an engine of this process loads; workers have it from the pool.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    place = [] if results == published.RESULTS else [word("results", str(results.resolve()))]
    whole = True
    for run in runs:
        with api.refusing(*f"+scenario={run}".split(), *place) as composer:
            done = api.swept(Matrix(composer))
        for said in done.said_of_failures():
            print(said, file=sys.stderr)
        whole &= not done.failed
    return whole


def _not_installed(figure: FigureSpec) -> set[str]:
    """Scenarios of a figure that cannot run here, since a module is not installed."""
    return {run for name, runs in figure.needs.items() if not _is_installed(name) for run in runs}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def plot_of(figure: FigureSpec) -> Callable[[Inputs], Figure]:
    """The function that draws a figure. Raises ValueError where there is none."""
    module, _, name = figure.plot.partition(":")
    try:
        plot: Callable[[Inputs], Figure] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{figure.name}: there is no plot {figure.plot}: {error}") from error
    return plot


def draw(paper: Paper, figures: Sequence[FigureSpec], source: Source, folder: Path) -> list[Path]:
    """Draw figures as PNG and PDF; the paths of the PNG files. Raises ValueError without runs."""
    drawn = []
    for figure in figures:
        if not figure.plot:
            continue
        if missing := _not_installed(figure):
            print(f"{figure.name} is not drawn: {', '.join(sorted(missing))} cannot run here")
            continue
        code = [run for run in figure.code if source.sensitivity and source.has([run])]
        runs = {
            run.partition(" ")[0]: source.reference([run])
            for run in (*figure.scenarios, *code, *figure.also)
        }
        varied = {run: source.variations([run], paper.variations) for run in figure.scenarios}
        claims = {claim.id: claim for claim in paper.of_figure(figure.name)}
        inputs = Inputs(name=figure.name, runs=runs, varied=varied, printed=claims)
        image = plot_of(figure)(inputs)
        drawn.append(style.save(image, folder / f"{paper.name}_{figure.name}")[0])
    return drawn


def publish_page(paper: Paper, source: Source, results: Path) -> None:
    """Write a paper's forest plot and page from its published verdicts and facts."""
    claims = results / "claims"
    judged = read_csv(claims / f"{paper.name}.csv", paper)
    facts = read_facts(facts_path(claims, paper.name), paper)
    style.save(forest.draw(judged), results / "figures" / f"{paper.name}_forest")
    rows = [
        source.reference([run])
        for run in dict.fromkeys(run for figure in paper.figures for run in figure.scenarios)
        if not source.of(run).reference.empty
    ]
    basis = cost_basis(pd.concat(rows, ignore_index=True))
    page = page_of(paper, judged, facts, basis=f"*Simulated* on {basis}", results=results)
    published.write(results / "pages" / f"{paper.name}.md", page)


def list_figures(paper: Paper) -> None:
    """Print the figures of a paper and what they are made from."""
    heads = ("figure", "shows", "scenarios", "claims")
    rows = [
        (
            one.name,
            one.shows,
            ", ".join((*one.scenarios, *one.also)) or "none",
            len(paper.of_figure(one.name)),
        )
        for one in paper.figures
    ]
    print_table(pd.DataFrame(rows, columns=heads).set_index([*heads[:3]]), Console())


def reproduce(asked: Reproduction) -> int:
    """Run, draw, judge; the exit status. Raises ValueError for bad input."""
    if asked.publish and asked.figures:
        raise ValueError(f"--publish is for all figures, not for {', '.join(asked.figures)} alone")
    paper = load_paper(asked.paper)
    chosen = [paper.figure(name) for name in asked.figures] or list(paper.figures)
    if asked.listing:
        list_figures(paper)
        return 0
    check(paper)
    for figure in chosen:
        if figure.plot:
            plot_of(figure)
    facts, whole = paper.facts_of(chosen), True
    if not asked.no_runs:
        also = () if asked.figures else facts
        runs = runs_of(chosen, also, sensitivity=asked.sensitivity)
        whole = run_scenarios(runs, asked.results)
    conclude(asked, paper, chosen, facts)
    return 0 if whole else FAILED


def conclude(
    asked: Reproduction, paper: Paper, chosen: Sequence[FigureSpec], facts: Sequence[Fact]
) -> None:
    """Draw and judge the runs that are there; write and print what follows."""
    source = Source(asked.results, sensitivity=asked.sensitivity or asked.publish)
    claims = judge(paper, [c for f in chosen for c in paper.of_figure(f.name)], source)
    measured = judge_facts(paper, facts, source, strict=asked.publish)
    judged, measured = with_texts(paper, claims, measured)
    places = {
        kind: published.place(kind, publish=asked.publish, results=asked.results)
        for kind in ("figures", "claims")
    }
    written = draw(paper, chosen, source, places["figures"])
    name = "_".join((paper.name, *asked.figures))
    written.append(places["claims"] / f"{name}.csv")
    write_csv(written[-1], judged)
    if measured:
        written.append(facts_path(places["claims"], name))
        write_facts(written[-1], measured)
    if asked.publish:
        publish_page(paper, source, asked.results)
    for path in written:
        print(f"wrote {published.shown(path)}")
    for shown in for_terminal(judged, measured):
        Console(width=None if sys.stdout.isatty() else 120).print(shown)


def every_scenario() -> list[str]:
    """The scenarios of all papers, once each. Raises ValueError for a wrong claims file."""
    found: dict[str, None] = {}
    for name in papers():
        paper = load_paper(name)
        check(paper)
        facts = paper.facts_of(paper.figures)
        found |= dict.fromkeys(runs_of(paper.figures, facts, sensitivity=True))
    return list(found)


def follow(asked: Reproduction) -> int:
    """Reproduce a paper, or publish all of them; the exit status. Raises ValueError."""
    if asked.paper != ALL:
        return reproduce(asked)
    if asked != Reproduction(ALL, publish=True):
        raise ValueError(f"{ALL} goes with --publish and nothing else")
    whole = run_scenarios(every_scenario(), published.RESULTS)
    for name in papers():
        reproduce(Reproduction(name, publish=True, no_runs=True))
    pages.write_pages()
    return 0 if whole else FAILED
