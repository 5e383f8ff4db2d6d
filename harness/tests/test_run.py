import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import run
from harness.config.paths import ROOT
from harness.runs.composing import Composer
from harness.tests.support.command import COMMAND, ENSEMBLE, SMALL, command, refused, runs_below
from harness.tests.support.configured import cells_of, composed, first_cell_of


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.mark.slow
def test_a_command_runs_once_and_is_found_again(tmp_path: Path, elsewhere: Path) -> None:
    results = tmp_path / "results"
    words = (*SMALL, f"results={results}")
    first = command(*words, folder=elsewhere)
    assert (first.returncode, "Traceback" in first.stderr) == (0, False)
    assert "simulated seconds, engine vllm-0.3-eager, profile a100" in first.stdout
    once = runs_below(results)
    assert len(once) == 1
    again = command(*words, folder=elsewhere)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert runs_below(results) == once


@pytest.mark.slow
def test_a_sweep_runs_every_job_and_leaves_only_runs(tmp_path: Path, elsewhere: Path) -> None:
    """One that fails stops no other."""
    results = tmp_path / "results"
    few = ["workload=chats", "workload.requests=4", "system=fixed", "policy=vllm_0_3"]
    few += ["policy.rule.max_num_seqs=8", "policy.rule.max_num_batched_tokens=10,4096"]
    done = command("-m", *few, "workers=1", f"results={results}", folder=elsewhere)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "failed: 1 of 1 cells" in done.stderr
    assert len(runs_below(results)) == 1
    assert {path.name for path in results.iterdir()} == {"adhoc"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-m", "system=max_heuristic,nope"), "No system is called 'nope'; known: "),
        (("-m", "seed=range(0,0)"), "there is nothing to run: a range of -m is empty"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, elsewhere: Path, words: tuple[str, ...], said: str
) -> None:
    results = tmp_path / "results"
    done = command(*words, f"results={results}", folder=elsewhere)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {said}")
    assert done.stderr.count("\n") == 1
    assert not results.exists()


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("~compare", "compare is missing"),
        ("+matrix={policy:[vllm,nosuch]}", "No policy is called 'nosuch'; closest: "),
    ],
)
def test_what_no_configuration_has_is_refused(word: str, said: str) -> None:
    assert refused(word).startswith(said)


def modules() -> Iterator[str]:
    for top in ("harness", "baselines", "systems"):
        for folder in ((ROOT / top), *(path for path in (ROOT / top).iterdir() if path.is_dir())):
            yield from (path.stem for path in folder.glob("*.py"))


def test_no_module_hides_one_of_python() -> None:
    names = set(modules())
    assert "run" in names
    assert names & sys.stdlib_module_names == set()


def test_results_that_cannot_be_written_are_a_sentence() -> None:
    """Before anything is computed."""
    said = refused(*SMALL, "results=/dev/null/x")
    assert said == "runs cannot be written to /dev/null/x/adhoc: Not a directory"


@pytest.mark.slow
def test_what_decides_a_result_decides_its_folder(tmp_path: Path) -> None:
    def folder(*words: str) -> str:
        return first_cell_of(*SMALL, *words).folder.name

    same = ("workers=1", "tracking=none", f"results={tmp_path}", "expected_minutes=9")
    assert {folder(word) for word in same} == {folder()}
    other = (
        "seed=1",
        "workload.requests=5",
        "workload.output_scale=2",
        "policy.rule.max_padding_tokens=9",
        "system.placement.keep_replicas=true",
        "hardware.memory_share=0.8",
        "engine.max_num_batched_tokens=9999",
        "system=max_heuristic",
        "record.iterations=true",
    )
    assert len({folder(word) for word in other} | {folder()}) == len(other) + 1


def test_a_changed_data_file_is_another_run(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    folders = []
    for tokens in (5, 6, 5):
        prompts.write_text(f'{{"prompt_tokens": {tokens}}}\n')
        words = (*ENSEMBLE, "workload.requests=1", f"workload.source={prompts}")
        folders.append(first_cell_of(*words).folder.name)
    assert folders[0] == folders[2] != folders[1]


def test_results_are_below_the_project_unless_absolute(tmp_path: Path) -> None:
    assert first_cell_of("results=some/where").folder.parent == ROOT / "some/where/adhoc"
    assert first_cell_of(f"results={tmp_path}", "name=n").folder.parent == tmp_path / "n"


def test_a_cell_names_the_file_of_every_group() -> None:
    words = ("workload=chats", "workload/lengths=sharegpt_round", "system=fixed")
    (cell,) = cells_of(*words, "+matrix={policy:[vllm],workload/arrivals:[at_once]}")
    assert cell.config["chosen"] == {
        "engine": "simulator",
        "hardware": "a100_80g_1",
        "workload": "chats",
        "workload/arrivals": "at_once",
        "workload/lengths": "sharegpt_round",
        "policy": "vllm",
        "predictor": "none",
        "system": "fixed",
        "system/dispatch": "round_robin",
    }
    arrivals = cell.config["workload"]["arrivals"]  # type: ignore[index]
    assert "rate_per_s" not in arrivals


def test_the_names_of_files_do_not_decide_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = first_cell_of(*SMALL)
    monkeypatch.setattr(Composer, "_chosen", lambda self, setting: {"policy": "of another name"})
    renamed = first_cell_of(*SMALL)
    assert usual.config["chosen"] != renamed.config["chosen"]
    assert usual.folder == renamed.folder


@pytest.mark.parametrize(("engine", "alone"), [("vllm", True), ("vllm_dry", False)])
def test_what_measures_runs_alone(engine: str, alone: bool) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    models = ["+engine.models={vicuna-13b-v1.5: tiny}"] if alone else []
    assert first_cell_of(f"engine={engine}", *models).engine.runs_alone is alone


def test_values_of_an_axis_reach_the_cell() -> None:
    one, two = cells_of("+matrix={hardware.gpu_count:[1,8],policy:[vllm]}", "seed=3")[:2]
    assert (one.gpus, two.gpus) == (1, 8)
    assert one.config["policy"]["rule"]["chunked_prefill"] is True  # type: ignore[index]
    assert one.setting == {"hardware.gpu_count": 1, "policy": "vllm"}


def test_a_repeated_matrix_runs_what_is_missing_and_prints_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def go(*words: str) -> list[str]:
        with composed(
            *SMALL, f"results={tmp_path}", "workers=1", "tracking=none", *words
        ) as config:
            run.run(config)
        return capsys.readouterr().out.splitlines()

    go("+matrix.seed=[0]")
    (first,) = runs_below(tmp_path).items()
    lines = go("+matrix.seed=[1,0,1]")
    assert lines[-2].strip().startswith("means over 2 seeds; 4 requests a run; no value of")
    assert lines[-1] == "1 of 2 GPUs were never used"
    both = runs_below(tmp_path)
    assert len(both) == 2
    assert first in both.items()


def test_stages_are_not_planned_for_batches_of_whole_requests() -> None:
    with pytest.raises(
        ValueError, match=r"placement\.rule is a StaticBatching, not ContinuousBatching"
    ):
        first_cell_of(*ENSEMBLE, "policy=fcfs_dynamic")


@pytest.mark.slow
def test_nothing_comes_after_the_last_word() -> None:
    """Neither what libraries do at the end of Python, nor waiting for it."""
    program = (
        "import atexit; from harness.runs import ending; atexit.register(print, 'late');"
        "print('done'); ending.end_process(5)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (5, "done\n")


def test_help_begins_with_how_to_use_it(elsewhere: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(COMMAND), "--help"], cwd=elsewhere, capture_output=True, text=True
    )
    assert done.stdout.startswith("Runs schedulers of LLM serving")
    assert "python harness/run.py policy=" in done.stdout
