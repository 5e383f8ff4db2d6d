"""One command: `python -m harness COMMAND`; `--help` lists commands, COMMAND --help its options.

Bad input ends in one sentence and exit code 2, what cannot be read or written, and cells that fail,
in 1. `make setup` writes `.venv/bin/harness`, which is the same from any folder and which a shell
completes (`--install-completion`).
"""

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.console import Console

from harness.config.paths import ROOT
from harness.runs.ending import by_sigterm, terminate
from harness.runs.published import RESULTS

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
SERVE, COMPARE, PAPERS, LOOK = "Serve", "Compare", "Papers", "What was run"

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
results = typer.Typer(no_args_is_help=True, help="What was run: verify, list, index, compare.")
app.add_typer(results, name="results", rich_help_panel=LOOK)

Results = Annotated[Path, typer.Option(help="Folder of results.", file_okay=False)]
Scenarios = Annotated[list[str] | None, typer.Argument(metavar="[SCENARIO]...")]
Publish = Annotated[
    bool,
    typer.Option("--publish", help="Write what git tracks, not results/local/."),
]


@app.command(
    rich_help_panel=SERVE,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def run(context: typer.Context) -> None:
    """Serve a scenario, or what words of Hydra say: GROUP=FILE, KEY=VALUE, +scenario=NAME."""
    from harness import run as command

    sys.argv = ["harness run", *context.args]
    command.run_and_end()


@app.command(rich_help_panel=PAPERS)
def reproduce(
    paper: Annotated[str, typer.Argument(help="A folder of systems/, or all with --publish.")],
    figures: Annotated[list[str] | None, typer.Argument(help="All of them for none.")] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Variations and the authors' program, too.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="Print the figures.")] = False,
    no_runs: Annotated[
        bool, typer.Option("--no-runs", help="Draw and judge the runs that are there.")
    ] = False,
    results: Results = RESULTS,
    publish: Publish = False,
) -> int:
    """Run the scenarios of a paper's figures, draw them and judge its claims."""
    from harness.reproduce import Reproduction, follow

    names = tuple(figures or ())
    return follow(
        Reproduction(
            paper,
            names,
            sensitivity=sensitivity,
            listing=listing,
            no_runs=no_runs,
            results=results,
            publish=publish,
        )
    )


@app.command(rich_help_panel=PAPERS)
def report() -> None:
    """Write the pages, README's parts and results/report.html from what is published."""
    from harness.report import html_page, pages

    pages.write_pages()
    html_page.write(ROOT, RESULTS / "report.html")


@app.command(rich_help_panel=LOOK)
def why(
    folder: Annotated[Path, typer.Argument(help="Of a run.")],
    request: Annotated[int, typer.Argument(help="Its number.")],
) -> None:
    """Why a request was late: its seconds by part."""
    from harness.why import explained

    Console().print(explained(folder, request))


@results.command()
def verify(scenarios: Scenarios = None, results: Results = RESULTS) -> int:
    """Every run folder against its manifest; exit code 1 where one is not as it was written."""
    from harness import results as command

    return command.verify(results, scenarios or [])


@results.command("list")
def listed(scenarios: Scenarios = None, results: Results = RESULTS) -> None:
    """Scenario, run, setting, engine, program and date."""
    from harness import results as command

    command.listed(results, scenarios or [])


@results.command()
def index(scenarios: Scenarios = None, results: Results = RESULTS) -> None:
    """Write RESULTS/index.parquet: a row per run with its configuration, figures, provenance."""
    from harness import results as command

    command.index(results, scenarios or [])


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow a command line; the exit status."""
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        return int(app(arguments, prog_name="harness", standalone_mode=False) or 0)
    except click.ClickException as error:
        print(f"error: {error.format_message()}", file=sys.stderr)
        return REFUSED
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except (KeyboardInterrupt, click.Abort):
        return 128 + signal.SIGTERM if by_sigterm.is_set() else INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
