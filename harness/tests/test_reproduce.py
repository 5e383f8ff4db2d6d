"""One command runs a figure's scenarios, draws it and judges its paper's claims."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure
from rich.table import Table

from harness import reproduce
from harness.lanes import Job
from harness.runs.cell_lists import write_cells
from harness.runs.matrix import Place
from harness.runs.record import write_run
from harness.tests.support.claims import toy_check, words
from plots.inputs import Inputs

HANDED: list[Inputs] = []
RUNS = {"paper": ["toy", "toy_more"], "code": ["toy variant=code"]}


def plot(inputs: Inputs) -> Figure:
    """A plotter that keeps what it is handed."""
    HANDED.append(inputs)
    if any(rows.empty for rows in inputs.runs.values()):
        raise ValueError("no runs of toy are there")
    return Figure()


def table(inputs: Inputs) -> Table:
    """A plotter whose figure is a table."""
    return Table(str(inputs.tables["count"]))


def count(claims: dict[str, Any]) -> int:
    """Worked out from claims alone."""
    return len(claims) + 41


def length(folder: Path) -> float:
    """A figure of a run."""
    return float(len(folder.name))


FIGURES: dict[str, Any] = {
    "drawn": {
        "runs": RUNS,
        "plotter": f"{__name__}:plot",
        "where": {"config.seed": 1},
        "derive": {"length": f"{__name__}:length"},
        "claims": ["p.one"],
    },
    "again": {"runs": {"paper": ["toy"]}},
    "printed": {
        "plotter": f"{__name__}:table",
        "tables": {"count": f"{__name__}:count"},
        "claims": ["p.one"],
    },
    "lost": {
        "runs": {"paper": ["real", "toy"]},
        "needs": {"no_such.module": ["real"]},
        "plotter": f"{__name__}:plot",
    },
}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Where a paper p has figures, one claim and no runs."""
    HANDED.clear()
    (tmp_path / "claims" / "p").mkdir(parents=True)
    figures = {name: {"shows": "it", "minutes": 1} | said for name, said in FIGURES.items()}
    content = {"variants": ["paper"], "figures": figures}
    written = yaml.safe_dump(content, sort_keys=False)
    (tmp_path / "claims" / "p" / "figures.yaml").write_text(written)
    claim = words(id="p.one", paper=[1, 2], check=toy_check())
    (tmp_path / "claims" / "p.yaml").write_text(yaml.safe_dump({"claims": [claim]}))
    return tmp_path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What harness/run.py is told, which here writes two runs."""
    told: list[str] = []

    def run_all(jobs: Sequence[Job], *, lanes: int, goes_on: Callable[[int], bool]) -> int:
        told.extend(job.name for job in jobs)
        for job in jobs:
            write_runs(Path(scenario_words(job)[-1]), job.name.split()[0])
        return 3 if any("broken" in " ".join(scenario_words(job)) for job in jobs) else 0

    def scenario_words(job: Job) -> list[str]:
        words = [word for word in job.words_with(1) if word.startswith("results=")]
        return [word.removeprefix("results=").strip("'") for word in words]

    monkeypatch.setattr(reproduce, "run_all", run_all)
    return told


def write_runs(results: Path, scenario: str) -> None:
    """Two seeds of a scenario."""
    for seed in (0, 1):
        write_run(
            results / scenario / f"run{seed}",
            config={"seed": seed, "variant": "paper"},
            provenance={"code": "c", "started": "t", "costs": {"profile": "gpu"}},
            requests=pd.DataFrame({"id": [0]}),
            gpu=pd.DataFrame({"gpu": [0]}),
            iterations=None,
            summary={"end_to_end_s": 1.0},
        )
    places = {run: Place({}) for run in ["run0", "run1"]}
    write_cells(results / scenario, "paper", places, varied=True)


def ask(results: Path, *words: str) -> int:
    """The command on the made-up paper."""
    return reproduce.main(["p", *words, "--results", str(results)])


def test_a_figure_is_run_drawn_and_judged(results: Path, ran: list[str]) -> None:
    assert ask(results, "drawn") == 0
    assert ran == ["toy", "toy_more"]
    written = sorted(str(path.relative_to(results)) for path in results.glob("local/*/*"))
    assert written == [
        "local/claims/p_drawn_verdicts.json",
        "local/figures/p_drawn.pdf",
        "local/figures/p_drawn.png",
    ]
    (inputs,) = HANDED
    assert (inputs.name, list(inputs.runs)) == ("drawn", ["toy", "toy_more"])
    assert inputs.runs["toy"]["config.seed"].tolist() == [1]
    assert inputs.runs["toy"]["length"].tolist() == [4.0]
    assert inputs.printed["p.one"]["paper"] == [1, 2]
    assert not (results / "claims" / "p_verdicts.json").exists()


def test_all_figures_are_published_and_none_alone(
    results: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(results, "drawn", "--publish") == 2
    said = "error: --publish is for all figures, not for drawn alone\n"
    assert capsys.readouterr().err == said
    assert ran == []
    assert ask(results, "--publish") == 0
    assert (results / "claims" / "p_verdicts.json").is_file()
    assert (results / "figures" / "p_drawn.png").is_file()
    assert not (results / "local").exists()


def test_a_figure_shows_its_own_claims_beside_the_published_verdicts(
    results: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    published = [{"id": "p.one", "verdict": "reproduced"}, {"id": "p.two", "verdict": "not run"}]
    (results / "claims" / "p_verdicts.json").write_text(json.dumps(published))
    assert ask(results, "drawn") == 0
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line.split("\N{BOX DRAWINGS LIGHT VERTICAL}") for line in lines if " p." in line]
    cells = [cell.strip() for cell in row]
    assert cells[1:-1] == ["p.one", "1 to 2", "", "not run", "reproduced"]


def test_a_paper_runs_what_its_figures_share_once(
    results: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(results) == 0
    assert ran == ["toy", "toy_more"]
    assert [inputs.name for inputs in HANDED] == ["drawn"]
    said = capsys.readouterr().out
    assert "42" in said
    assert "lost is kept as it is: real cannot run here" in said


def test_another_variant_is_run_and_judged_alone(results: Path, ran: list[str]) -> None:
    assert ask(results, "drawn", "--variant", "code") == 0
    assert ran == ["toy variant=code"]
    assert HANDED == []
    assert [path.name for path in (results / "local" / "claims").iterdir()] == [
        "p_drawn_verdicts_code.json"
    ]


def test_drawing_alone_runs_and_judges_nothing(
    results: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(results, "drawn", "--draw-only") == 2
    assert capsys.readouterr().err == "error: no runs of toy are there\n"
    for scenario in ("toy", "toy_more"):
        write_runs(results, scenario)
    assert ask(results, "drawn", "--draw-only") == 0
    assert ran == []
    assert (results / "local" / "figures" / "p_drawn.png").is_file()
    assert not (results / "local" / "claims").exists()


def test_what_has_run_is_drawn_and_judged_without_running(results: Path, ran: list[str]) -> None:
    for scenario in ("toy", "toy_more"):
        write_runs(results, scenario)
    assert ask(results, "drawn", "--no-runs") == 0
    assert ran == []
    assert (results / "local" / "figures" / "p_drawn.png").is_file()
    assert (results / "local" / "claims" / "p_drawn_verdicts.json").is_file()


def test_a_run_that_fails_ends_it(results: Path, ran: list[str]) -> None:
    broken = results.rename(results.with_name("broken"))
    assert ask(broken, "drawn") == 3
    assert HANDED == []
    assert not (broken / "local").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("q",), "error: there are no figures of q; there are those of p\n"),
        (
            ("p", "drwn"),
            "error: there is no figure drwn; there are drawn, again, printed, lost\n",
        ),
    ],
)
def test_an_unknown_name_is_one_sentence(
    results: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert reproduce.main([*words, "--results", str(results)]) == 2
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"claims": ["p.on"]}, "drawn: No claim is called 'p.on'; closest: p.one."),
        ({"plotter": f"{__name__}:plt"}, f"there is no {__name__}:plt: "),
        ({"derive": {"x": f"{__name__}:HANDED"}}, f"{__name__}:HANDED is no function"),
    ],
)
def test_what_a_figure_names_is_looked_for_before_anything_runs(
    results: Path,
    ran: list[str],
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    said: str,
) -> None:
    path = results / "claims" / "p" / "figures.yaml"
    content = yaml.safe_load(path.read_text())
    content["figures"]["drawn"] |= changes
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    assert ask(results, "drawn") == 2
    assert capsys.readouterr().err.startswith(f"error: {said}")
    assert ran == []


def test_a_list_says_what_there_is(
    results: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(results, "--list") == 0
    said = capsys.readouterr().out
    assert all(name in said for name in (*FIGURES, *RUNS["paper"]))
    assert ran == []
