"""One command: `python -m harness COMMAND`; `--help` lists commands, COMMAND --help its options.

Bad input ends in one sentence and exit code 2, what cannot be read or written, and cells that fail,
in 1. `make setup` writes `.venv/bin/harness`, which is the same from any folder and which a shell
completes (`--install-completion`).
"""

import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer.exceptions import TyperException

from harness.config.paths import ROOT
from harness.runs.ending import by_sigterm, end_process, terminate
from harness.runs.published import RESULTS

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
SERVE, COMPARE, PAPERS, LOOK = "Serve", "Compare", "Papers", "What was run"

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich")
results = typer.Typer(no_args_is_help=True, help="What was run: verify, list, index, compare.")
app.add_typer(results, name="results", rich_help_panel=LOOK)

Results = Annotated[Path, typer.Option(help="Folder of results.", file_okay=False)]
Loads = Annotated[list[str] | None, typer.Argument(metavar="[LOAD]...", help="All for none.")]
Scenarios = Annotated[list[str] | None, typer.Argument(metavar="[SCENARIO]...")]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As of harness run.")
]
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


@app.command(rich_help_panel=COMPARE)
def compare(
    trace: Annotated[Path, typer.Argument(help="A recorded load.")],
    more: Words = None,
    *,
    model: Annotated[str, typer.Option(help="config.json of a model, or its name.")],
    gpu: Annotated[str, typer.Option(help="A file of scenarios/hardware.")] = "h100_80g_8",
    policies: Annotated[str, typer.Option(help="Of scenarios/policy, with commas.")] = "",
    reference: Annotated[str, typer.Option(help="What others are compared with.")] = "vllm",
    requests: Annotated[
        int | None,
        typer.Option(min=1, help="Around the busiest minute."),
    ] = None,
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs of a copy.")] = 1,
    data_parallel: Annotated[int, typer.Option(min=1, help="Copies of the model.")] = 1,
    ttft: Annotated[float, typer.Option(help="Seconds to the first token.")] = 1.0,
    tpot: Annotated[float, typer.Option(help="Seconds for a further token, the mean.")] = 0.05,
    itl: Annotated[float | None, typer.Option(help="Seconds of the longest gap.")] = None,
    out: Annotated[Path | None, typer.Option(help="For figures.csv and loads.png.")] = None,
    results: Results = RESULTS,
) -> None:
    """Which scheduler for a recorded load, at which rate, by how much, how sure."""
    from harness.compare import Question, follow

    names = [name for name in policies.split(",") if name]
    load = {"trace": trace.expanduser(), "requests": requests, "more": tuple(more or ())}
    machine = {"gpu": gpu, "tensor_parallel": tensor_parallel, "data_parallel": data_parallel}
    limits = {"ttft_s": ttft, "tpot_s": tpot, "itl_s": itl}
    chosen = {"policies": names, "reference": reference, "results": results.resolve()}
    asked = Question(model=model, **load, **machine, **limits, **chosen)  # type: ignore[arg-type]
    follow(asked, out)


@app.command(rich_help_panel=COMPARE)
def observed(
    log: Annotated[Path, typer.Argument(help="Of a server: harness/workloads/server_logs.py.")],
    more: Words = None,
    *,
    model: Annotated[str, typer.Option(help="config.json of a model, or its name.")],
    gpu: Annotated[str, typer.Option(help="A file of scenarios/hardware.")] = "h100_80g_8",
    tensor_parallel: Annotated[int, typer.Option(min=1, help="GPUs of a copy.")] = 1,
    data_parallel: Annotated[int, typer.Option(min=1, help="Copies of the model.")] = 1,
    folder: Annotated[Path | None, typer.Option(help="For the requests as a trace.")] = None,
    publish: Annotated[str, typer.Option(help="Name below results/plans, for pages/plan.")] = "",
) -> None:
    """How far the simulator is off your own server, and by which factors it comes close."""
    from harness.observed import ObservedServer, follow

    split = {"tensor_parallel": tensor_parallel, "data_parallel": data_parallel}
    load = {"log": log.expanduser(), "folder": folder, "more": tuple(more or ())}
    asked = ObservedServer(model=model, gpu=gpu, **load, **split)  # type: ignore[arg-type]
    follow(asked, publish)


@app.command(rich_help_panel=COMPARE)
def plan(
    trace: Annotated[Path, typer.Argument(help="A recorded load.")],
    more: Words = None,
    *,
    model: Annotated[str, typer.Option(help="config.json of a model, or its name.")],
    slo: Annotated[str, typer.Option(help='As "ttft 1 p95, tpot 0.05 p99, itl 0.5, jct 60 mean".')],
    gpu: Annotated[str, typer.Option(help="Files of scenarios/hardware.")] = "h100_80g_8",
    price: Annotated[str, typer.Option(help="Dollars for an hour of a GPU, of each kind.")] = "",
    most_gpus: Annotated[int, typer.Option(min=1, help="In all.")] = 64,
    policies: Annotated[str, typer.Option(help="Of scenarios/policy, with commas.")] = "",
    dispatch: Annotated[str, typer.Option(help="Of scenarios/system/dispatch, with commas.")] = "",
    tensor_parallel: Annotated[str, typer.Option(help="GPUs of a replica, with commas.")] = "",
    expert_parallel: Annotated[bool | None, typer.Option(help="Of experts; else both.")] = None,
    replicas: Annotated[int | None, typer.Option(min=1, help="So many, not the fewest.")] = None,
    max_num_batched_tokens: Annotated[str, typer.Option(help="With commas.")] = "",
    max_num_seqs: Annotated[str, typer.Option(help="With commas.")] = "",
    requests: Annotated[int | None, typer.Option(min=2, help="Around the busiest minute.")] = None,
    scale: Annotated[str, typer.Option(help="Loads of a curve, as 1,1.5,2,3.")] = "",
    hours: Annotated[bool, typer.Option("--hours", help="Also each hour of the trace.")] = False,
    observed: Annotated[Path | None, typer.Option(help="A server's log; fits the seconds.")] = None,
    observed_at: Annotated[str, typer.Option(help="Its copies x GPUs and KEY=VALUE.")] = "1x1",
    out: Annotated[Path | None, typer.Option(help="For CSV files and the plot.")] = None,
    publish: Annotated[str, typer.Option(help="Name below results/plans, for pages/plan.")] = "",
    results: Results = RESULTS,
) -> None:
    """How many GPUs, in which split and with which scheduler, keep objectives for a load."""
    from harness.capacity.question import question_of
    from harness.plan import follow

    texts = {
        **{"gpus": gpu, "prices": price, "policies": policies, "dispatch": dispatch},
        **{"tensor_parallel": tensor_parallel, "max_num_seqs": max_num_seqs, "loads": scale},
        **{"max_num_batched_tokens": max_num_batched_tokens},
    }
    load = {"trace": trace.expanduser(), "requests": requests, "hours": hours}
    asked = {"model": model, "slo": slo, "more": tuple(more or ()), "results": results.resolve()}
    experts = (False, True) if expert_parallel is None else (expert_parallel,)
    machine = {"most_gpus": most_gpus, "replicas": replicas, "expert_parallel": experts}
    follow(question_of(texts, **load, **asked, **machine), out, observed, observed_at, publish)


@app.command(rich_help_panel=COMPARE)
def league(
    loads: Loads = None,
    winners: Annotated[
        bool, typer.Option("--winners", help="Only who wins where, of the league that is there.")
    ] = False,
    checks: Annotated[
        bool, typer.Option("--checks", help="Only the statements, by the league that is there.")
    ] = False,
    policies: Annotated[
        str | None, typer.Option(help="Of the scenario, with commas; beside them vllm.")
    ] = None,
    publish: Publish = False,
) -> None:
    """Every scheduler of one engine on the same loads, and in which settings the strongest win."""
    from harness.league import write_league
    from harness.league_checks import write_checks
    from harness.winners import write_winners

    if (winners or checks) and (loads or policies):
        raise ValueError("--winners and --checks are of the whole league: name no load, no policy")
    is_whole = not (winners or checks)
    if is_whole:
        write_league(loads or [], policies.split(",") if policies else [], publish=publish)
    if winners or (is_whole and not (loads or policies)):
        write_winners(publish=publish)
    if checks or (is_whole and not (loads or policies)):
        write_checks(publish=publish)


@app.command(rich_help_panel=COMPARE)
def rank(
    policy: Annotated[str, typer.Argument(help="FILE.py, FILE.py:CLASS or FILE.yaml.")],
    loads: Loads = None,
) -> int:
    """Where a policy of your own stands: its checks, its figures over vLLM's, its place."""
    from harness import rank as command

    return command.rank(policy, loads or [])


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


@app.command(rich_help_panel=COMPARE)
def where(
    one: Annotated[str, typer.Argument(help="A policy of scenarios/policy, or a file as of rank.")],
    other: Annotated[str, typer.Argument(help="What it is compared with.")],
    more: Words = None,
    *,
    figure: Annotated[str, typer.Option(help="Of a run.")] = "jct_s_mean",
    gain: Annotated[float, typer.Option(help="Share of the other's that counts.")] = 0.1,
    load: Annotated[str, typer.Option(help="Of scenarios/workload/lengths.")] = "sharegpt",
    trace: Annotated[
        Path | None, typer.Option(help="A file whose lengths are served, in place of a load.")
    ] = None,
    model: Annotated[str, typer.Option(help="config.json of a model, or its name.")] = "",
    gpu: Annotated[str, typer.Option(help="A file of scenarios/hardware.")] = "h100_80g_8",
    settings: Annotated[
        int, typer.Option(min=6, max=12, help="The power of 2 of them: 8 is 256.")
    ] = 8,
) -> None:
    """In which settings one policy gains over another, and by how much."""
    from harness.config.hydra_words import word
    from harness.where import PoliciesAsked, make_where

    words = [f"workload/lengths={load if trace is None else 'recorded'}", f"hardware={gpu}"]
    words += [] if trace is None else [word("workload.lengths.file", str(trace.absolute()))]
    words += [word("workload.model", model)] if model else []
    words += more or []
    make_where(PoliciesAsked(one, other, figure, gain, settings, words))


@app.command(rich_help_panel=PAPERS)
def conditions(
    paper: Annotated[str, typer.Argument(help="A folder of systems/.")],
    claims: Annotated[list[str] | None, typer.Argument(help="All of them for none.")] = None,
    publish: Publish = False,
    cell: Annotated[
        str,
        typer.Option(
            metavar="SPACE:NUMBER",
            help="Serve this cell alone and keep its runs; of a CLAIM its nearest change.",
        ),
    ] = "",
    real: Annotated[
        bool, typer.Option("--real", help="Both sides of a limit on real vLLM, and simulated.")
    ] = False,
) -> None:
    """In which settings a paper's claims come out, and which change of its own is nearest."""
    from harness.boundary import serve_boundaries
    from harness.where import make_maps, serve_cell

    if real and not cell:
        return serve_boundaries(paper, claims or [], publish=publish)
    if cell and (claims or publish or real):
        raise ValueError("--cell serves one cell for all claims of its space and publishes nothing")
    if cell:
        return serve_cell(paper, cell)
    make_maps(paper, claims or [], publish=publish)


@app.command(rich_help_panel=PAPERS)
def report() -> None:
    """Write the pages, README's parts and results/report.html from what is published."""
    from harness import api
    from harness.report import html_page, pages

    pages.write_pages()
    serve = partial(api.sweep, None)
    html_page.write(ROOT, RESULTS / "report.html", serve=serve)


@app.command(rich_help_panel=LOOK)
def why(
    folder: Annotated[Path, typer.Argument(help="Of a run.")],
    request: Annotated[int, typer.Argument(help="Its number.")],
) -> None:
    """Why a request was late: its seconds by part."""
    from harness.why import explained

    explained(folder, request, Console())


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


@results.command("compare")
def compared(
    a: str,
    b: str,
    figures: Annotated[list[str] | None, typer.Option(help="Of a run; once for each.")] = None,
    results: Results = RESULTS,
) -> None:
    """Figures of A over those of B, paired by seed, with 95% intervals.

    A and B are PLACE or PLACE:KEY=VALUE,...: a scenario or a run, and which of its runs.
    """
    from harness import results as command

    command.compare(results, a, b, figures or [])


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow a command line; the exit status."""
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        return int(app(arguments, prog_name="harness", standalone_mode=False) or 0)
    except TyperException as error:
        said = getattr(error, "format_message", error.__str__)()
        print(f"error: {said}", file=sys.stderr)
        return REFUSED
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except (KeyboardInterrupt, typer.Abort):
        return 128 + signal.SIGTERM if by_sigterm.is_set() else INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    end_process(main())
