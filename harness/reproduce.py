"""Reproduces a paper's figures: `python -m harness.reproduce <paper> [<figure> ...]`.

Runs the scenarios of the figures (by harness/run.py) at the reference setting, draws the figures
and prints a table of their claims: what the paper says, what came out, a verdict. Without a figure
it does so for all of them. `--sensitivity` adds the variations and the conditions of the authors'
program. Figures and verdicts are written below results/local/, or with `--publish`, for all figures
together, where git tracks them. `--no-runs` draws and judges the runs that are there, `--list`
prints the figures. Bad input and missing runs end in one sentence and exit code 2.

`python -m harness.reproduce all --publish` runs the scenarios of every paper with their variations
and the authors' programs, then writes all that is published of them: figures, verdicts, a page per
paper, and the generated parts of README.md and results/pages. Finished cells stay, so the command
can be given again. Measurements (bench, verify, fidelity ...) have commands of their own.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from harness.claims.judge import Source, check, judge, judge_facts
from harness.claims.paper import Fact, FigureSpec, Paper, load_paper, papers
from harness.claims.tables import facts_path, read_csv, read_facts, write_csv, write_facts
from harness.claims.texts import with_texts
from harness.config.hydra_words import word
from harness.config.paths import ROOT
from harness.report import pages
from harness.report.paper_page import for_terminal, page_of
from harness.runs import published
from harness.runs.basis import cost_basis
from harness.runs.ending import by_sigterm, terminate
from harness.runs.pool_worker import end_with_parent
from plots import forest, style
from plots.inputs import Inputs

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
TERMINATED = 128 + signal.SIGTERM
FAILED = 1
"""Exit code where some cells have failed, or where a signal has ended a scenario."""
VARIATIONS = "variations=true"
ALL = "all"
"""In place of the name of a paper: every one."""


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


def run_scenarios(runs: Sequence[str], results: Path) -> int:
    """Run scenarios one after the other, each on all cores; the worst exit status.

    After a status other than 0 and FAILED no further scenario is started. Sentences and progress
    of a scenario are shown, its table is not.
    """
    worst = 0
    for run in runs:
        words = ["harness/run.py", *f"+scenario={run}".split()]
        if results != published.RESULTS:
            words.append(word("results", str(results.resolve())))
        if (status := _status_of(words)) < 0:
            print(f"error: {run} was ended by signal {-status}", file=sys.stderr)
            status = FAILED
        if not goes_on(status):
            return status
        worst = max(worst, status)
    return worst


def _status_of(words: Sequence[str]) -> int:
    """Run a command of Python; its exit status. An interrupt is raised when the command has ended.

    Ctrl-C on a terminal reaches the command as well; SIGTERM is passed on to it.
    """
    child = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        preexec_fn=end_with_parent,
    )
    try:
        return child.wait()
    except KeyboardInterrupt:
        if by_sigterm.is_set():
            child.terminate()
        child.wait()
        raise


def _not_installed(figure: FigureSpec) -> set[str]:
    """Scenarios of a figure that cannot run here, since a module is not installed."""
    return {run for name, runs in figure.needs.items() if not _is_installed(name) for run in runs}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def goes_on(status: int) -> bool:
    """Whether figures are drawn after this status: where some cells failed the others count."""
    return status in (0, FAILED)


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
    table = Table("figure", "shows", "scenarios", "claims", box=None, pad_edge=False)
    for figure in paper.figures:
        runs = ", ".join((*figure.scenarios, *figure.also)) or "none"
        table.add_row(figure.name, figure.shows, runs, str(len(paper.of_figure(figure.name))))
    Console().print(table)


def reproduce(given: argparse.Namespace) -> int:
    """Run, draw, judge; the exit status. Raises ValueError for bad input."""
    if given.publish and given.figures:
        raise ValueError(f"--publish is for all figures, not for {', '.join(given.figures)} alone")
    paper = load_paper(given.paper)
    chosen = [paper.figure(name) for name in given.figures] or list(paper.figures)
    if given.list:
        list_figures(paper)
        return 0
    check(paper)
    for figure in chosen:
        if figure.plot:
            plot_of(figure)
    facts = paper.facts_of(chosen)
    failed = 0
    if not given.no_runs:
        also = () if given.figures else facts
        failed = run_scenarios(runs_of(chosen, also, sensitivity=given.sensitivity), given.results)
        if not goes_on(failed):
            return failed
    conclude(given, paper, chosen, facts)
    return failed


def conclude(
    given: argparse.Namespace, paper: Paper, chosen: Sequence[FigureSpec], facts: Sequence[Fact]
) -> None:
    """Draw and judge the runs that are there; write and print what follows."""
    source = Source(given.results, sensitivity=given.sensitivity or given.publish)
    claims = judge(paper, [c for f in chosen for c in paper.of_figure(f.name)], source)
    measured = judge_facts(paper, facts, source, strict=given.publish)
    judged, measured = with_texts(paper, claims, measured)
    places = {
        kind: published.place(kind, publish=given.publish, results=given.results)
        for kind in ("figures", "claims")
    }
    written = draw(paper, chosen, source, places["figures"])
    name = "_".join((paper.name, *given.figures))
    written.append(places["claims"] / f"{name}.csv")
    write_csv(written[-1], judged)
    if measured:
        written.append(facts_path(places["claims"], name))
        write_facts(written[-1], measured)
    if given.publish:
        publish_page(paper, source, given.results)
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


def publish() -> int:
    """Run, draw, judge and write the pages of all papers; the exit status of the step that fails.

    Raises ValueError for a wrong claims file.
    """
    failed = run_scenarios(every_scenario(), published.RESULTS)
    if not goes_on(failed):
        return failed
    for name in papers():
        if status := main([name, "--publish", "--no-runs"]):
            return status
    pages.write_pages()
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and follow it; the exit status."""
    parser = argparse.ArgumentParser(description="Reproduce a paper's figures.")
    parser.add_argument("paper", help="a folder of systems/ with a claims.py; all of them")
    parser.add_argument("figures", nargs="*", help="names of figures; all of them for none")
    parser.add_argument(
        "--sensitivity", action="store_true", help="run variations and the authors' program too"
    )
    parser.add_argument("--list", action="store_true", help="print the figures")
    parser.add_argument("--no-runs", action="store_true", help="draw and judge the runs there are")
    parser.add_argument(
        "--results", type=Path, default=published.RESULTS, help="where the runs are"
    )
    published.add_publish(parser)
    given = parser.parse_args(arguments)
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        if given.paper == ALL:
            more = (*given.figures, given.list, given.no_runs, given.results != published.RESULTS)
            if not given.publish or any(more):
                raise ValueError(f"{ALL} goes with --publish and nothing else")
            return publish()
        return reproduce(given)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return TERMINATED if by_sigterm.is_set() else INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
