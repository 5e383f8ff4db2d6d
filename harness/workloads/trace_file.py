"""Files of requests with their times: our own columns, or those of published traces as they are.

A trace is recognised by its columns, all of which must be understood; others are read as
`workload.columns` says. All become our own: `arrival_s`, `prompt_tokens` and
`output_tokens`, and where the file has them `service`, `tenant`, `app`, `deadline_s`,
`predicted_tokens`, the text `prompt`, and `hash_ids` of blocks of `HASH_TOKENS` tokens of a prompt
that others may begin with. What is damaged is refused with file and row.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness import inputs
from harness.workloads.prompts import MOST, read_rows, token_counts

Floats = NDArray[np.float64]

ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS = "arrival_s", "prompt_tokens", "output_tokens"
OPTIONAL = ("service", "tenant", "app", "deadline_s", "predicted_tokens", "prompt")
HASH_TOKENS = 512
"""Tokens of a block that has a hash (github.com/kvcache-ai/Mooncake)."""
CSV = frozenset({".csv"})
IDS = ("id", "request_id")
BATCH_SIZE = "batch_size"
HINT = (
    "workload.columns={arrival_s:COLUMN,prompt_tokens:COLUMN,output_tokens:COLUMN,unit:ms} says "
    "which columns to read, and leaves out the others"
)
NAME = (str, int, float, np.number)
"""What may name a service, a tenant or an application."""


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of trace: its column for each of ours, and what its times are.

    `to_s` makes seconds of its column of times; where there is none all requests come at once.
    Times from the `first` request on count from there. Requests that were never answered are
    listed with 0 tokens where it says so, and left out. `unused` are columns that it may have and
    that change no request; with `others` those are any. `marks` are columns that it must have.
    """

    name: str
    columns: Mapping[str, str]
    to_s: Callable[["pd.Series[float]"], "pd.Series[float]"] = lambda times: times
    first: bool = False
    lists_failed: bool = False
    unused: frozenset[str] = frozenset()
    others: bool = False
    marks: frozenset[str] = frozenset()
    needed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """What a file must have to be of this kind."""
        must = (ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS)
        kept = frozenset(theirs for ours, theirs in self.columns.items() if ours in must)
        object.__setattr__(self, "needed", kept | self.marks)

    def not_understood(self, there: Collection[str]) -> list[str]:
        """Columns of a file that this kind knows nothing of, in the file's order."""
        known = {*self.columns.values(), *self.unused, *self.marks}
        return [] if self.others else [column for column in there if column not in known]


def _clock_s(times: "pd.Series[float]") -> "pd.Series[float]":
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
    "date": _clock_s,
}
"""What `workload.columns` may call the unit of a time."""

OWN_COLUMNS = (ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS, *OPTIONAL)
FORMATS = (
    Format("own", {name: name for name in OWN_COLUMNS}, unused=frozenset(IDS)),
    Format(  # github.com/Azure/AzurePublicDataset: AzureLLMInferenceTrace_*.csv of 2023 to 2025
        "Azure LLM",
        {ARRIVAL: "TIMESTAMP", PROMPT_TOKENS: "ContextTokens", OUTPUT_TOKENS: "GeneratedTokens"},
        to_s=_clock_s,
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
        {ARRIVAL: "timestamp", PROMPT_TOKENS: "input_length", OUTPUT_TOKENS: "output_length"},
        unused=frozenset(["type", "turn", "hash_ids"]),
        marks=frozenset(["chat_id", "parent_chat_id"]),
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


def read_trace(path: Path, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The requests of a file, in our columns, by arrival; a row's number is in the index, from 1.

    `columns` are those of `format_by`, where the file is of no known kind.

    Raises ValueError with file and row for a time, a length or a number that is missing, negative
    or none, for rows out of order and for an id that is there twice; with the columns for a file of
    no known kind.
    """
    named = tuple(sorted(columns.items())) if columns else ()
    return _read(path, inputs.sha256(path), named)


@lru_cache(maxsize=4)  # the cells of a matrix mostly read the same one
def _read(path: Path, digest: str, named_columns: tuple[tuple[str, str], ...]) -> pd.DataFrame:
    rows = read_rows(path)
    if rows.empty:
        raise ValueError(f"{path} has no rows")
    rows.index = pd.RangeIndex(1, len(rows) + 1)
    _refuse_twice(path, rows)
    kind = format_of(path, rows, [format_by(dict(named_columns))] if named_columns else FORMATS)
    rows = _answered(path, kind, rows)
    found = {ours: rows[theirs] for ours, theirs in kind.columns.items() if theirs in rows}
    named = {ours: kind.columns[ours] for ours in found}
    out = pd.DataFrame(index=rows.index)
    out[ARRIVAL] = _arrivals(path, kind, found.get(ARRIVAL), rows)
    if PROMPT_TOKENS in found:
        out[PROMPT_TOKENS] = _tokens(path, found[PROMPT_TOKENS], named[PROMPT_TOKENS])
    else:
        texts = found["prompt"].rename("prompt").reset_index(drop=True)
        out[PROMPT_TOKENS] = token_counts(str(path), texts.to_frame())
    out[OUTPUT_TOKENS] = _tokens(path, found[OUTPUT_TOKENS], named[OUTPUT_TOKENS])
    for name in ("deadline_s", "predicted_tokens"):
        if name in found:
            out[name] = _numbers(path, found[name], named[name], least=0.0, may_lack=True)
    if "predicted_tokens" in out:
        most = (out["predicted_tokens"] > MOST).to_numpy()
        _refuse(path, found["predicted_tokens"], most, "predicted_tokens", f"is more than {MOST:,}")
    for name in ("service", "tenant", "app", "prompt"):
        if name in found:
            out[name] = found[name]
            _check_names(path, found[name], named[name], is_text=name == "prompt")
    if "hash_ids" in found:
        out["hash_ids"] = found["hash_ids"]
        odd = ~out["hash_ids"].map(_are_hashes).to_numpy(bool)
        _refuse(path, out["hash_ids"], odd, named["hash_ids"], "is no list of numbers")
    _check_deadlines(path, out)
    return out


def _answered(path: Path, kind: Format, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of requests that were answered. Raises ValueError for none, and for rows of several."""
    if BATCH_SIZE in kind.unused and BATCH_SIZE in rows:
        more = (rows[BATCH_SIZE] != 1).to_numpy()
        _refuse(path, rows[BATCH_SIZE], more, BATCH_SIZE, "is not 1, and a row is one request")
    if not kind.lists_failed:
        return rows
    answered = rows[rows[kind.columns[OUTPUT_TOKENS]] != 0]
    if answered.empty:
        raise ValueError(f"{path} has failed requests alone, of 0 {kind.columns[OUTPUT_TOKENS]}")
    return answered


def format_of(path: Path, rows: pd.DataFrame, formats: Sequence[Format] = FORMATS) -> Format:
    """The first kind that has all columns that a file needs and understands all that it has.

    Raises ValueError for none, with the columns that the closest kind does not understand.
    """
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


def _arrivals(
    path: Path, kind: Format, times: "pd.Series[float] | None", rows: pd.DataFrame
) -> "pd.Series[float]":
    """Seconds at which requests come, ascending."""
    if times is None:
        return pd.Series(0.0, rows.index)
    column = kind.columns[ARRIVAL]
    is_clock = kind.to_s is _clock_s
    given = times if is_clock else _numbers(path, times, column, least=0.0)
    arrival_s = kind.to_s(given).astype(float)
    _refuse(path, times, arrival_s.isna().to_numpy(), column, "is no time")
    if kind.first:
        arrival_s = arrival_s - arrival_s.iloc[0]
    back = np.diff(arrival_s.to_numpy(), prepend=-np.inf) < 0
    _refuse(path, times, back, column, "is before that of the row ahead: sort the file by it")
    return arrival_s


def _tokens(path: Path, given: "pd.Series[float]", column: str) -> "pd.Series[int]":
    """Whole numbers from 1 on."""
    numbers = _numbers(path, given, column, least=1.0)
    odd = (numbers % 1 != 0) | (numbers > MOST)
    _refuse(path, given, odd.to_numpy(), column, "is no number of tokens")
    return numbers.astype(np.int64)


def _numbers(
    path: Path, given: "pd.Series[float]", column: str, *, least: float, may_lack: bool = False
) -> "pd.Series[float]":
    """Finite numbers from `least` on; NaN only where a row may lack one."""
    lacks = given.isna()
    is_plain = given.dtype.kind in "iuf"
    plain = given if is_plain else given.astype(object).where(given.map(_may_be_number))
    numbers = pd.to_numeric(plain, errors="coerce").astype(float)
    _refuse(path, given, (lacks & (not may_lack)).to_numpy(), column, "is missing")
    is_none = ~np.isfinite(numbers.to_numpy()) & ~lacks.to_numpy()
    _refuse(path, given, is_none, column, "is no number")
    _refuse(path, given, (numbers < least).to_numpy(), column, f"must be at least {least:g}")
    return numbers


def _may_be_number(value: object) -> bool:
    """Whether a float can be made of it, as of the longest numbers of JSON none can."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return False
    return isinstance(value, str | int | float | np.number) and not isinstance(value, bool)


def _check_names(path: Path, given: "pd.Series[Any]", column: str, *, is_text: bool) -> None:
    """Refuse a row that has none, or something else."""
    _refuse(path, given, given.isna().to_numpy(), column, "is missing")
    kind, said = (str, "is no text") if is_text else (NAME, "is neither a text nor a number")
    odd = ~given.map(lambda value: isinstance(value, kind)).to_numpy(bool)
    _refuse(path, given, odd, column, said)


def _are_hashes(value: object) -> bool:
    return isinstance(value, list) and all(type(number) is int for number in value)


def _check_deadlines(path: Path, out: pd.DataFrame) -> None:
    if "deadline_s" in out:
        late = (out["deadline_s"] <= out[ARRIVAL]).to_numpy()
        _refuse(path, out["deadline_s"], late, "deadline_s", "is no later than the arrival")


def _refuse_twice(path: Path, rows: pd.DataFrame) -> None:
    """Refuse a column that is there twice, and a row with the id of an earlier one."""
    if CSV & set(path.suffixes):
        header = pd.read_csv(path, header=None, nrows=1, dtype=str).iloc[0]
        if header.duplicated().any():
            raise ValueError(f"{path} has the column {header[header.duplicated()].iloc[0]} twice")
    for column in IDS:
        if column in rows:
            _refuse(
                path,
                rows[column],
                rows[column].astype(str).duplicated().to_numpy(),
                column,
                "came before",
            )


def _refuse(
    path: Path, values: "pd.Series[float]", bad: NDArray[np.bool_], column: str, why: str
) -> None:
    if bad.any():
        place = int(np.argmax(bad))
        value = values.tolist()[place]
        said = "" if why == "is missing" else f" {value!r:.60}"
        raise ValueError(f"{path} row {values.index[place]}: {column}{said} {why}")
