import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from harness import run
from harness.engines.simulator.loop import Simulator
from harness.paths import ROOT
from harness.runs.cells import Cell, run_cells
from harness.runs.record import TEMPORARY
from harness.tests.support.configured import cells_of, composed, first_cell_of

COMMAND = ROOT / "harness" / "run.py"
SMALL = ("workload.requests=4", "workload.models=[chatglm3-6b]", "hardware.gpu_count=2")


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The real command, started from `folder`, without W&B; nothing may be left there."""
    before = sorted(folder.iterdir())
    done = subprocess.run(
        [sys.executable, str(COMMAND), *arguments, "tracking=none"],
        cwd=folder,
        env=os.environ | {"COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert sorted(folder.iterdir()) == before
    return done


def runs_below(results: Path) -> dict[str, int]:
    """Run folders and when their summaries were written."""
    return {
        str(path.parent.relative_to(results)): path.stat().st_mtime_ns
        for path in results.glob("*/*/summary.json")
    }


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
    assert "simulated seconds, profile a100" in first.stdout
    once = runs_below(results)
    assert len(once) == 1
    again = command(*words, folder=elsewhere)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert runs_below(results) == once


@pytest.mark.slow
def test_a_sweep_runs_every_job_and_leaves_only_runs(tmp_path: Path, elsewhere: Path) -> None:
    results = tmp_path / "results"
    names = ("max_heuristic", "min_heuristic")
    words = ("-m", f"system={','.join(names)}", *SMALL, f"results={results}")
    done = command(*words, folder=elsewhere)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert all(name in done.stdout for name in names)
    once = runs_below(results)
    assert len(once) == 2
    assert {path.name for path in results.iterdir()} == {"adhoc"}
    assert command(*words, folder=elsewhere).returncode == 0
    assert runs_below(results) == once


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("workload.requests=abc",), "workload.requests='abc' is not a whole number"),
        (("-m", "system=max_heuristic,nope"), "No system is called 'nope'; known: "),
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


@pytest.mark.slow
def test_a_cell_that_fails_on_a_worker_is_one_line_too(tmp_path: Path, elsewhere: Path) -> None:
    results, prompts = tmp_path / "results", tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt_tokens": 5}\n{"prompt_tokens": 7\n')
    words = (f"workload.source={prompts}", "workload.requests=2", "+matrix.seed=[0,1]")
    done = command(*words, f"results={results}", folder=elsewhere)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {prompts} line 2 is not JSON: '{{\"prompt_tokens\": 7'\n"
    assert not results.exists()


@pytest.mark.slow
def test_the_folder_of_the_command_is_off_the_path(elsewhere: Path) -> None:
    harness = str(COMMAND.parent)
    code = f"""
import runpy, sys
sys.path.insert(0, {harness!r})
sys.argv = ["run.py", "--version"]
try:
    runpy.run_path({str(COMMAND)!r}, run_name="__main__")
finally:
    print({harness!r} in sys.path, {str(ROOT)!r} in sys.path)
"""
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=elsewhere, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False True"


def modules() -> Iterator[str]:
    for top in ("harness", "baselines", "systems"):
        for folder in ((ROOT / top), *(path for path in (ROOT / top).iterdir() if path.is_dir())):
            yield from (path.stem for path in folder.glob("*.py"))


def test_no_module_hides_one_of_python() -> None:
    names = set(modules())
    assert "run" in names
    assert names & sys.stdlib_module_names == set()


REFUSED = {
    "+typo=1": "No configuration key is called 'typo'; closest: policy.",
    "typo=1": "No configuration key is called 'typo'; closest: policy.",
    "workload.request=1": "No configuration key is called 'workload.request'; closest: workload.r",
    "+workload.typo=1": "workload.typo=1 is not an option of Ensemble",
    "+hardware.typo=1": "No configuration key is called 'hardware.typo'; closest: hardware.gpu",
    "+system.typo=1": "No configuration key is called 'system.typo'; closest: system.",
    "+policy.rule.typo=1": "policy.rule.typo=1 is not an option of ContinuousBatching",
    "~workload.requests": "workload.requests is missing, Ensemble needs it",
    "~system.placement": "system.placement is missing",
    "workload.requests=-5": "workload.requests is -5, it must be positive",
    "workload.output_scale=0": "workload.output_scale is 0, it must be positive",
    "workload.output_scale=nan": "workload.output_scale=nan is not a finite number",
    "workload.models=[vicuna-14b]": "No model is called 'vicuna-14b'; closest: vicuna-13b-v1.5",
    "workload.source=/no/such": "workload.source=/no/such is neither profile, hub nor a file",
    "workload.profile=nope": "No length profile is called 'nope'",
    "hardware.gpu_count=0": "hardware has gpu_count=0 and nvlink_island=2, both must be at least 1",
    "hardware.gpu_count=x": "hardware.gpu_count: Value 'x' of type 'str' could not be converted",
    "hardware.gpu=B300": "No GPU is called 'B300'; known: A100-40G",
    "hardware.memory_share=2": "A memory share lies between 0 and 1, not 2.0.",
    "hardware.profile=nope": "There is no folder of cost profiles ",
    "system=nope": "No system is called 'nope'; known: ",
    "+scenario=nope": "No scenario is called 'nope'",
    "policy.rule.max_num_seqs=x": "policy.rule.max_num_seqs='x' is not a whole number",
    "system.placement.tensor_parallel=[a]": "system.placement.tensor_parallel[0]='a' is not",
    "system.planner_parts=5": "system.planner_parts=5 is not a list",
    "engine._target_=no.such": "engine._target_=no.such names no class",
    "seed=x": "seed: Value 'x' of type 'str' could not be converted to Integer",
    "seed=-1": "seed=-1, it must be at least 0",
    "workers=0": "workers=0, it must be at least 1",
    "tracking=foo": "tracking=foo is none of wandb, none",
    "name=a/b": "name=a/b cannot be the name of a folder of results",
    "matrix.seed=[a]": "matrix.seed is not in the configuration; it can be added as +matrix.seed",
    "+matrix.seed=[a]": "seed: Value 'a' of type 'str' could not be converted to Integer",
    "+matrix.seed=5": "matrix.seed=5 is not a list of values",
    "+matrix.seed=[]": "matrix.seed=[] is not a list of values",
    "+matrix.system=[nope]": "No system is called 'nope'; known: ",
    "+matrix.nope=[1]": "No configuration key is called 'nope'",
    "variant=program": "variant=program is none of paper, code",
    "policy=ssjf_none": "system.placement.rule is a StaticBatching, not ContinuousBatching",
    "skip=5": "skip: Invalid value assigned: int is not a ListConfig",
    "skip=[seed]": "skip holds seed, which is not axes of the matrix with lists of values",
    "skip=[{sed:[0]}]": "No axis of the matrix is called 'sed'",
    "+compare.axis=seed": "compare.reference is missing",
    "+compare={axis:seed,reference:0}": "compare.axis=seed is no axis of the matrix",
    "workload.requests=[": "workload.requests=[: no viable alternative at input '['",
    "hub": "hub: missing EQUAL at '<EOF>'",
}
"""Words on the command line and how the sentence about them begins."""

SERVED_NOWHERE = {
    "hardware.gpu_count=1": "Llama-2-70b-chat-hf fits no plan: 1 GPUs",
    "policy.rule.max_num_seqs=100000": "max_num_seqs is 100000, costs go from 1 to ",
}
"""What only shows when the cell runs."""


def refused(*words: str) -> str:
    """What the command would say."""
    bad = (HydraException, OmegaConfBaseException, ValueError)
    with pytest.raises(bad) as raised, composed(*words) as config:
        run.run(config)
    return run.sentence(raised.value)


@pytest.mark.parametrize("word", REFUSED)
def test_bad_input_is_a_sentence_that_names_it(tmp_path: Path, word: str) -> None:
    said = refused(f"results={tmp_path}", word)
    assert said.startswith(REFUSED[word])
    assert "\n" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", SERVED_NOWHERE)
def test_what_no_engine_can_serve_is_a_sentence(
    tmp_path: Path, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    models = "workload.models=[Llama-2-70b-chat-hf]"
    said = refused(f"results={tmp_path}", models, "workload.requests=4", word)
    assert said.startswith(SERVED_NOWHERE[word])
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")


def test_results_that_cannot_be_written_are_a_sentence() -> None:
    said = refused(*SMALL, "results=/dev/null/x")
    assert said.startswith("could not write the run /dev/null/x/adhoc/")


def test_an_interrupt_has_its_own_code_and_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(**settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hydra.main", interrupted)
    assert run.main() == 130
    assert capsys.readouterr().err == "interrupted; finished cells are kept\n"


@pytest.mark.slow
def test_what_decides_a_result_decides_its_folder(tmp_path: Path) -> None:
    def folder(*words: str) -> str:
        return first_cell_of(*SMALL, *words).folder.name

    same = ("workers=1", "tracking=none", f"results={tmp_path}", "expected_minutes=9", "claims=[x]")
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
        folders.append(first_cell_of(f"workload.source={prompts}").folder.name)
    assert folders[0] == folders[2] != folders[1]


def test_results_are_below_the_project_unless_absolute(tmp_path: Path) -> None:
    assert first_cell_of("results=some/where").folder.parent == ROOT / "some/where/adhoc"
    assert first_cell_of(f"results={tmp_path}", "name=n").folder.parent == tmp_path / "n"


def test_a_key_on_the_command_line_is_no_axis() -> None:
    words = ("+matrix.seed=[0,1]", "+matrix.system=[max_heuristic,min_heuristic]")
    assert [cell.setting for cell in cells_of(*words)] == [
        {"seed": seed, "system": system}
        for seed in (0, 1)
        for system in ("max_heuristic", "min_heuristic")
    ]
    chosen = cells_of(*words, "seed=7", "system=samullm")
    assert [(cell.seed, cell.system.name, cell.setting) for cell in chosen] == [(7, "samullm", {})]


GRID = "+matrix={policy:[vllm,vllm_0_3],predictor:[none,oracle],seed:[0,1]}"


def places(*words: str) -> list[tuple[object, ...]]:
    """The values on the axes of every cell, none of them built."""
    with composed(*words) as config:
        return [tuple(setting.values()) for setting, _ in run.cell_configs(config)]


def test_cells_that_fit_a_pattern_are_left_out() -> None:
    one = "skip=[{policy:[vllm],predictor:[oracle]}]"
    assert places(GRID, one) == [
        ("vllm", "none", 0),
        ("vllm", "none", 1),
        *(("vllm_0_3", predictor, seed) for predictor in ("none", "oracle") for seed in (0, 1)),
    ]


def test_a_pattern_has_several_values_and_there_may_be_several() -> None:
    two = "skip=[{policy:[vllm],predictor:[none,oracle],seed:[1]},{predictor:[oracle]}]"
    left = [("vllm", "none", 0), ("vllm_0_3", "none", 0), ("vllm_0_3", "none", 1)]
    assert places(GRID, two) == left


def test_a_pattern_needs_all_its_axes() -> None:
    """On the command line the predictor is no axis: the cells asked for are kept."""
    one = "skip=[{policy:[vllm],predictor:[oracle]}]"
    both = [("vllm", 0), ("vllm", 1), ("vllm_0_3", 0), ("vllm_0_3", 1)]
    assert places(GRID, one, "predictor=oracle") == both
    assert places(GRID, "skip=[{policy:[vllm]}]", "predictor=oracle") == both[2:]


def test_a_matrix_of_which_nothing_is_left_is_refused() -> None:
    said = refused("+matrix.seed=[0,1]", "skip=[{seed:[0,1]}]")
    assert said == "skip leaves no cell of the matrix"


def test_a_cell_names_the_file_of_every_group() -> None:
    words = ("workload=chats", "workload/lengths=sharegpt_round", "system=fixed")
    (cell,) = cells_of(*words, "+matrix={policy:[vllm],workload/arrivals:[at_once]}")
    assert cell.config["chosen"] == {
        "engine": "simulator",
        "hardware": "a100_80g_8",
        "workload": "chats",
        "workload/arrivals": "at_once",
        "workload/lengths": "sharegpt_round",
        "policy": "vllm",
        "predictor": "none",
        "system": "fixed",
    }
    arrivals = cell.config["workload"]["arrivals"]  # type: ignore[index]
    assert "rate_per_s" not in arrivals


def test_the_names_of_files_do_not_decide_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = first_cell_of(*SMALL)
    monkeypatch.setattr(run, "_chosen", lambda setting: {"policy": "of another name"})
    renamed = first_cell_of(*SMALL)
    assert usual.config["chosen"] != renamed.config["chosen"]
    assert usual.folder == renamed.folder


@pytest.mark.parametrize(("alone", "workers"), [(False, 2), (True, 1)])
def test_an_engine_that_runs_alone_has_one_cell_at_a_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, alone: bool, workers: int
) -> None:
    given: list[int] = []

    def one_by_one(cells: list[Cell], *, workers: int, on_done: Callable[[Cell], None]) -> None:
        given.append(workers)
        run_cells(cells, workers=1, on_done=on_done)

    assert not first_cell_of(*SMALL).engine.runs_alone
    monkeypatch.setattr(Simulator, "runs_alone", alone)
    monkeypatch.setattr(run, "run_cells", one_by_one)
    words = (*SMALL, f"results={tmp_path}", "workers=2", "tracking=none", "+matrix.seed=[0,1]")
    with composed(*words) as config:
        run.run(config)
    assert given == [workers]
    assert len(runs_below(tmp_path)) == 2


@pytest.mark.parametrize(("engine", "alone"), [("vllm", True), ("vllm_dry", False)])
def test_what_measures_runs_alone(engine: str, alone: bool) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    assert first_cell_of(f"engine={engine}").engine.runs_alone is alone


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
    summary = next(tmp_path.glob("*/*/summary.json"))
    leftover = tmp_path / "adhoc" / f"{TEMPORARY}x-999999999"
    leftover.mkdir()
    lines = go("+matrix.seed=[1,0,1]")
    assert lines[-1].strip() == "means over 2 seeds"
    both = runs_below(tmp_path)
    assert len(both) == 2
    assert first in both.items()
    assert not leftover.exists()
    summary.unlink()
    go("+matrix.seed=[0,1]")
    redone = runs_below(tmp_path)
    assert redone.keys() == both.keys()
    assert redone[first[0]] > first[1]


def test_stages_are_not_planned_for_batches_of_whole_requests() -> None:
    with pytest.raises(
        ValueError, match=r"placement\.rule is a StaticBatching, not ContinuousBatching"
    ):
        first_cell_of("policy=fcfs_dynamic")
