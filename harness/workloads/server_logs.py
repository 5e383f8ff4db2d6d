"""Logs of a server: for each request its lengths, and when it came, had its first token and ended.

Three kinds are read, recognised by what they hold:

own            rows (CSV, JSON lines, parquet; see `row_files`) with arrival_s, prompt_tokens,
               output_tokens, first_token_s or ttft_s, end_s or e2e_s; arrivals in seconds of any
               clock, ttft_s and e2e_s from the arrival
a benchmark    JSON of `vllm bench serve --save-result --save-detailed`, or a line of `python -m
               sglang.bench_serving --output-file F --output-details`: input_lens, output_lens,
               ttfts, itls (seconds), errors, and start_times, where there are any (vLLM 0.32 has
               them, SGLang has not). Without them request_rate and max_concurrency say when
               requests were sent, where they do: at a rate of infinity in the order of the list, a
               client's next request when its last was answered
OpenTelemetry  spans of vLLM (`--otlp-traces-endpoint`) as JSON, of OTLP (a file of the collector),
               of Jaeger, or as the SDK's console exporter writes them: when a span begins,
               gen_ai.usage.prompt_tokens, gen_ai.usage.completion_tokens,
               gen_ai.latency.time_to_first_token and gen_ai.latency.e2e (seconds)

What a client logs has the network in it, spans of the server have not. Failed requests, and those
without an answer, are left out, which a note says.
"""

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.config import inputs
from harness.workloads.row_files import read_rows
from harness.workloads.trace_columns import ARRIVAL, OUTPUT_TOKENS, PROMPT_TOKENS
from harness.workloads.trace_values import numbers, refuse, tokens

FIRST_TOKEN, END = "first_token_s", "end_s"
TTFT, E2E = "ttft_s", "e2e_s"
BENCHMARK = ("input_lens", "output_lens", "ttfts", "itls")
PROMPT_SPAN, OUTPUT_SPAN = "gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"
TTFT_SPAN, E2E_SPAN = "gen_ai.latency.time_to_first_token", "gen_ai.latency.e2e"
SPAN = {PROMPT_SPAN: PROMPT_TOKENS, OUTPUT_SPAN: OUTPUT_TOKENS, TTFT_SPAN: TTFT, E2E_SPAN: E2E}
KNOWN = (
    f"a log has the columns {ARRIVAL}, {PROMPT_TOKENS}, {OUTPUT_TOKENS}, {FIRST_TOKEN} or {TTFT}, "
    f"and {END} or {E2E}; or it is the JSON of vllm bench serve --save-detailed, of sglang's "
    "bench_serving --output-details, or of vLLM's OpenTelemetry spans"
)
_NS = {"startTimeUnixNano": 1e9, "startTime": 1e6}
"""Units a second of when a span begins: of OTLP, and of Jaeger."""


@dataclass(frozen=True, slots=True)
class ServerLog:
    """What a server did, as somebody logged it.

    `requests` has a row for each in the order of arrival: arrival_s, first_token_s and end_s, in
    seconds from the first arrival, prompt_tokens, output_tokens. `kind` says in words what was
    read, `notes` what was left out or worked out.
    """

    requests: pd.DataFrame
    kind: str
    notes: tuple[str, ...] = ()


def read_server_log(path: Path) -> ServerLog:
    """The requests of a log.

    Raises ValueError, in one sentence, for a file of no known kind and for what is damaged.
    """
    if not path.is_file():
        raise ValueError(f"{path} is no file")
    documents = _documents(path)
    if runs := [it for it in documents if isinstance(it, dict) and BENCHMARK[0] in it]:
        return _of_benchmark(path, runs)
    if documents and all(isinstance(it, dict) and "completed" in it for it in documents):
        raise ValueError(
            f"{path} is a benchmark's summary without its requests: run it with --save-detailed "
            "(vLLM) or --output-details (SGLang)"
        )
    if spans := [span for it in documents for span in _spans(it)]:
        return _of_spans(path, spans)
    return _of_rows(path, read_rows(path))


def _documents(path: Path) -> list[Any]:
    """What a file of JSON holds, as one document or line by line; nothing of any other."""
    try:
        text = inputs.read(path).decode("utf-8").strip()
    except UnicodeDecodeError:
        return []
    for parts in ([text], text.splitlines()):
        try:
            return [json.loads(part) for part in parts if part.strip()]
        except (ValueError, RecursionError):
            continue
    return []


def _of_rows(path: Path, rows: pd.DataFrame) -> ServerLog:
    """Rows with our columns."""
    rows.index = pd.RangeIndex(1, len(rows) + 1)
    first = FIRST_TOKEN if FIRST_TOKEN in rows else TTFT
    end = END if END in rows else E2E
    needed = (ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS, first, end)
    if lacking := [name for name in needed if name not in rows]:
        there = ", ".join(map(str, rows.columns[:12]))
        raise ValueError(f"{path} has no {' and no '.join(lacking)}, only {there}; {KNOWN}")
    unread = [str(name) for name in rows if name not in needed]
    notes = [f"columns that were not read: {', '.join(unread)}"] if unread else []
    return _log(path, rows[[*needed]], "rows of our own columns", notes)


def _of_benchmark(path: Path, runs: Sequence[Mapping[str, Any]]) -> ServerLog:
    """The requests of a run of a benchmark. ValueError for several runs, and lists that differ."""
    if len(runs) > 1:
        raise ValueError(f"{path} has {len(runs)} runs of a benchmark: give a file of one of them")
    run = runs[0]
    lengths = {
        name: len(run[name]) if isinstance(run.get(name), list) else -1 for name in BENCHMARK
    }
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {'-' if n < 0 else n}" for name, n in lengths.items())
        raise ValueError(f"{path}: lists of a benchmark's requests differ in length: {said}")
    ttft_s = np.array(run["ttfts"], np.float64)
    e2e_s = ttft_s + np.array([sum(gaps) for gaps in run["itls"]], np.float64)
    notes: list[str] = []
    start_s = run.get("start_times")
    if not start_s:
        start_s = _sent_s(path, run, e2e_s)
        notes.append("it has no start_times: when requests were sent follows from its concurrency")
    columns = {PROMPT_TOKENS: run["input_lens"], OUTPUT_TOKENS: run["output_lens"]}
    rows = pd.DataFrame({ARRIVAL: start_s, **columns, TTFT: ttft_s, E2E: e2e_s})
    rows.index = pd.RangeIndex(1, len(rows) + 1)
    errors = run.get("errors") or [""] * len(rows)
    return _log(path, rows, "a benchmark's requests", notes, failed=np.array([*map(bool, errors)]))


def _sent_s(path: Path, run: Mapping[str, Any], e2e_s: "np.ndarray[Any, Any]") -> list[float]:
    """When requests were sent that clients take in order, from 0 s. ValueError where a rate is."""
    rate = float(run.get("request_rate") or np.inf)
    if rate < np.inf:
        raise ValueError(
            f"{path} has no start_times, and at request_rate {rate:g} gaps were drawn: when its "
            "requests came is not known"
        )
    clients = min(int(run.get("max_concurrency") or len(e2e_s)), len(e2e_s))
    free_s = [0.0] * clients
    sent_s = []
    for seconds in e2e_s:
        sent_s.append(heapq.heappop(free_s))
        heapq.heappush(free_s, sent_s[-1] + float(seconds))
    return sent_s


def _spans(node: Any) -> Iterator[dict[str, Any]]:
    """Spans of requests anywhere in a document: their attributes, and when each begins."""
    if isinstance(node, list):
        for item in node:
            yield from _spans(item)
    elif isinstance(node, dict):
        found = _attributes(node.get("attributes", node.get("tags")))
        if E2E_SPAN in found:
            yield {
                **{ours: found.get(theirs) for theirs, ours in SPAN.items()},
                ARRIVAL: _begin_s(node),
            }
        else:
            for value in node.values():
                yield from _spans(value)


def _attributes(given: Any) -> dict[str, Any]:
    """Attributes of a span by name, from a mapping or from a list of keys and values."""
    if isinstance(given, dict):
        return given
    found: dict[str, Any] = {}
    for item in given if isinstance(given, list) else ():
        if isinstance(item, dict) and "key" in item:
            value = item.get("value")
            found[str(item["key"])] = (
                next(iter(value.values()), None) if isinstance(value, dict) else value
            )
    return found


def _begin_s(span: Mapping[str, Any]) -> float | None:
    """When a span begins, in seconds since 1970; None where it does not say."""
    for name, per_s in _NS.items():
        if name in span:
            return float(span[name]) / per_s
    if "start_time" in span:
        return pd.Timestamp(span["start_time"]).timestamp()
    return None


def _of_spans(path: Path, spans: Sequence[Mapping[str, Any]]) -> ServerLog:
    """Spans of requests."""
    rows = pd.DataFrame(spans, index=pd.RangeIndex(1, len(spans) + 1))
    failed = rows[TTFT].isna().to_numpy() | rows[OUTPUT_TOKENS].isna().to_numpy()
    return _log(path, rows, "OpenTelemetry spans of vLLM", [], failed=failed)


def _log(
    path: Path,
    rows: pd.DataFrame,
    kind: str,
    notes: Sequence[str],
    failed: "np.ndarray[Any, Any] | None" = None,
) -> ServerLog:
    """Checked rows, by arrival, in seconds from the first. ValueError where none is left."""
    output = pd.to_numeric(rows[OUTPUT_TOKENS], errors="coerce")
    lost = (output == 0).to_numpy() | (failed if failed is not None else False)
    kept, said = rows[~lost], [*notes]
    if kept.empty:
        raise ValueError(f"{path} has no answered request")
    if lost.any():
        said.append(f"{int(lost.sum())} of {len(rows)} requests failed or have no answer: left out")
    out = pd.DataFrame(index=kept.index)
    out[ARRIVAL] = numbers(path, kept[ARRIVAL], ARRIVAL, least=-np.inf)
    for name in (PROMPT_TOKENS, OUTPUT_TOKENS):
        out[name] = tokens(path, kept[name], name)
    for ours, since in ((FIRST_TOKEN, TTFT), (END, E2E)):
        column = ours if ours in kept else since
        seconds = numbers(path, kept[column], column, least=-np.inf)
        out[ours] = seconds + (out[ARRIVAL] if column == since else 0.0)
    late = (out[FIRST_TOKEN] <= out[ARRIVAL]).to_numpy()
    refuse(path, out[FIRST_TOKEN], late, FIRST_TOKEN, "is not after the arrival")
    early = (out[END] < out[FIRST_TOKEN] - 1e-9).to_numpy()
    refuse(path, out[END], early, END, "is before the first token")
    out = out.sort_values(ARRIVAL, kind="stable")
    begin_s = float(out[ARRIVAL].iloc[0])
    for name in (ARRIVAL, FIRST_TOKEN, END):
        out[name] -= begin_s
    return ServerLog(out.reset_index(drop=True), kind, tuple(said))
