"""One command runs a figure's scenarios, draws it and judges its paper's claims."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

from harness import api, reproduce
from harness.__main__ import main
from harness.claims.effects import Cells, Effect, EffectKind, absolute, ratio
from harness.claims.paper import Fact, FigureSpec, Paper
from harness.runs import published
from harness.runs.cell_lists import write_cells
from harness.runs.composed_cells import Matrix
from harness.runs.failures import FailedCell, Failure
from harness.runs.matrix import Place
from harness.runs.record import write_run
from harness.runs.sweep import Sweep
from harness.tests.support.run_folders import run_with
from plots.inputs import Inputs

HANDED: list[Inputs] = []
SCENARIO = "chatglm_scaling"


def plot(inputs: Inputs) -> Figure:
    """A plot that keeps what it is handed."""
    HANDED.append(inputs)
    return Figure()


def made_up(**changes: str) -> Paper:
    """A paper with two figures that share a scenario, and one claim."""
    named = {"plot": f"{__name__}:plot", "scenario": SCENARIO, "column": "inference_s"} | changes
    paper = Paper(
        name="p",
        title="A paper",
        citation="",
        figures=(
            FigureSpec(
                name="drawn",
                shows="it",
                scenarios=(named["scenario"],),
                code=(f"{SCENARIO} variant=code",),
                plot=named["plot"],
            ),
            FigureSpec(name="again", shows="it", scenarios=(SCENARIO,)),
            FigureSpec(
                name="lost",
                shows="it",
                scenarios=("running_requests",),
                needs={"no_such.module": ["running_requests"]},
                plot=named["plot"],
            ),
        ),
        headline=lambda judged: f"It is {judged['one'].verdict.ours:.1f} times as fast.",
    )

    @paper.claim(
        "one", figure="drawn", where="Fig. 1", says="speed of eight GPUs", quote="", paper=2.0
    )
    def _(cells: Cells) -> Effect:
        eight, one = {"gpu_count": 8}, {"gpu_count": 1}
        return ratio(cells, named["column"], of=one, over=eight, average_over=["requests"])

    return paper


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What harness/run.py is told, which here writes runs."""
    told: list[str] = []

    def run_scenarios(runs: Sequence[str], results: Path) -> bool:
        told.extend(runs)
        for run in runs:
            write_runs(results, "code" if "variant=code" in run else "paper")
        return True

    monkeypatch.setattr(reproduce, "run_scenarios", run_scenarios)
    monkeypatch.setattr(reproduce, "load_paper", lambda name: made_up())
    HANDED.clear()
    return told


def write_runs(results: Path, variant: str = "paper") -> None:
    """Three seeds on one GPU and on eight."""
    places: dict[str, Place] = {}
    for seed in range(3):
        for gpus in (1, 8):
            run = f"{variant}{seed}{gpus}"
            setting = {"hardware.gpu_count": gpus, "workload.requests": 1000, "seed": seed}
            places[run] = Place(setting)
            made = run_with(
                {"inference_s": (1.0 + 0.01 * seed) * (2.0 if gpus == 1 else 1.0)},
                config={"seed": seed, "variant": variant},
                provenance={"costs": {"profile": "gpu"}},
            )
            write_run(results / SCENARIO / run, made)
    write_cells(results / SCENARIO, variant, places, varied=False)


def ask(results: Path, *words: str) -> int:
    """The command on the made-up paper."""
    return main(["reproduce", "p", *words, "--results", str(results)])


def test_a_figure_is_run_drawn_and_judged(
    tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(tmp_path, "drawn") == 0
    assert ran == [SCENARIO]
    (inputs,) = HANDED
    assert (inputs.name, list(inputs.runs), list(inputs.printed)) == ("drawn", [SCENARIO], ["one"])
    assert inputs.runs[SCENARIO]["gpu_count"].tolist() == [1, 8] * 3
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("local/*/*"))
    figures = [f"local/figures/p_drawn.{kind}" for kind in ("pdf", "png")]
    assert written == ["local/claims/p_drawn.csv", *figures]
    lines = capsys.readouterr().out.splitlines()
    assert any("p_drawn.png" in line for line in lines)
    assert any("speed of eight GPUs" in line and "holds" in line for line in lines)


def test_sensitivity_adds_variations_and_the_authors_program(
    tmp_path: Path, ran: list[str]
) -> None:
    assert ask(tmp_path, "drawn", "--sensitivity") == 0
    assert ran == [f"{SCENARIO} variations=true", f"{SCENARIO} variant=code"]
    rows = (tmp_path / "local" / "claims" / "p_drawn.csv").read_text().splitlines()
    assert [row.split(",")[1] for row in rows[1:]] == ["reference", "code"]


def with_facts(name: str = "p") -> Paper:
    """The paper with a fact of the figure's scenario and one of a scenario that is in no figure."""

    def seconds(cells: Cells) -> Effect:
        return absolute(cells, "inference_s", {"gpu_count": 1}, average_over=["requests"])

    paper = made_up()
    here = Fact(says="one GPU", paper=2.0, unit=" s", measure=seconds, scenarios=(SCENARIO,))
    one = Effect(EffectKind.ABSOLUTE, pd.DataFrame({"all": [1.0]}))
    there = replace(here, says="elsewhere", measure=lambda cells: one, scenarios=("routing",))
    paper.facts = (here, there)
    return paper


def test_facts_of_a_figure_are_printed_and_those_of_all_are_run(
    tmp_path: Path,
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(reproduce, "load_paper", with_facts)
    assert ask(tmp_path, "drawn") == 0
    assert ran == [SCENARIO]
    said = capsys.readouterr().out
    assert "one GPU" in said
    assert "elsewhere" not in said
    written = (tmp_path / "local" / "claims" / "facts" / "p_drawn.csv").read_text().splitlines()
    assert [row.split(",")[:5] for row in written[1:]] == [["fact", "one GPU", "", "2 s", "2.02"]]
    ran.clear()
    assert ask(tmp_path) == 0
    assert ran == [SCENARIO, "routing"]
    assert ask(tmp_path, "--publish", "--no-runs") == 2
    assert "no runs of routing: python harness/run.py" in capsys.readouterr().err


def test_all_figures_are_published_and_none_alone(
    tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(tmp_path, "drawn", "--publish") == 2
    said = "error: --publish is for all figures, not for drawn alone\n"
    assert capsys.readouterr().err == said
    assert ran == []
    write_runs(tmp_path, "code")
    assert ask(tmp_path, "--publish") == 0
    assert ran == [SCENARIO]
    assert "It is 2.0 times as fast." in (tmp_path / "pages" / "p.md").read_text()
    assert (tmp_path / "claims" / "p.csv").is_file()
    assert (tmp_path / "figures" / "p_forest.png").is_file()
    assert not (tmp_path / "local").exists()
    assert "lost is not drawn: running_requests cannot run here" in capsys.readouterr().out


def test_runs_that_are_there_are_drawn_without_running(
    tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(tmp_path, "drawn", "--no-runs") == 2
    said = f"no runs of {SCENARIO}: python harness/run.py +scenario={SCENARIO}"
    assert said in capsys.readouterr().err
    write_runs(tmp_path)
    assert ask(tmp_path, "drawn", "--no-runs") == 0
    assert ran == []


@pytest.mark.parametrize(
    ("changes", "figure", "said"),
    [
        ({}, "drwn", "No figure of p is called 'drwn'; closest: drawn."),
        ({"plot": f"{__name__}:plt"}, "drawn", f"drawn: there is no plot {__name__}:plt: "),
        ({"scenario": "chatglm"}, "drawn", "No scenario is called 'chatglm'"),
        ({"column": "inference"}, "drawn", "p one: No figure is called 'inference'"),
    ],
)
def test_a_wrong_name_is_one_sentence_before_anything_runs(
    tmp_path: Path,
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, str],
    figure: str,
    said: str,
) -> None:
    monkeypatch.setattr(reproduce, "load_paper", lambda name: made_up(**changes))
    assert ask(tmp_path, figure) == 2
    assert capsys.readouterr().err.startswith(f"error: {said}")
    assert ran == []


def test_an_unknown_paper_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "samulm"]) == 2
    assert capsys.readouterr().err.startswith("error: No paper is called 'samulm'")


def test_the_list_names_every_figure(
    tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(tmp_path, "--list") == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("drawn", "again", "lost", SCENARIO))
    assert ran == []


def test_scenarios_run_until_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cell that fails is said, and the others go on; bad input ends the command."""
    told: list[dict[str, str]] = []

    def swept(matrix: Matrix) -> Sweep:
        told.append(matrix.composer.given)
        done = Sweep(tmp_path)
        if len(told) == 2:
            lost = FailedCell("r", matrix.places[0], {}, Failure.of(ValueError("no such thing")))
            done.failed.append(lost)
            done.places["r"] = matrix.places[0]
        return done

    monkeypatch.setattr(api, "swept", swept)
    runs = ["routing", "routing variations=true"]
    assert not reproduce.run_scenarios(runs, tmp_path)
    assert "error: no such thing\n" in capsys.readouterr().err
    assert [it.get("variations") for it in told] == [None, "variations=true"]
    assert {it["results"] for it in told} == {f'results="{tmp_path}"'}
    assert reproduce.run_scenarios(runs[:1], published.RESULTS)
    assert "results" not in told[-1]
    with pytest.raises(ValueError, match="closest: routing"):
        reproduce.run_scenarios(["routng", "routing"], tmp_path)
    assert len(told) == 3
