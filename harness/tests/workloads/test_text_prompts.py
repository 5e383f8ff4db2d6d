"""Requests with their text from a file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.workloads.arrivals import Gamma
from harness.workloads.text_prompts import TextPrompts, conversation


def written(folder: Path, kind: str, rows: dict[str, list[Any]]) -> Path:
    """The rows as a file of this kind."""
    path = folder / f"prompts.{kind}"
    frame = pd.DataFrame(rows)
    if kind == "parquet":
        frame.to_parquet(path)
    elif kind == "csv":
        frame.to_csv(path, index=False)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")))
    return path


def workload_factory(path: Path, **changes: Any) -> TextPrompts:
    """Two requests to a small model."""
    usual: dict[str, Any] = {
        "model": "tiny",
        "requests": 2,
        "arrivals": Gamma(rate_per_s=1.0, burstiness=1.0, sorted_gaps=False),
        "max_output_tokens": 50,
        "starts_s": 0.0,
    }
    return TextPrompts(file=str(path), **(usual | changes))


ROWS: dict[str, list[Any]] = {
    "prompt": ["one two three", "four", "five six"],
    "response_tokens": [7, 80, 9],
}


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_texts_go_with_their_lengths(tmp_path: Path, kind: str) -> None:
    made = workload_factory(written(tmp_path, kind, ROWS), requests=3)
    load = made.build(0)
    truth = dict(zip(ROWS["prompt"], [7, 50, 9], strict=True))  # 80 ends at the limit
    assert {t: int(n) for t, n in zip(load.texts, load.output_tokens, strict=True)} == truth
    assert list(made.files.values()) == list(load.datasets.values())
    assert (np.diff(load.arrival_s) > 0).all()
    assert not hasattr(load.facts(0), "text")
    assert made.build(0).texts == load.texts
    assert [made.build(seed).texts for seed in range(5)] != [load.texts] * 5


def test_a_conversation_is_one_text(tmp_path: Path) -> None:
    rows: dict[str, list[Any]] = {"prompt": [["Hi", "Hello!", "Bye"]], "response_tokens": [3]}
    rows["prompt_tokens"] = [11]
    for kind in ("parquet", "jsonl"):
        load = workload_factory(written(tmp_path, kind, rows), requests=1).build(0)
        assert load.texts == ("Hi\nHello!\nBye",) == (conversation(rows["prompt"][0]),)
        assert load.prompt_tokens.tolist() == [11]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"prompt": ["a", "b"]}, "has no column response_tokens, but prompt"),
        ({"text": ["a"], "response_tokens": [1]}, "has no column prompt"),
        ({"prompt": ["a", "b"], "response_tokens": [3, 0]}, "row 2: response_tokens is 0"),
        ({"prompt": ["a", ""], "response_tokens": [3, 4]}, "row 2: prompt is ''"),
        ({"prompt": ["a"], "response_tokens": [3]}, "has 1 prompts, 2 were asked for"),
    ],
)
def test_a_corrupt_file_is_a_sentence(tmp_path: Path, rows: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        workload_factory(written(tmp_path, "parquet", rows))


def test_a_missing_file_and_a_wrong_number_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"workload\.file=.* is no file"):
        workload_factory(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"workload\.requests is 0"):
        workload_factory(written(tmp_path, "csv", ROWS), requests=0)
