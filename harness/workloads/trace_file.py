"""Files of requests with their times: our own columns, or those of published traces as they are.

All columns (`trace_formats`) become our own: `arrival_s`, `prompt_tokens` and `output_tokens`, and
where the file has them `service`, `tenant`, `app`, `priority`, `deadline_s`, `predicted_tokens`,
the text `prompt`, `hash_ids` of blocks of a prompt that others may begin with, and turns of
sessions. What is damaged is refused with file and row.
"""

import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.config import inputs
from harness.workloads.prompts import MOST, read_rows, token_counts
from harness.workloads.trace_formats import (
    ARRIVAL,
    BATCH_SIZE,
    DELAY,
    FORMATS,
    IDS,
    NOTES,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    SESSION,
    SHARED,
    SHARES,
    Format,
    clock_s,
    format_by,
    format_of,
)

HASH_TOKENS = "hash_tokens"
"""Of a trace's `attrs`: tokens of a block that has a hash."""
HAS_TIMES = "has_times"
"""Of a trace's `attrs`: whether the file says when its requests come."""
CSV = frozenset({".csv"})
NAME = (str, int, float, np.number)
"""What may name a service, a tenant or an application."""


def read_trace(path: Path, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The requests of a file, in our columns, by arrival; a row's number is in the index, from 1.

    `columns` are those of `format_by`, where the file is of no known kind. Raises ValueError with
    file and row for what is damaged, and with the columns for a file of no known kind.
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
    rows = rows if kind.reads is None else kind.reads(path, rows)
    found = {ours: rows[theirs] for ours, theirs in kind.columns.items() if theirs in rows}
    named = {ours: kind.columns[ours] for ours in found}
    out = pd.DataFrame(index=rows.index)
    out.attrs = {
        NOTES: rows.attrs.get(NOTES, ()),
        HASH_TOKENS: kind.hash_tokens,
        HAS_TIMES: ARRIVAL in found or kind.at_once,
    }
    out[ARRIVAL] = _arrivals(path, kind, found.get(ARRIVAL), rows)
    if PROMPT_TOKENS in found:
        out[PROMPT_TOKENS] = _tokens(path, found[PROMPT_TOKENS], named[PROMPT_TOKENS])
    else:
        texts = found["prompt"].rename("prompt").reset_index(drop=True)
        out[PROMPT_TOKENS] = token_counts(str(path), texts.to_frame())
    out[OUTPUT_TOKENS] = _tokens(path, found[OUTPUT_TOKENS], named[OUTPUT_TOKENS])
    _add_optional(path, out, found, named)
    _check_deadlines(path, out)
    return out


def _add_optional(
    path: Path, out: pd.DataFrame, found: Mapping[str, Any], named: Mapping[str, str]
) -> None:
    """Columns that a file may have, checked."""
    _add_numbers(path, out, found, named)
    for name in ("service", "tenant", "app", "prompt"):
        if name in found:
            out[name] = found[name]
            _check_names(path, found[name], named[name], is_text=name == "prompt")
    if "hash_ids" in found:
        out["hash_ids"] = found["hash_ids"]
        odd = ~out["hash_ids"].map(_are_hashes).to_numpy(bool)
        _refuse(path, out["hash_ids"], odd, named["hash_ids"], "is no list of numbers")
    for name in (SESSION, SHARES, SHARED):
        if name in found:
            out[name] = found[name]


def _add_numbers(
    path: Path, out: pd.DataFrame, found: Mapping[str, Any], named: Mapping[str, str]
) -> None:
    """Those of them that are numbers."""
    for name, least in (("deadline_s", 0.0), ("predicted_tokens", 0.0), ("priority", -MOST)):
        if name in found:
            lacks = name != "priority"
            out[name] = _numbers(path, found[name], named[name], least=least, may_lack=lacks)
    for name in ("predicted_tokens", "priority"):
        if name in out:
            most = (out[name] > MOST).to_numpy()
            _refuse(path, found[name], most, named[name], f"is more than {MOST:,}")
    if "priority" in out:
        odd = (out["priority"] % 1 != 0).to_numpy()
        _refuse(path, found["priority"], odd, named["priority"], "is no whole number")
    if DELAY in found:
        out[DELAY] = _numbers(path, found[DELAY], "delay", least=0.0)


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


def _arrivals(
    path: Path, kind: Format, times: "pd.Series[float] | None", rows: pd.DataFrame
) -> "pd.Series[float]":
    """Seconds at which requests come, ascending."""
    if times is None:
        return pd.Series(0.0, rows.index)
    column = kind.columns[ARRIVAL]
    is_clock = kind.to_s is clock_s
    given = times if is_clock else _numbers(path, times, column, least=0.0)
    arrival_s = kind.to_s(given).astype(float)
    _refuse(path, times, arrival_s.isna().to_numpy(), column, "is no time")
    if kind.first:
        arrival_s = arrival_s - arrival_s.iloc[0]
    own = arrival_s[~rows[SESSION].duplicated()] if SESSION in rows else arrival_s
    back = np.zeros(len(times), np.bool_)
    back[arrival_s.index.get_indexer(own.index)] = np.diff(own.to_numpy(), prepend=-np.inf) < 0
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
