"""Formats of traces: their columns, and what their times are.

A trace is recognised by its columns, all of which must be understood; others are read as
`workload.columns` says. Where the rows of a file are not yet columns of times and lengths, `reads`
of its format makes plain rows of them (`trace_rows`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path

import pandas as pd

from harness.workloads.trace_columns import (
    ARRIVAL,
    DELAY,
    HASHES,
    IDS,
    KEPT,
    OUTPUT_TOKENS,
    OWN,
    PROMPT_TOKENS,
    SESSION,
    SHARED,
    SHARES,
)
from harness.workloads.trace_hints import columns_hint
from harness.workloads.trace_rows import batch_bodies, blis_records, first_rounds, tracelab_rounds
from harness.workloads.trace_times import DATE, UNITS, unit_in_name

BATCH_SIZE = "batch_size"
UNIT, HASH_TOKENS = "unit", "hash_tokens"
"""Keys of `workload.columns` that name no column."""
LISTED = "formats are listed in scenarios/workload/trace.yaml"
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A kind of trace: its column for each of ours, and what its times are.

    `unit` is that of its times, stated by their column's name or where `is_stated` says so; of
    delays it is `delay_unit`, where that is another. Times from the `first` request on count from
    there. Requests that were never answered are listed with 0 tokens where it says so, and left
    out. `unused` are columns that it may have and that change no request; with `others` those are
    any. `marks` are columns that it must have. Blocks of `hash_tokens` tokens have hashes; where
    `heads_hashed` holds a prompt may have fewer than it has blocks. `reads` makes plain rows of
    those of the file, before `columns` are looked for. A file without times may be `at_once`, or
    needs `workload/arrivals`.
    """

    name: str
    columns: Mapping[str, str]
    unit: str = "s"
    is_stated: bool = False
    delay_unit: str | None = None
    first: bool = False
    lists_failed: bool = False
    unused: frozenset[str] = frozenset()
    others: bool = False
    marks: frozenset[str] = frozenset()
    hash_tokens: int = 512  # github.com/kvcache-ai/Mooncake
    is_hash_stated: bool = False
    heads_hashed: bool = False
    reads: Callable[[Path, pd.DataFrame], pd.DataFrame] | None = None
    at_once: bool = False
    needed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """What a file must have to be of this kind."""
        must = (ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS)
        kept = frozenset(theirs for ours, theirs in self.columns.items() if ours in must)
        kept = kept if self.reads is None else frozenset()
        object.__setattr__(self, "needed", kept | self.marks)
        time = self.columns.get(ARRIVAL, "")
        said = self.is_stated or self.unit == DATE
        if self.unit != DATE and unit_in_name(time) and not self.is_stated:
            object.__setattr__(self, "unit", unit_in_name(time))
            said = True
        object.__setattr__(self, "is_stated", said)

    @property
    def lengths(self) -> frozenset[str]:
        """The same without its times."""
        return self.needed - {self.columns.get(ARRIVAL, "")}

    def not_understood(self, there: Collection[str]) -> list[str]:
        """Columns of a file that this kind knows nothing of, in the file's order."""
        known = {*self.columns.values(), *self.unused, *self.marks}
        return [] if self.others else [column for column in there if column not in known]


ROUNDS = frozenset(["round_idx", "tool_wait_after_ms", "prefix_len", "input_len", "output_len"])
TRACELAB = {
    PROMPT_TOKENS: "input_len",
    OUTPUT_TOKENS: "output_len",
    SESSION: SESSION,
    DELAY: DELAY,
    KEPT: "prefix_len",
}

FORMATS = (
    TraceFormat("own", {name: name for name in OWN}, unused=frozenset(IDS), delay_unit="s"),
    TraceFormat(  # github.com/Azure/AzurePublicDataset: AzureLLMInferenceTrace_*.csv, 2023 to 2025
        "Azure LLM",
        {ARRIVAL: "TIMESTAMP", PROMPT_TOKENS: "ContextTokens", OUTPUT_TOKENS: "GeneratedTokens"},
        unit=DATE,
        first=True,
        unused=frozenset(["NumImages"]),
    ),
    TraceFormat(  # github.com/kvcache-ai/Mooncake: *_trace.jsonl, milliseconds
        "Mooncake",
        {
            ARRIVAL: "timestamp",
            PROMPT_TOKENS: "input_length",
            OUTPUT_TOKENS: "output_length",
            HASHES: HASHES,
        },
        unit="ms",
    ),
    TraceFormat(  # github.com/alibaba-edu/qwen-bailian-usagetraces-anon: qwen_trace*.jsonl, seconds
        "Qwen-Bailian",
        {
            ARRIVAL: "timestamp",
            PROMPT_TOKENS: "input_length",
            OUTPUT_TOKENS: "output_length",
            HASHES: HASHES,
        },
        unused=frozenset(["type", "turn"]),
        marks=frozenset(["chat_id", "parent_chat_id"]),
        hash_tokens=16,
        heads_hashed=True,
    ),
    TraceFormat(  # github.com/ai-dynamo/aiperf, docs/benchmark-modes/trace-replay.md: milliseconds
        "AIPerf sessions",
        {
            ARRIVAL: "timestamp",
            PROMPT_TOKENS: "input_length",
            OUTPUT_TOKENS: "output_length",
            SESSION: "session_id",
            DELAY: "delay",
        },
        unit="ms",
        marks=frozenset(["session_id"]),
    ),
    TraceFormat(  # github.com/uw-syfi/TraceLab: what its csv_export writes; milliseconds
        "TraceLab",
        {**TRACELAB, ARRIVAL: "arrival_time"},
        unit="ms",
        unused=frozenset([*IDS, "session_id"]),
        marks=ROUNDS,
        reads=tracelab_rounds,
        delay_unit="ms",
    ),
    TraceFormat(  # the same after its contexts are resolved
        "TraceLab, canonical",
        {**TRACELAB, ARRIVAL: "arrival_time_ms"},
        unused=frozenset(["request_id", "session_id"]),
        marks=ROUNDS | {"session_id"},
        reads=tracelab_rounds,
        delay_unit="ms",
    ),
    TraceFormat(  # requests of the same tools that are of no session; milliseconds
        "TraceLab, single requests",
        {ARRIVAL: "arrival_time", PROMPT_TOKENS: "input_len", OUTPUT_TOKENS: "output_len"},
        unit="ms",
        unused=frozenset(IDS),
    ),
    TraceFormat(  # github.com/inference-sim/inference-sim, sim/workload/tracev2.go: the CSV
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
        unit="us",
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
    TraceFormat(  # ShareGPT_V3_unfiltered_cleaned_split.json, as `vllm bench serve` reads it
        "ShareGPT",
        {"prompt": "prompt", OUTPUT_TOKENS: OUTPUT_TOKENS},
        unused=frozenset(IDS),
        marks=frozenset(["conversations"]),
        reads=first_rounds,
    ),
    TraceFormat(  # the requests of OpenAI's batch interface, and of `vllm run-batch`
        "OpenAI batch",
        {"prompt": "prompt", OUTPUT_TOKENS: OUTPUT_TOKENS},
        unused=frozenset(["custom_id", "method", "url"]),
        marks=frozenset(["body"]),
        reads=batch_bodies,
    ),
    TraceFormat(  # docs.vllm.ai, `vllm bench serve --dataset-name custom`
        "vLLM bench, custom",
        {"prompt": "prompt", OUTPUT_TOKENS: OUTPUT_TOKENS},
        marks=frozenset(["prompt"]),
    ),
    TraceFormat(  # github.com/vllm-project/guidellm: synthetic data and files of prompts
        "GuideLLM",
        {
            "prompt": "prompt",
            PROMPT_TOKENS: "prompt_tokens_count",
            OUTPUT_TOKENS: "output_tokens_count",
        },
        marks=frozenset(["prompt"]),
    ),
    TraceFormat(  # github.com/ai-dynamo/aiperf: its Mooncake format with texts, milliseconds
        "AIPerf, with texts",
        {ARRIVAL: "timestamp", "prompt": "text_input", OUTPUT_TOKENS: "output_length"},
        unit="ms",
        marks=frozenset(["text_input"]),
    ),
    TraceFormat(  # github.com/microsoft/vidur: data/processed_traces with arrivals
        "Vidur",
        {
            ARRIVAL: "arrived_at",
            PROMPT_TOKENS: "num_prefill_tokens",
            OUTPUT_TOKENS: "num_decode_tokens",
        },
        unused=frozenset(["num_total_tokens", "pd_ratio"]),
    ),
    TraceFormat(  # github.com/Mutinifni/splitwise-sim: traces/*.csv
        "Splitwise",
        {ARRIVAL: "arrival_timestamp", PROMPT_TOKENS: "prompt_size", OUTPUT_TOKENS: "token_size"},
        unused=frozenset(["request_id", "request_type", "application_id", BATCH_SIZE]),
    ),
    TraceFormat(  # github.com/casys-kaist/LLMServingSim: dataset/*.jsonl
        "LLMServingSim",
        {ARRIVAL: "arrival_time_ns", PROMPT_TOKENS: "input_toks", OUTPUT_TOKENS: "output_toks"},
        unit="ns",
        unused=frozenset(["input_tok_ids", "output_tok_ids"]),
    ),
    TraceFormat(  # github.com/HPMLL/BurstGPT: BurstGPT_*.csv; answers of 0 tokens are failures
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
    TraceFormat(  # github.com/alibaba/ServeGen: what its save_requests_to_csv writes
        "ServeGen",
        {ARRIVAL: "timestamp", PROMPT_TOKENS: "input_tokens", OUTPUT_TOKENS: "output_tokens"},
        unused=frozenset(["request_id"]),
    ),
    TraceFormat(  # the same with the times in our column, as its authors' tables are often kept
        "tokens in and out",
        {
            ARRIVAL: ARRIVAL,
            PROMPT_TOKENS: "input_tokens",
            OUTPUT_TOKENS: OUTPUT_TOKENS,
            "tenant": "client",
        },
        unused=frozenset([*IDS, "prompt_blocks_512", "prefix_hit_blocks"]),
    ),
    TraceFormat(  # ServeGen, data/offline/trace_d to _f.jsonl: submitted as one batch
        "ServeGen, offline",
        {PROMPT_TOKENS: "input_length", OUTPUT_TOKENS: "output_length"},
        unused=frozenset(["request_id", "type", "duration"]),
        at_once=True,
    ),
    TraceFormat(
        "own, with texts",
        {name: name for name in OWN if name != PROMPT_TOKENS},
        unused=frozenset(IDS),
        marks=frozenset(["prompt"]),
    ),
)


def format_by(
    columns: Mapping[str, str | int], formats: Sequence[TraceFormat] = ()
) -> list[TraceFormat]:
    """The format that `workload.columns` describes: our names to those of the file.

    `unit` is that of the times, `hash_tokens` the tokens of a block that has a hash; where nothing
    else is named the `formats` have those. Columns that are not named are left out. Raises
    ValueError for names that are not known and where lengths are missing.
    """
    named = {ours: str(theirs) for ours, theirs in columns.items()}
    unit, block = named.pop(UNIT, None), columns.get(HASH_TOKENS)
    named.pop(HASH_TOKENS, None)
    if unknown := [name for name in named if name not in OWN]:
        raise ValueError(
            f"workload.columns has {unknown[0]}, it may have {', '.join((UNIT, HASH_TOKENS, *OWN))}"
        )
    if unit is not None and unit not in UNITS:
        raise ValueError(f"workload.columns.unit={unit} is not one of {', '.join(UNITS)}")
    if block is not None and not (type(block) is int and block > 0):
        raise ValueError(f"workload.columns.hash_tokens={block} is no number of tokens")
    said: dict[str, object] = {} if unit is None else {"unit": unit, "is_stated": True}
    if block is not None:
        said |= {"hash_tokens": block, "is_hash_stated": True}
    if not named:
        return [replace(kind, **said) for kind in formats]  # type: ignore[arg-type]
    if OUTPUT_TOKENS not in named or not {PROMPT_TOKENS, "prompt"} & set(named):
        raise ValueError(
            f"workload.columns must have {OUTPUT_TOKENS}, and {PROMPT_TOKENS} or prompt"
        )
    marks = frozenset(named.values())
    return [TraceFormat("given", named, others=True, marks=marks, **said)]  # type: ignore[arg-type]


def format_of(path: Path, rows: pd.DataFrame, formats: Sequence[TraceFormat]) -> TraceFormat:
    """The first kind that has all columns that a file needs and understands all that it has.

    A file may lack the times of its kind. Raises ValueError with the kind that is nearest.
    """
    there = list(map(str, rows.columns))
    close = [kind for kind in formats if kind.needed <= set(there)]
    untimed = (kind for kind in formats if not kind.others and kind.lengths <= set(there))
    close += [kind for kind in untimed if kind not in close]
    for kind in close:
        if not kind.not_understood(there):
            return kind
    hint = columns_hint(there)
    if close:
        kind = min(close, key=lambda each: len(each.not_understood(there)))
        odd = ", ".join(_asked(it, kind) for it in kind.not_understood(there)[:_SHOWN])
        raise ValueError(
            f"{path} looks like a trace of the format {kind.name}, which has no columns {odd}; "
            f"{hint}"
        )
    shown = ", ".join(there[:_SHOWN]) + (", ..." if len(there) > _SHOWN else "")
    kind, lacks = _nearest(there, formats)
    if kind.others:
        raise ValueError(
            f"{path} has the columns {shown}, and not {', '.join(lacks)} of workload.columns"
        )
    raise ValueError(
        f"{path} has the columns {shown}; the nearest format is {kind.name}, of which it lacks "
        f"{', '.join(lacks)} ({LISTED}); {hint}"
    )


def _asked(column: str, kind: TraceFormat) -> str:
    """A column that a format does not have, and the one of it that is written alike."""
    alike = get_close_matches(column.lower(), kind.columns.values(), 1, 0.8)
    return f"{column} ({alike[0]}?)" if alike else column


def _nearest(there: Sequence[str], formats: Sequence[TraceFormat]) -> tuple[TraceFormat, list[str]]:
    """The format whose columns are most like those of a file, and what the file lacks of it."""

    def likeness(kind: TraceFormat) -> float:
        alike = [max(_alike(column, other) for other in there) for column in kind.needed]
        return sum(alike) / len(alike)

    kind = max(formats, key=likeness)
    return kind, sorted(kind.needed - set(there))


def _alike(one: str, other: str) -> float:
    return SequenceMatcher(None, one.lower(), other.lower()).ratio()
