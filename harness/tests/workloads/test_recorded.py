"""Recorded requests: every published format, what becomes of them, and damaged files."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness import inputs
from harness.predictors.recorded import Recorded
from harness.tests.support.data import DATA
from harness.workloads.recorded import Trace
from harness.workloads.workload import Workload

MODEL, OTHER = "vicuna-13b-v1.5", "opt-1.3b"

HEADER = "arrival_s,prompt_tokens,output_tokens"
PUBLISHED = {
    "azure.csv": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    ),
    "azure2024.csv": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,374,44\n2024-05-10 00:00:04.324509+00:00,396,109\n"
    ),
    "mooncake.jsonl": (
        '{"timestamp": 0, "input_length": 374, "output_length": 44, "hash_ids": [0, 1]}\n'
        '{"timestamp": 4314.579, "input_length": 396, "output_length": 109, "hash_ids": [0]}\n'
    ),
    "burst.csv": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,374,44,418,Conversation log\n6,GPT-4,300,0,300,API log\n"
        "9.314579,GPT-4,396,109,505,Conversation log\n"
    ),
    "servegen.csv": (
        "request_id,timestamp,input_tokens,output_tokens\n0,0.0,374,44\n1,4.314579,396,109\n"
    ),
    "own.csv": f"{HEADER}\n0,374,44\n4.314579,396,109\n",
}


def trace(file: Path, **changes: Any) -> Trace:
    settings: dict[str, Any] = {
        "model": MODEL,
        "services": {},
        "requests": None,
        "window": None,
        "rate_scale": 1.0,
        "max_output_tokens": None,
        "too_long": "refuse",
        "starts_s": 0.0,
    }
    return Trace(file=str(file), **{**settings, **changes})


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


@pytest.fixture
def own(written: Callable[[str, str], Path]) -> Callable[..., Path]:
    """A file of our own columns, of rows that differ from a plain one."""

    def write(*rows: dict[str, object]) -> Path:
        plain = {"arrival_s": 0.0, "prompt_tokens": 10, "output_tokens": 5}
        return written("own.jsonl", "\n".join(json.dumps({**plain, **row}) for row in rows))

    return write


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_traces_are_read_as_they_are(
    name: str, written: Callable[[str, str], Path]
) -> None:
    load = trace(written(name, PUBLISHED[name])).build(0)
    assert load.arrival_s == pytest.approx([0.0, 4.314579], abs=1e-9)
    assert load.prompt_tokens.tolist() == [374, 396]
    assert load.output_tokens.tolist() == [44, 109]
    assert list(load.datasets) == [str(trace(written(name, PUBLISHED[name]))._path)]


def test_a_batch_of_servegen_comes_at_once(written: Callable[[str, str], Path]) -> None:
    row = (
        '{"request_id": %d, "type": "text", "input_length": 61, "output_length": 9, "duration": 1}'
    )
    load = trace(written("trace_d.jsonl", f"{row % 0}\n{row % 1}\n")).build(0)
    assert load.arrival_s.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("file", "count", "mean"),
    [("azure_llm_2023/conv.csv.gz", 19366, 211), ("mooncake/synthetic.csv.gz", 3993, 149)],
)
def test_stored_samples_are_read(file: str, count: int, mean: float) -> None:
    """Numbers of requests and mean answers as their authors state them."""
    if not (DATA / file).is_file():
        pytest.skip(f"the measurements are not in {DATA / file}")
    load = trace(DATA / file, model="Mixtral-8x7B-v0.1", too_long="cut", max_output_tokens=2000)
    built = load.build(0)
    assert len(built) == count
    assert built.output_tokens.mean() == pytest.approx(mean, rel=0.01)


def test_columns_of_ones_own_reach_the_requests(own: Callable[..., Path]) -> None:
    """The second and third request are of one application, whose number tells nothing ahead."""
    load = trace(
        own(
            {"service": MODEL, "tenant": "b", "app": 9, "deadline_s": 4.0, "predicted_tokens": 7},
            {"arrival_s": 1, "service": "chat", "tenant": "a", "app": 3, "predicted_tokens": 2.4},
            {"arrival_s": 2, "service": MODEL, "tenant": "b", "app": 3, "predicted_tokens": 0.2},
        ),
        model=None,
        services={"chat": OTHER},
    ).build(0)
    facts = [load.facts(row) for row in range(3)]
    assert [str(it.service) for it in facts] == [MODEL, OTHER, MODEL]
    assert [it.tenant for it in facts] == ["b", "a", "b"]
    assert [it.app for it in facts] == [0, 1, 1]
    assert [it.deadline_s for it in facts] == [4.0, None, None]
    predictor = Recorded().of(load, 0)
    assert [predictor.predict(it)[0].samples_tokens for it in facts] == [(7,), (2,), (1,)]


def test_texts_stand_for_prompt_tokens(written: Callable[[str, str], Path]) -> None:
    file = written("t.jsonl", '{"arrival_s": 0, "output_tokens": 3, "prompt": "a b c d e"}\n')
    load = trace(file).build(0)
    assert load.texts == ("a b c d e",)
    assert load.prompt_tokens.tolist() == [7]  # 1.40554 tokens a word


def test_a_window_counts_anew_and_a_scale_makes_dense(own: Callable[..., Path]) -> None:
    """Of requests at 0, 2, 4 and 6 s those in [2, 6) at twice the rate: at 0 and 1 s."""
    file = own(*({"arrival_s": at, "deadline_s": at + 3} for at in (0, 2, 4, 6)))
    load = trace(file, window=[2, 6], rate_scale=2.0).build(0)
    assert load.arrival_s.tolist() == [0.0, 1.0]
    assert load.deadline_s.tolist() == [3.0, 4.0]
    assert len(trace(file, requests=3).build(0)) == 3


def test_limits_say_nothing_of_true_lengths(own: Callable[..., Path]) -> None:
    def limits(outputs: list[int], **changes: Any) -> list[int]:
        load = trace(own(*({"output_tokens": n} for n in outputs)), **changes).build(0)
        return [int(limit) for limit in load.max_output_tokens]

    assert limits([5, 900]) == limits([900, 5]) == [4086, 4086]
    assert limits([5, 900], max_output_tokens=1000) == [1000, 1000]


def test_what_is_too_long_is_refused_cut_or_dropped(own: Callable[..., Path]) -> None:
    file = own({}, {"prompt_tokens": 5000}, {"output_tokens": 200})
    with pytest.raises(ValueError, match=r"row 2: 5000 prompt and 5 output tokens exceed") as said:
        trace(file, max_output_tokens=100).build(0)
    assert "\n" not in str(said.value)

    def lengths(load: Workload) -> list[tuple[int, int]]:
        return list(zip(load.prompt_tokens.tolist(), load.output_tokens.tolist(), strict=True))

    cut = trace(file, max_output_tokens=100, too_long="cut").build(0)
    assert lengths(cut) == [(10, 5), (3996, 5), (10, 100)]
    dropped = trace(file, max_output_tokens=100, too_long="drop").build(0)
    assert lengths(dropped) == [(10, 5)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [{"arrival_s": 2}, {"arrival_s": 1}],
            "row 2: arrival_s 1 is before that of the row ahead",
        ),
        ([{"arrival_s": -1}], "row 1: arrival_s -1 must be at least 0"),
        ([{}, {"arrival_s": None}], "row 2: arrival_s is missing"),
        ([{"arrival_s": "noon"}], "row 1: arrival_s 'noon' is no number"),
        ([{"arrival_s": True}], "row 1: arrival_s True is no number"),
        ([{"arrival_s": [1]}], r"row 1: arrival_s \[1\] is no number"),
        ([{}, {"prompt_tokens": 0}], "row 2: prompt_tokens 0 must be at least 1"),
        ([{"prompt_tokens": 1.5}], "row 1: prompt_tokens 1.5 is no number of tokens"),
        ([{"output_tokens": -3}], "row 1: output_tokens -3 must be at least 1"),
        ([{"output_tokens": 1e30}], "row 1: output_tokens 1e[+]30 is no number of tokens"),
        ([{"id": 7}, {"id": 8}, {"id": 7}], "row 3: id 7 came before"),
        ([{"tenant": "a"}, {}], "row 2: tenant is missing"),
        ([{"deadline_s": 0.0}], "row 1: deadline_s 0.0 is no later than the arrival"),
        ([{"predicted_tokens": "x"}], "row 1: predicted_tokens 'x' is no number"),
    ],
)
def test_a_damaged_row_is_one_sentence_with_file_and_row(
    rows: list[dict[str, object]], said: str, own: Callable[..., Path]
) -> None:
    file = own(*rows)
    with pytest.raises(ValueError, match=said) as raised:
        trace(file)
    assert str(raised.value).startswith(f"{file} row ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.csv",
            "arrival_s,tokens\n1,2\n",
            "has the columns arrival_s, tokens, those of no trace",
        ),
        ("a.csv", f"{HEADER},prompt_tokens\n0,1,1,1\n", "has the column prompt_tokens twice"),
        ("a.csv", f"{HEADER}\n", "has no rows"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1\n", "TIMESTAMP 'noon' is no"),
        ("a.jsonl", "{\n", "line 1 is not JSON"),
        ("a.parquet", "junk", "cannot be read"),
    ],
)
def test_what_is_no_trace_says_so(
    name: str, text: str, said: str, written: Callable[[str, str], Path]
) -> None:
    file = written(name, text)
    with pytest.raises(ValueError, match=said) as raised:
        trace(file)
    assert str(raised.value).startswith(str(file))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": None}, "names no service: say workload.model=NAME"),
        ({"model": "vicuna-14b"}, "No model is called 'vicuna-14b'"),
        ({"window": [5, 6]}, r"workload.window=\[5, 6\] has no request of .* at 0 to 0 s"),
        ({"window": [3, 1]}, "workload.window=.* must be two seconds"),
        ({"requests": 2}, "has 1 requests in the window, workload.requests=2"),
        ({"rate_scale": 0.0}, "workload.rate_scale is 0.0, it must be positive"),
        ({"too_long": "keep"}, "workload.too_long=keep is none of refuse, cut, drop"),
        ({"max_output_tokens": 4096}, "workload.max_output_tokens=4096 leaves no prompt"),
    ],
)
def test_settings_that_no_workload_can_be_made_of(
    changes: dict[str, Any], said: str, own: Callable[..., Path]
) -> None:
    with pytest.raises(ValueError, match=said):
        trace(own({}), **changes).build(0)


def test_an_unknown_service_names_its_row(own: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match=r"row 2: service GPT-4 is no model; say .*services=\{GPT"):
        trace(own({"service": MODEL}, {"service": "GPT-4"}), model=None)


def test_a_file_that_changes_meanwhile_is_noticed(own: Callable[..., Path]) -> None:
    recipe = trace(own({}))
    own({"prompt_tokens": 11})
    recipe.build(0)
    assert inputs.changed(recipe.files) == [*recipe.files]


def test_a_predictor_of_what_was_not_predicted_is_refused(own: Callable[..., Path]) -> None:
    load = trace(own({"predicted_tokens": 3}, {"predicted_tokens": None})).build(0)
    with pytest.raises(ValueError, match="lacks predicted_tokens; request 1 is the first"):
        Recorded().of(load, 0)
    with pytest.raises(ValueError, match=r"lacks predicted_tokens$"):
        Recorded().of(trace(own({})).build(0), 0)


def test_parquet_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    columns = {"arrival_s": [0.0, 1.0], "prompt_tokens": [3, 4], "output_tokens": [1, 2]}
    pd.DataFrame(columns).to_parquet(file)
    load = trace(file).build(7)
    assert np.array_equal(load.prompt_tokens, [3, 4])


@pytest.mark.parametrize("kept", [slice(0, 20), slice(None, -9)])
def test_a_compressed_trace_that_ends_early_is_named(tmp_path: Path, kept: slice) -> None:
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(f"{HEADER}\n0,1,1\n".encode() * 50)[kept])
    with pytest.raises(ValueError, match="cannot be read") as raised:
        trace(file)
    assert str(raised.value).startswith(str(file))
