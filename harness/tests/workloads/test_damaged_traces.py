"""Traces that are damaged, or of which no workload can be made, are refused in a sentence."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.tests.support.recorded_requests import HEADER, MODEL, trace


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
        ([{}, {"prompt_tokens": 0}], "row 2: prompt_tokens 0 must be at least 1"),
        ([{"prompt_tokens": 1.5}], "row 1: prompt_tokens 1.5 is no number of tokens"),
        ([{"id": 7}, {"id": 8}, {"id": 7}], "row 3: id 7 came before"),
        ([{"tenant": "a"}, {}], "row 2: tenant is missing"),
        ([{"deadline_s": 0.0}], "row 1: deadline_s 0.0 is no later than the arrival"),
        ([{"arrival_s": 10**400}], "row 1: arrival_s 1000.* is no number"),
        ([{}, {"arrival_s": 1e300}], r"row 2: arrival_s 1e\+300 is 1e\+300 s into the run"),
        ([{"app": [1]}, {"app": [2]}], r"row 1: app \[1\] is neither a text nor a number"),
        ([{"prompt": 5}], "row 1: prompt 5 is no text"),
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
            r"has the columns arrival_s, tokens; the nearest format is .*, of which it lacks",
        ),
        ("a.csv", f"{HEADER},prompt_tokens\n0,1,1,1\n", "has the column prompt_tokens twice"),
        ("a.csv", f"{HEADER}\n", "has no rows"),
        ("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1\n", "TIMESTAMP 'noon' is no"),
        ("a.jsonl", "{\n", "line 1 is not JSON"),
        ("a.jsonl", '{"app": 1, "app": 2}\n', "line 1: the key app is there twice"),
        (
            "a.jsonl",
            '{"timestamp": [1], "input_length": 1, "output_length": 1}',
            "timestamp .* is no",
        ),
        (
            "a.csv",
            "Timestamp,Model,Request tokens,Response tokens\n5,GPT-4,300,0\n",
            "has failed requests alone, of 0 Response tokens",
        ),
        ("a.parquet", "junk", "cannot be read"),
        (
            "a.jsonl",
            '{"request_id": 1, "arrival_ms": 5, "input_length": 1, "output_length": 1}',
            "looks like a trace of the format ServeGen, offline, which has no columns arrival_ms; "
            "'workload.columns={arrival_s:arrival_ms,prompt_tokens:input_length,"
            "output_tokens:output_length,unit:ms}' reads these",
        ),
        (
            "a.jsonl",
            '{"timestamp": 5, "input_length": 1, "output_length": 1, "session": 3, "delay": 1}',
            "of the format Mooncake, which has no columns session, delay; 'workload.columns=",
        ),
        ("a.csv", f"{HEADER},urgency\n0,1,1,1\n", "format own, which has no columns urgency;"),
        ("a.csv", f"{HEADER},priority\n0,1,1,high\n", "row 1: priority 'high' is no number"),
        (
            "a.csv",
            "arrival_timestamp,batch_size,prompt_size,token_size\n0,2,1,1\n",
            "row 1: batch_size 2 is not 1, and a row is one request",
        ),
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
        (
            {"columns": {"arrival": "a"}},
            "workload.columns has arrival, it may have unit, hash_tokens, arrival_s",
        ),
        (
            {"columns": {"arrival_s": "a"}},
            "workload.columns must have output_tokens, and prompt_tokens or prompt",
        ),
        (
            {"columns": {name: name for name in HEADER.split(",")} | {"unit": "h"}},
            "workload.columns.unit=h is not one of s, ms, us, ns, date",
        ),
        (
            {"columns": {name: "a" for name in HEADER.split(",")}},
            "has the columns arrival_s, .*, and not a of workload.columns",
        ),
        ({"window": [5, 6]}, r"workload.window=\[5.0, 6.0\] has no request of .* at 0.0 to 0.0 s"),
        ({"requests": 2}, "has 1 requests, workload.requests=2 were asked for"),
        ({"rate_scale": 0.0}, "workload.rate_scale is 0.0, it must be positive"),
        ({"too_long": "keep"}, "workload.too_long=keep is not one of refuse, cut, drop"),
        ({"too_long": "drop", "max_output_tokens": 1}, "no request of .* fits the context and"),
        ({"max_output_tokens": 4096}, "workload.max_output_tokens=4096 leaves no prompt"),
    ],
)
def test_settings_that_no_workload_can_be_made_of(
    changes: dict[str, Any], said: str, own: Callable[..., Path]
) -> None:
    with pytest.raises(ValueError, match=said):
        trace(own({}), **changes)


def test_an_unknown_service_names_its_row(own: Callable[..., Path]) -> None:
    said = (
        r"row 2: service GPT-4 is no model; say .* \+workload.services=\{GPT-4:NAME\}.*known: the"
    )
    with pytest.raises(ValueError, match=said):
        trace(own({"service": MODEL}, {"service": "GPT-4"}), model=None)
    with pytest.raises(ValueError, match=r"^the model's config /no/config\.json: No such file"):
        trace(own({"service": "a"}), model=None, services={"a": "/no/config.json"})


def test_a_window_makes_seconds_of_a_calendar_those_of_a_run(own: Callable[..., Path]) -> None:
    file = own({"arrival_s": 1.7e9}, {"arrival_s": 1.7e9 + 2})
    assert trace(file).build(0).arrival_s.tolist() == [0.0, 2.0]
    assert trace(file, window=[1.7e9 - 1, 1.8e9]).build(0).arrival_s.tolist() == [1.0, 3.0]
    assert trace(file, window=[1, 3], from_first=True).build(0).arrival_s.tolist() == [1.0]
    with pytest.raises(
        ValueError, match=r"row 2: arrival_s 1700000002.0 is 2000000000000.0 s into"
    ):
        trace(file, rate_scale=1e-12)


@pytest.mark.parametrize("kept", [slice(0, 20), slice(None, -9)])
def test_a_compressed_trace_that_ends_early_is_named(tmp_path: Path, kept: slice) -> None:
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(f"{HEADER}\n0,1,1\n".encode() * 50)[kept])
    with pytest.raises(ValueError, match="cannot be read") as raised:
        trace(file)
    assert str(raised.value).startswith(str(file))
