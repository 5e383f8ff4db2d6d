"""Logs of servers: every kind that is read, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.workloads.server_logs import ServerLog, read_server_log

WANTED = pd.DataFrame(
    {
        "arrival_s": [0.0, 0.5, 2.0],
        "prompt_tokens": [100, 50, 7],
        "output_tokens": [3, 1, 2],
        "first_token_s": [0.25, 0.75, 2.5],
        "end_s": [1.25, 0.75, 3.0],
    }
)
VLLM: dict[str, Any] = {
    "completed": 3,
    "request_rate": 2.0,
    "input_lens": [100, 50, 7, 9],
    "output_lens": [3, 1, 2, 0],
    "ttfts": [0.25, 0.25, 0.5, 0.0],
    "itls": [[0.5, 0.5], [], [0.5], []],
    "start_times": [1000.0, 1000.5, 1002.0, 1003.0],
    "errors": ["", "", "", "Traceback"],
}


def _read(folder: Path, text: str, name: str = "log.json") -> ServerLog:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_server_log(path)


def _is_wanted(log: ServerLog) -> None:
    pd.testing.assert_frame_equal(log.requests[[*WANTED]], WANTED, rtol=1e-6, atol=1e-6)


def test_own_rows_by_times_or_by_seconds_since_the_arrival(tmp_path: Path) -> None:
    """Not in order of arrival, on a clock of its own, with a request without an answer."""
    rows = WANTED.assign(arrival_s=WANTED["arrival_s"] + 50)
    rows[["ttft_s", "e2e_s"]] = WANTED[["first_token_s", "end_s"]].sub(WANTED["arrival_s"], axis=0)
    since = rows.drop(columns=["first_token_s", "end_s"])
    lost = since.iloc[[1]].assign(output_tokens=0, ttft_s=None)
    csv = pd.concat([since.iloc[::-1], lost]).assign(user="x").to_csv(index=False)
    log = _read(tmp_path, csv, "log.csv")
    _is_wanted(log)
    assert log.notes == (
        "columns that were not read: user",
        "1 of 4 requests failed or have no answer: left out",
    )
    times = WANTED[["arrival_s", "first_token_s", "end_s"]] + 50
    lines = WANTED.assign(**times).to_json(orient="records", lines=True)
    _is_wanted(_read(tmp_path, lines, "log.jsonl"))


def test_a_benchmark_of_vllm(tmp_path: Path) -> None:
    log = _read(tmp_path, json.dumps(VLLM))
    _is_wanted(log)
    assert log.notes == ("1 of 4 requests failed or have no answer: left out",)


@pytest.mark.parametrize(
    ("clients", "come_s"), [(None, [0.0, 0.0, 0.0]), (2, [0.0, 0.0, 0.25]), (1, [0.0, 1.25, 1.5])]
)
def test_a_benchmark_of_sglang_by_hand(
    tmp_path: Path, clients: int | None, come_s: list[float]
) -> None:
    """The first answer takes 1.25 s, the second 0.25 s; clients take requests in order."""
    of_three = {name: value[:3] for name, value in VLLM.items() if isinstance(value, list)}
    run = {**of_three, "request_rate": float("inf"), "max_concurrency": clients}
    del run["start_times"]
    log = _read(tmp_path, json.dumps(run) + "\n", "log.jsonl")
    assert log.requests["arrival_s"].tolist() == come_s
    assert log.notes == (
        "it has no start_times: when requests were sent follows from its concurrency",
    )


def _spans(kind: str) -> object:
    """The wanted requests as spans below one that is none of a request."""
    spans: list[dict[str, Any]] = [{"attributes": [], "name": "other"}]
    for arrival_s, prompt, output, first_s, end_s in WANTED.to_numpy(float).tolist():
        flat = {
            "gen_ai.usage.prompt_tokens": prompt,
            "gen_ai.usage.completion_tokens": output,
            "gen_ai.latency.time_to_first_token": first_s - arrival_s,
            "gen_ai.latency.e2e": end_s - arrival_s,
        }
        begin_s = 1_700_000_000 + arrival_s
        if kind == "otlp":
            named = [
                {
                    "key": key,
                    "value": {"intValue": str(int(it))} if "tokens" in key else {"doubleValue": it},
                }
                for key, it in flat.items()
            ]
            spans.append({"startTimeUnixNano": str(int(begin_s * 1e9)), "attributes": named})
        elif kind == "jaeger":
            tags = [{"key": key, "type": "float64", "value": it} for key, it in flat.items()]
            spans.append({"startTime": int(begin_s * 1e6), "tags": tags})
        else:
            when = pd.Timestamp(begin_s, unit="s").isoformat() + "Z"
            spans.append({"start_time": when, "attributes": flat})
    if kind == "otlp":
        return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    return {"data": [{"spans": spans}]} if kind == "jaeger" else spans


@pytest.mark.parametrize("kind", ["otlp", "jaeger", "console"])
@pytest.mark.parametrize("in_lines", [False, True])
def test_spans_of_opentelemetry(tmp_path: Path, kind: str, in_lines: bool) -> None:
    node = _spans(kind)
    text = json.dumps(node, indent=1)
    if in_lines:
        parts = node if isinstance(node, list) else [node, {"resourceSpans": []}]
        text = "\n".join(map(json.dumps, parts))
    log = _read(tmp_path, text)
    _is_wanted(log)
    assert log.kind == "OpenTelemetry spans of vLLM"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,b\n1,2\n", "has no arrival_s and no prompt_tokens and .* only a, b; a log has the col"),
        ('{"completed": 3, "duration": 2.0}', "summary without its requests: run it with --save-d"),
        (json.dumps(VLLM) + "\n" + json.dumps(VLLM), "has 2 runs of a benchmark: give a file of"),
        (json.dumps({**VLLM, "ttfts": [1.0]}), "differ in length: input_lens 4, output_lens 4, tt"),
        (json.dumps({**VLLM, "start_times": []}), "no start_times, and at request_rate 2 gaps"),
        (json.dumps({**VLLM, "errors": ["x"] * 4}), "has no answered request"),
        (
            "arrival_s,prompt_tokens,output_tokens,ttft_s,e2e_s\n0,5,2,0,1\n",
            "row 1: first_token_s 0.0 is not after the arrival",
        ),
        (
            "arrival_s,prompt_tokens,output_tokens,ttft_s,e2e_s\n0,5,2,2,1\n",
            "row 1: end_s 1.0 is before the first token",
        ),
        (
            "arrival_s,prompt_tokens,output_tokens,ttft_s,e2e_s\n0,5,2,1,\n",
            "row 1: e2e_s is missing",
        ),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        _read(tmp_path, text, "log.csv" if text[0] != "{" else "log.json")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no file"):
        read_server_log(tmp_path / "log.csv")
