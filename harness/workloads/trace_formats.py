"""Kinds of traces: their columns, and what their times are.

A trace is recognised by its columns, all of which must be understood; others are read as
`workload.columns` says. Where the rows of a file are not yet columns of times and lengths, a
function makes plain rows of them, and lists in `attrs[NOTES]` what it assumed or left out. A row
keeps its number in the index. What is damaged is refused with file and row.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.workloads.prompts import token_counts

ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS = "arrival_s", "prompt_tokens", "output_tokens"
OPTIONAL = ("service", "tenant", "app", "priority", "deadline_s", "predicted_tokens", "prompt")
IDS = ("id", "request_id")
BATCH_SIZE = "batch_size"
HINT = (
    "workload.columns={arrival_s:COLUMN,prompt_tokens:COLUMN,output_tokens:COLUMN,unit:ms} says "
    "which columns to read, and leaves out the others"
)
NOTES = "notes"
SESSION, DELAY = "session", "delay_s"
"""Columns of turns: the session, and seconds from the answer before."""
SHARES, SHARED = "shares", "shared_tokens"
"""Columns of prompts that begin alike: the name of their beginning, and its tokens."""


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of trace: its column for each of ours, and what its times are.

    `to_s` makes seconds of its column of times; where there is none all requests come at once.
    Times from the `first` request on count from there. Requests that were never answered are
    listed with 0 tokens where it says so, and left out. `unused` are columns that it may have and
    that change no request; with `others` those are any. `marks` are columns that it must have.
    Blocks of `hash_tokens` tokens have hashes. `reads` makes plain rows of those of the file,
    before `columns` are looked for. A file without times may be `at_once`, or needs
    `workload/arrivals`.
    """

    name: str
    columns: Mapping[str, str]
    to_s: Callable[["pd.Series[float]"], "pd.Series[float]"] = lambda times: times
    first: bool = False
    lists_failed: bool = False
    unused: frozenset[str] = frozenset()
    others: bool = False
    marks: frozenset[str] = frozenset()
    hash_tokens: int = 512  # github.com/kvcache-ai/Mooncake
    reads: Callable[[Path, pd.DataFrame], pd.DataFrame] | None = None
    at_once: bool = False
    needed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """What a file must have to be of this kind."""
        must = (ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS)
        kept = frozenset(theirs for ours, theirs in self.columns.items() if ours in must)
        kept = kept if self.reads is None else frozenset()
        object.__setattr__(self, "needed", kept | self.marks)

    def not_understood(self, there: Collection[str]) -> list[str]:
        """Columns of a file that this kind knows nothing of, in the file's order."""
        known = {*self.columns.values(), *self.unused, *self.marks}
        return [] if self.others else [column for column in there if column not in known]


def first_rounds(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """ShareGPT: first prompt and answer of each conversation, as `vllm bench` samples them."""
    pairs, kept = [], []
    for row, turns in zip(rows.index, rows["conversations"], strict=True):
        texts = [_value(path, row, turn) for turn in _list(path, row, "conversations", turns)[:2]]
        if len(texts) == 2 and all(text.strip() for text in texts):
            pairs.append(texts)
            kept.append(row)
    if not pairs:
        raise ValueError(f"{path} has no conversation with an answer")
    found = pd.DataFrame(pairs, columns=["prompt", "answer"], index=kept)
    found["output_tokens"] = token_counts(str(path), found[["answer"]].set_axis(["prompt"], axis=1))
    notes = ["the first round of each conversation; later rounds are not replayed"]
    if len(kept) < len(rows):
        notes.append(f"{len(rows) - len(kept)} of {len(rows)} conversations have no answer")
    return _noted(found.drop(columns="answer"), notes)


def _list(path: Path, row: int, column: str, value: object) -> Sequence[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{path} row {row}: {column} {value!r:.60} is no list")
    return value


def _value(path: Path, row: int, turn: object) -> str:
    text = turn.get("value") if isinstance(turn, Mapping) else None
    if not isinstance(text, str):
        raise ValueError(f"{path} row {row}: conversations has a turn without a text, {turn!r:.60}")
    return text


def batch_bodies(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """OpenAI batch: the texts of all messages of a body, and its limit as the answer's length."""
    found = []
    for row, body in zip(rows.index, rows["body"], strict=True):
        if not isinstance(body, Mapping):
            raise ValueError(f"{path} row {row}: body {body!r:.60} is no object")
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        if limit is None:
            raise ValueError(
                f"{path} row {row}: body has neither max_completion_tokens nor max_tokens, and an "
                "answer's length is taken from them"
            )
        messages = _list(path, row, "body.messages", body.get("messages"))
        texts = [it.get("content") if isinstance(it, Mapping) else None for it in messages]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{path} row {row}: body.messages has content that is no text")
        found.append((" ".join(map(str, texts)), limit))
    frame = pd.DataFrame(found, columns=["prompt", "output_tokens"], index=rows.index)
    return _noted(frame, ["answers are as long as max_completion_tokens or max_tokens"])


def blis_records(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """BLIS trace v2: a prompt is the tokens of its prefix group and its own; no failed ones."""
    answered = rows[rows["status"].fillna("ok").isin(["ok", ""])] if "status" in rows else rows
    if answered.empty:
        raise ValueError(f"{path} has no record of status ok")
    found = answered.copy()
    in_group = pd.Series(False, found.index)
    if "prefix_group" in found:
        in_group = found["prefix_group"].notna() & (found["prefix_group"] != "")
    lengths = found["prefix_length"] if "prefix_length" in found else pd.Series(0, found.index)
    shared = lengths.where(in_group, 0)
    found["input_tokens"] = found["input_tokens"] + shared
    if (shared > 0).any():
        found[SHARES] = found["prefix_group"].where(shared > 0, "").astype(str)
        found[SHARED] = shared.astype(np.int64)
    left = len(rows) - len(found)
    said = [f"{left} of {len(rows)} records were not answered and are left out"] if left else []
    if "session_id" in found and found["session_id"].notna().any():
        said.append("rounds of sessions come at their recorded times")
    return _noted(found, said)


def aiperf_sessions(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """AIPerf: turns of a session, each some time after the answer before it.

    A turn's `input_length` is what is new; the turns and answers before it are in its prompt, too.
    """
    found = rows.copy()
    session = rows["session_id"]
    session = session.where(session.notna(), pd.Series(rows.index.map("row {}".format), rows.index))
    is_first = ~session.duplicated()
    delay = rows["delay"] if "delay" in rows else pd.Series(np.nan, rows.index)
    for bad, why in (
        (is_first & rows["timestamp"].isna(), "the first turn of a session has no timestamp"),
        (~is_first & delay.isna(), "a later turn of a session has no delay"),
        (~is_first & rows["timestamp"].notna(), "a later turn of a session has a timestamp"),
    ):
        if bad.any():
            raise ValueError(f"{path} row {rows.index[int(np.argmax(bad.to_numpy()))]}: {why}")
    found["timestamp"] = rows["timestamp"].groupby(session).transform("first")
    found[SESSION] = session.astype(str)
    found[DELAY] = pd.to_numeric(delay, errors="coerce").where(~is_first, 0.0) / 1e3
    return _noted(found, ["a turn's prompt has all turns and answers of its session before it"])


def _noted(rows: pd.DataFrame, notes: Sequence[str]) -> pd.DataFrame:
    rows.attrs[NOTES] = tuple(notes)
    return rows


def clock_s(times: "pd.Series[float]") -> "pd.Series[float]":
    """Seconds since the first of dates with times of day; NaN for what is none."""
    dates = pd.to_datetime(times, errors="coerce", utc=True, format="ISO8601")
    return (dates - dates.min()) / pd.Timedelta(1, "s")


def _in_units(per_s: float) -> Callable[["pd.Series[float]"], "pd.Series[float]"]:
    """Seconds of times of which so many are one."""
    return lambda times: times / per_s


UNITS = {
    "s": _in_units(1.0),
    "ms": _in_units(1e3),
    "us": _in_units(1e6),
    "ns": _in_units(1e9),
    "date": clock_s,
}
"""What `workload.columns` may call the unit of a time."""

OWN_COLUMNS = (ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS, *OPTIONAL)
FORMATS = (
    Format("own", {name: name for name in OWN_COLUMNS}, unused=frozenset(IDS)),
    Format(  # github.com/Azure/AzurePublicDataset: AzureLLMInferenceTrace_*.csv of 2023 to 2025
        "Azure LLM",
        {ARRIVAL: "TIMESTAMP", PROMPT_TOKENS: "ContextTokens", OUTPUT_TOKENS: "GeneratedTokens"},
        to_s=clock_s,
        first=True,
        unused=frozenset(["NumImages"]),
    ),
    Format(  # github.com/kvcache-ai/Mooncake: *_trace.jsonl, milliseconds
        "Mooncake",
        {
            ARRIVAL: "timestamp",
            PROMPT_TOKENS: "input_length",
            OUTPUT_TOKENS: "output_length",
            "hash_ids": "hash_ids",
        },
        to_s=UNITS["ms"],
    ),
    Format(  # github.com/alibaba-edu/qwen-bailian-usagetraces-anon: qwen_trace*.jsonl, seconds
        "Qwen-Bailian",
        {
            ARRIVAL: "timestamp",
            PROMPT_TOKENS: "input_length",
            OUTPUT_TOKENS: "output_length",
            "hash_ids": "hash_ids",
        },
        unused=frozenset(["type", "turn"]),
        marks=frozenset(["chat_id", "parent_chat_id"]),
        hash_tokens=16,
    ),
    Format(  # github.com/ai-dynamo/aiperf, docs/benchmark-modes/trace-replay.md: milliseconds
        "AIPerf sessions",
        {
            ARRIVAL: "timestamp",
            PROMPT_TOKENS: "input_length",
            OUTPUT_TOKENS: "output_length",
            SESSION: SESSION,
            DELAY: DELAY,
        },
        to_s=UNITS["ms"],
        unused=frozenset(["delay"]),
        marks=frozenset(["session_id", "timestamp", "input_length", "output_length"]),
        reads=aiperf_sessions,
    ),
    Format(  # github.com/inference-sim/inference-sim, sim/workload/tracev2.go: the CSV
        "BLIS",
        {
            ARRIVAL: "arrival_time_us",
            PROMPT_TOKENS: "input_tokens",
            OUTPUT_TOKENS: "output_tokens",
            "tenant": "tenant_id",
            "priority": "vllm_priority",
            SHARES: SHARES,
            SHARED: SHARED,
        },
        to_s=UNITS["us"],
        unused=frozenset(
            [
                *("request_id", "client_id", "slo_class", "session_id", "round_index", "priority"),
                *("prefix_group", "prefix_length", "streaming", "text_tokens", "image_tokens"),
                *("audio_tokens", "video_tokens", "reason_ratio", "model", "deadline_us"),
                *("server_input_tokens", "send_time_us", "first_chunk_time_us"),
                *("last_chunk_time_us", "num_chunks", "status", "error_message", "finish_reason"),
            ]
        ),
        marks=frozenset(["arrival_time_us", "input_tokens", "output_tokens"]),
        reads=blis_records,
    ),
    Format(  # ShareGPT_V3_unfiltered_cleaned_split.json, as `vllm bench serve` reads it
        "ShareGPT",
        {"prompt": "prompt", OUTPUT_TOKENS: OUTPUT_TOKENS},
        unused=frozenset(IDS),
        marks=frozenset(["conversations"]),
        reads=first_rounds,
    ),
    Format(  # the requests of OpenAI's batch interface, and of `vllm run-batch`
        "OpenAI batch",
        {"prompt": "prompt", OUTPUT_TOKENS: OUTPUT_TOKENS},
        unused=frozenset(["custom_id", "method", "url"]),
        marks=frozenset(["body"]),
        reads=batch_bodies,
    ),
    Format(  # docs.vllm.ai, `vllm bench serve --dataset-name custom`
        "vLLM bench, custom",
        {"prompt": "prompt", OUTPUT_TOKENS: OUTPUT_TOKENS},
        marks=frozenset(["prompt"]),
    ),
    Format(  # github.com/vllm-project/guidellm: synthetic data and files of prompts
        "GuideLLM",
        {
            "prompt": "prompt",
            PROMPT_TOKENS: "prompt_tokens_count",
            OUTPUT_TOKENS: "output_tokens_count",
        },
        marks=frozenset(["prompt"]),
    ),
    Format(  # github.com/ai-dynamo/aiperf: its Mooncake format with texts, milliseconds
        "AIPerf, with texts",
        {ARRIVAL: "timestamp", "prompt": "text_input", OUTPUT_TOKENS: "output_length"},
        to_s=UNITS["ms"],
        marks=frozenset(["text_input"]),
    ),
    Format(  # github.com/microsoft/vidur: data/processed_traces with arrivals
        "Vidur",
        {
            ARRIVAL: "arrived_at",
            PROMPT_TOKENS: "num_prefill_tokens",
            OUTPUT_TOKENS: "num_decode_tokens",
        },
        unused=frozenset(["num_total_tokens", "pd_ratio"]),
    ),
    Format(  # github.com/Mutinifni/splitwise-sim: traces/*.csv
        "Splitwise",
        {ARRIVAL: "arrival_timestamp", PROMPT_TOKENS: "prompt_size", OUTPUT_TOKENS: "token_size"},
        unused=frozenset(["request_id", "request_type", "application_id", BATCH_SIZE]),
    ),
    Format(  # github.com/casys-kaist/LLMServingSim: dataset/*.jsonl
        "LLMServingSim",
        {ARRIVAL: "arrival_time_ns", PROMPT_TOKENS: "input_toks", OUTPUT_TOKENS: "output_toks"},
        to_s=UNITS["ns"],
        unused=frozenset(["input_tok_ids", "output_tok_ids"]),
    ),
    Format(  # github.com/HPMLL/BurstGPT: BurstGPT_*.csv; answers of 0 tokens are failures
        "BurstGPT",
        {
            ARRIVAL: "Timestamp",
            PROMPT_TOKENS: "Request tokens",
            OUTPUT_TOKENS: "Response tokens",
            "service": "Model",
        },
        first=True,
        lists_failed=True,
        unused=frozenset(["Session ID", "Elapsed time", "Total tokens", "Log Type"]),
    ),
    Format(  # github.com/alibaba/ServeGen: what its save_requests_to_csv writes
        "ServeGen",
        {ARRIVAL: "timestamp", PROMPT_TOKENS: "input_tokens", OUTPUT_TOKENS: "output_tokens"},
        unused=frozenset(["request_id"]),
    ),
    Format(  # the same with the times in our column, as its authors' tables are often kept
        "tokens in and out",
        {
            ARRIVAL: ARRIVAL,
            PROMPT_TOKENS: "input_tokens",
            OUTPUT_TOKENS: OUTPUT_TOKENS,
            "tenant": "client",
        },
        unused=frozenset([*IDS, "prompt_blocks_512", "prefix_hit_blocks"]),
    ),
    Format(  # ServeGen, data/offline/trace_d to _f.jsonl: submitted as one batch
        "ServeGen, offline",
        {PROMPT_TOKENS: "input_length", OUTPUT_TOKENS: "output_length"},
        unused=frozenset(["request_id", "type", "duration"]),
        at_once=True,
    ),
    Format(
        "own, with texts",
        {name: name for name in OWN_COLUMNS if name != PROMPT_TOKENS},
        unused=frozenset(IDS),
        marks=frozenset(["prompt"]),
    ),
)


def format_by(columns: Mapping[str, str]) -> Format:
    """The kind of trace that `workload.columns` describes: our names to those of the file.

    `unit` is that of the times. Columns that are not named are left out. Raises ValueError for
    names that are not known and where times or lengths are missing.
    """
    named, unit = dict(columns), columns.get("unit", "s")
    named.pop("unit", None)
    unknown = [name for name in named if name not in OWN_COLUMNS]
    if unknown:
        raise ValueError(
            f"workload.columns has {unknown[0]}, it may have unit, {', '.join(OWN_COLUMNS)}"
        )
    if unit not in UNITS:
        raise ValueError(f"workload.columns.unit={unit} is not one of {', '.join(UNITS)}")
    if not {ARRIVAL, OUTPUT_TOKENS} <= set(named) or not {PROMPT_TOKENS, "prompt"} & set(named):
        raise ValueError(
            f"workload.columns must have {ARRIVAL}, {OUTPUT_TOKENS}, and {PROMPT_TOKENS} or prompt"
        )
    is_date = unit == "date"
    marks = frozenset(named.values())
    return Format("given", named, to_s=UNITS[unit], first=is_date, others=True, marks=marks)


def format_of(path: Path, rows: pd.DataFrame, formats: Sequence[Format] = FORMATS) -> Format:
    """The first kind that has all columns that a file needs and understands all that it has."""
    there = list(map(str, rows.columns))
    close = [kind for kind in formats if kind.needed <= set(there)]
    for kind in close:
        if not kind.not_understood(there):
            return kind
    if close:
        kind = min(close, key=lambda each: len(each.not_understood(there)))
        odd = ", ".join(kind.not_understood(there))
        said = f"looks like a trace of the kind {kind.name}, which has no columns {odd}"
    else:
        kinds = "; ".join(f"{it.name}: {', '.join(sorted(it.needed))}" for it in formats)
        said = f"has the columns {', '.join(there)}, those of no trace ({kinds})"
    raise ValueError(f"{path} {said}; {HINT}")
