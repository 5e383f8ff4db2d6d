"""Batches of measured and simulated runs, compared by their logs."""

from pathlib import Path

import pandas as pd

from harness.engines.state import LOG_COLUMNS
from harness.report.real_texts import same_batches_text
from harness.tools.fidelity.real_runs import (
    COMPARED,
    compared_batches,
    every_iteration,
    first_difference,
)

STEADY = {"iterations": 3, "decode_requests": 2, "context_tokens": 30, "longest_tokens": 20}
ALONE = [
    {"decode_requests": 2, "context_tokens": 30 + 2 * i, "longest_tokens": 20 + i}
    for i in (0, 1, 2)
]
PROMPT = {"prefill_requests": 2, "prefill_tokens": 28, "prefill_attended": 400}


def log(*rows: dict[str, int]) -> pd.DataFrame:
    """Iterations with these values, zeros else; KV held is what is attended."""
    given = [{"iterations": 1, "held_tokens": row.get("context_tokens", 28)} | row for row in rows]
    return pd.DataFrame(given, columns=LOG_COLUMNS).fillna(0.0)


def folder(path: Path, frame: pd.DataFrame, answers: list[int]) -> str:
    """A run's folder with a log and requests."""
    path.mkdir()
    frame.to_parquet(path / "iterations.parquet")
    requests = pd.DataFrame({"request": range(len(answers)), "output_tokens": answers})
    requests.to_parquet(path / "requests.parquet")
    return str(path)


def runs(folders: list[str]) -> pd.DataFrame:
    """Two policies, each measured and simulated with one seed."""
    engines = ["measured on x", "simulated"] * 2
    return pd.DataFrame(
        {"engine": engines, "folder": folders, "policy": list("aabb"), "config.seed": 0}
    )


def test_a_run_of_equal_iterations_is_the_same_as_each_alone() -> None:
    steady, alone = every_iteration(log(PROMPT, STEADY)), every_iteration(log(PROMPT, *ALONE))
    assert steady.shape == (4, len(COMPARED))
    assert first_difference(steady, alone) == 4
    assert first_difference(steady, alone[:-1]) == 3
    assert first_difference(steady, every_iteration(log(PROMPT, ALONE[0], ALONE[0]))) == 2


def test_batches_are_compared_by_policy(tmp_path: Path) -> None:
    logs = [log(PROMPT, *ALONE), log(PROMPT, STEADY), log(PROMPT, *ALONE), log(PROMPT, ALONE[1])]
    folders = [folder(tmp_path / str(n), it, [3, 4]) for n, it in enumerate(logs[:3])]
    folders.append(folder(tmp_path / "3", logs[3], [3, 5]))
    same, other = compared_batches(runs(folders), "policy")
    assert same == {
        "system": "a", "seeds": 1, "equal": 1, "iterations": 4, "until": 4, "exact": True
    }  # fmt: skip
    assert (other["equal"], other["until"], other["exact"]) == (0, 1, False)
    assert same_batches_text(same) == (
        "a runs the same batches in 1 of 1 seeds, in 4 of 4 iterations up to the first that "
        "differs; the same answer lengths"
    )


def test_runs_without_logs_are_left_out(tmp_path: Path) -> None:
    assert compared_batches(runs([str(tmp_path)] * 4), "policy") == []
