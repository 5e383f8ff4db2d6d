"""Files of requests with their times: our own columns, or those of published traces as they are.

All columns (`trace_formats`) become our own (`trace_columns`). What is damaged is refused with file
and row.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.config import inputs
from harness.workloads.prefixes import hash_tokens, prefixes_of_hashes
from harness.workloads.prompts import MOST, token_counts
from harness.workloads.row_files import read_rows
from harness.workloads.trace_columns import (
    ARRIVAL,
    DELAY,
    HASHES,
    IDS,
    KEPT,
    NOTES,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    SESSION,
    SHARED,
    SHARES,
)
from harness.workloads.trace_formats import (
    BATCH_SIZE,
    FORMATS,
    HASH_TOKENS,
    TraceFormat,
    format_by,
    format_of,
)
from harness.workloads.trace_sessions import turns
from harness.workloads.trace_times import DATE, PER_S, TraceTimes, read_times
from harness.workloads.trace_values import numbers, refuse, tokens
from harness.workloads.workload import Ints

TIMES = "times"
"""Of a trace's `attrs`: the unit of its times in words; None where it has none."""
IS_CALENDAR = "is_calendar"
"""Of a trace's `attrs`: whether its times count from 1970."""
LEFT_OUT = "left_out"
"""Of a trace's `attrs`: how many rows of the file are left out, as its notes say."""
NO_OUTPUT = ("refuse", "drop")
_OFFER = "; workload.no_output=drop leaves out requests without an answer"
_NAME = (str, int, float, np.number)
"""What may name a service, a tenant or an application."""


def read_trace(
    path: Path, columns: Mapping[str, str | int] | None = None, no_output: str = "refuse"
) -> pd.DataFrame:
    """The requests of a file, in our columns, by arrival; a row's number is in the index, from 1.

    `columns` are those of `format_by`. Rows with 0 output tokens, or none, are refused or dropped.
    Raises ValueError with file and row for what is damaged, and with the columns for a file of no
    known kind.
    """
    named = tuple(sorted(columns.items())) if columns else ()
    return _read(path, inputs.sha256(path), named, no_output)


@lru_cache(maxsize=4)  # the cells of a matrix mostly read the same one
def _read(
    path: Path, digest: str, given_columns: tuple[tuple[str, str | int], ...], no_output: str
) -> pd.DataFrame:
    rows = read_rows(path)
    if rows.empty:
        there = (
            f", only the columns {', '.join(map(str, rows.columns))}" if len(rows.columns) else ""
        )
        raise ValueError(f"{path} has no rows{there}")
    in_file = len(rows)
    rows.index = pd.RangeIndex(1, in_file + 1)
    kind = format_of(path, rows, format_by(dict(given_columns), FORMATS))
    rows = _answered(path, kind, rows)
    rows = rows if kind.reads is None else kind.reads(path, rows)
    _refuse_twice(path, kind, rows)
    rows = _with_output(path, kind, rows, no_output)
    found = {ours: rows[theirs] for ours, theirs in kind.columns.items() if theirs in rows}
    named = {ours: kind.columns[ours] for ours in found}
    found = turns(path, found, named) if SESSION in found else found
    out = pd.DataFrame(index=rows.index)
    out.attrs = {NOTES: rows.attrs.get(NOTES, ()), TIMES: None, IS_CALENDAR: False}
    out.attrs[LEFT_OUT] = in_file - len(rows)
    if kind.others and (unread := [it for it in rows if it not in kind.columns.values()]):
        _note(out, f"columns that were not read: {', '.join(map(str, unread))}")
    _add_times(path, kind, out, found)
    if PROMPT_TOKENS in found:
        least = 0.0 if KEPT in found else 1.0
        out[PROMPT_TOKENS] = tokens(path, found[PROMPT_TOKENS], named[PROMPT_TOKENS], least=least)
    else:
        texts = found["prompt"].rename("prompt").reset_index(drop=True)
        out[PROMPT_TOKENS] = token_counts(str(path), texts.to_frame())
    offer = _OFFER if no_output == "refuse" else ""
    out[OUTPUT_TOKENS] = tokens(path, found[OUTPUT_TOKENS], named[OUTPUT_TOKENS], remedy=offer)
    _add_optional(path, out, found, named)
    _check_deadlines(path, out)
    return out


def _note(rows: pd.DataFrame, said: str) -> None:
    rows.attrs[NOTES] = (*rows.attrs.get(NOTES, ()), said)


def _answered(path: Path, kind: TraceFormat, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of requests that were answered. Raises ValueError for none, and for rows of several."""
    if BATCH_SIZE in kind.unused and BATCH_SIZE in rows:
        more = (rows[BATCH_SIZE] != 1).to_numpy()
        refuse(path, rows[BATCH_SIZE], more, BATCH_SIZE, "is not 1, and a row is one request")
    if not kind.lists_failed:
        return rows
    column = kind.columns[OUTPUT_TOKENS]
    answered = rows[rows[column] != 0]
    if answered.empty:
        raise ValueError(f"{path} has failed requests alone, of 0 {column}")
    if left := len(rows) - len(answered):
        _note(answered, f"{left} of {len(rows)} requests failed, with 0 {column}, and are left out")
    return answered


def _with_output(path: Path, kind: TraceFormat, rows: pd.DataFrame, no_output: str) -> pd.DataFrame:
    """Rows that have output tokens; of sessions those that have them in every turn."""
    column = kind.columns[OUTPUT_TOKENS]
    if no_output == "refuse" or column not in rows:
        return rows
    given = rows[column]
    bad = given.isna() | (pd.to_numeric(given.astype(object), errors="coerce") == 0)
    session = kind.columns.get(SESSION, "")
    if session in rows:
        bad |= rows[session].notna() & rows[session].isin(rows[session][bad])
    if bad.all():
        raise ValueError(f"{path} has requests without an answer alone, of 0 {column}")
    kept = rows[~bad]
    kept.attrs = dict(rows.attrs)
    if bad.any():
        _note(
            kept, f"{int(bad.sum())} of {len(rows)} requests have no output tokens and are left out"
        )
    return kept


def _add_times(
    path: Path, kind: TraceFormat, out: pd.DataFrame, found: Mapping[str, "pd.Series[Any]"]
) -> None:
    """Seconds of arrivals, ascending, and of delays, with tokens of a hash's block."""
    block = _block(path, kind, out, found)
    out.attrs[HASH_TOKENS] = block
    out[ARRIVAL] = pd.Series(0.0, out.index)
    if ARRIVAL in found:
        own = np.ones(len(out), np.bool_)
        if SESSION in found:
            own = ~found[SESSION].duplicated().to_numpy()
        times = read_times(
            path,
            found[ARRIVAL],
            kind.columns[ARRIVAL],
            unit=kind.unit,
            is_stated=kind.is_stated,
            kind=kind.name,
            is_documented=HASHES not in found or block == kind.hash_tokens,
            own=own,
        )
        out[ARRIVAL] = _ascending(path, kind, times, found[ARRIVAL], own)
        out.attrs[TIMES] = times.said
        out.attrs[IS_CALENDAR] = times.is_calendar and not kind.first
    elif kind.at_once:
        out.attrs[TIMES] = "one batch"
    if DELAY in found:
        unit = "s" if kind.unit == DATE else kind.delay_unit or kind.unit
        column = kind.columns[DELAY]
        out[DELAY] = numbers(path, found[DELAY], column, least=0.0) / PER_S[unit]


def _ascending(
    path: Path,
    kind: TraceFormat,
    times: TraceTimes,
    given: "pd.Series[Any]",
    own: "np.ndarray[Any, Any]",
) -> "pd.Series[float]":
    """The times, refused where one is before that of the row ahead."""
    arrival_s = times.seconds.astype(float)
    if kind.first:
        arrival_s = arrival_s - arrival_s.iloc[0]
    back = np.zeros(len(given), np.bool_)
    back[own] = np.diff(arrival_s.to_numpy()[own], prepend=-np.inf) < 0
    why = "is before that of the row ahead: sort the file by it"
    refuse(path, given, back, kind.columns[ARRIVAL], why)
    return arrival_s


def _block(
    path: Path, kind: TraceFormat, out: pd.DataFrame, found: Mapping[str, "pd.Series[Any]"]
) -> int:
    """Tokens of a block that has a hash, as prompts and their hashes agree, and a note of it.

    Raises ValueError where no size agrees with all rows.
    """
    if HASHES not in found or PROMPT_TOKENS not in found:
        return kind.hash_tokens
    column = kind.columns[HASHES]
    lists = found[HASHES].map(_as_hashes)
    refuse(path, found[HASHES], lists.isna().to_numpy(), column, "is no list of numbers")
    out[HASHES] = lists
    hashes = lists.map(len).to_numpy(np.int64)
    given = tokens(path, found[PROMPT_TOKENS], kind.columns[PROMPT_TOKENS])
    prompt = np.asarray(given, np.int64)
    if SESSION in found:
        raise ValueError(f"{path} has sessions and {column}: which of them prompts begin with?")
    fits = hash_tokens(prompt, hashes, kind.hash_tokens)
    more = hashes > -(-prompt // kind.hash_tokens)
    if kind.is_hash_stated or (kind.heads_hashed and fits != kind.hash_tokens):
        fits = None if more.any() else kind.hash_tokens
    if fits is None:
        odd = more if more.any() else hashes != -(-prompt // kind.hash_tokens)
        place = int(np.argmax(odd))
        raise ValueError(
            f"{path} row {out.index[place]}: {column} has {hashes[place]} hashes for "
            f"{prompt[place]} tokens, and no size of a block fits all rows: say "
            "'workload.columns={hash_tokens:N}', or name the columns to read without it"
        )
    _note(out, f"a hash of {column} is read as {fits} tokens")
    return fits


def _as_hashes(value: object) -> list[int] | None:
    """The numbers of a list, also of one written as text; None for what is none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        return None
    return value


def _add_optional(
    path: Path, out: pd.DataFrame, found: Mapping[str, "pd.Series[Any]"], named: Mapping[str, str]
) -> None:
    """Columns that a file may have, checked."""
    _add_numbers(path, out, found, named)
    for name in ("service", "tenant", "app", "prompt"):
        if name in found:
            out[name] = found[name]
            _check_names(path, found[name], named[name], is_text=name == "prompt")
    if KEPT in found:
        out[KEPT] = tokens(path, found[KEPT], named[KEPT], least=0.0)
    for name in (SESSION, SHARES, SHARED):
        if name in found:
            out[name] = found[name]


def _add_numbers(
    path: Path, out: pd.DataFrame, found: Mapping[str, "pd.Series[Any]"], named: Mapping[str, str]
) -> None:
    """Those of them that are numbers."""
    for name, least in (("deadline_s", 0.0), ("predicted_tokens", 0.0), ("priority", -MOST)):
        if name in found:
            lacks = name != "priority"
            out[name] = numbers(path, found[name], named[name], least=least, may_lack=lacks)
    for name in ("predicted_tokens", "priority"):
        if name in out:
            most = (out[name] > MOST).to_numpy()
            refuse(path, found[name], most, named[name], f"is more than {MOST:,}")
    if "priority" in out:
        odd = (out["priority"] % 1 != 0).to_numpy()
        refuse(path, found["priority"], odd, named["priority"], "is no whole number")


def _check_names(path: Path, given: "pd.Series[Any]", column: str, *, is_text: bool) -> None:
    """Refuse a row that has none, or something else."""
    refuse(path, given, given.isna().to_numpy(), column, "is missing")
    kind, said = (str, "is no text") if is_text else (_NAME, "is neither a text nor a number")
    odd = ~given.map(lambda value: isinstance(value, kind)).to_numpy(bool)
    refuse(path, given, odd, column, said)


def _check_deadlines(path: Path, out: pd.DataFrame) -> None:
    if "deadline_s" in out:
        late = (out["deadline_s"] <= out[ARRIVAL]).to_numpy()
        refuse(path, out["deadline_s"], late, "deadline_s", "is no later than the arrival")


def _refuse_twice(path: Path, kind: TraceFormat, rows: pd.DataFrame) -> None:
    """Refuse a row with the id of an earlier one, unless rows are turns of sessions."""
    if kind.columns.get(SESSION, "") in rows:
        return
    for column in IDS:
        if column in rows and column in kind.unused:
            twice = rows[column].astype(str).duplicated().to_numpy()
            why = "came before; a column of sessions is called session"
            refuse(path, rows[column], twice, column, why)


def declared_prefixes(rows: pd.DataFrame) -> tuple[Ints, Ints]:
    """What prompts have in common, where the file says so; else no columns."""
    none = np.zeros(0, np.int64)
    if HASHES in rows:
        prompts, blocks = rows[PROMPT_TOKENS].to_numpy(np.int64), rows[HASHES].tolist()
        return prefixes_of_hashes(blocks, rows.attrs[HASH_TOKENS], prompts)
    if SHARED not in rows:
        return none, none
    place = pd.Series(np.arange(len(rows)), rows.index)
    first = place.groupby(rows[SHARES]).transform("first")
    is_later = ((rows[SHARES] != "") & (first < place)).to_numpy()
    shared = rows[SHARED].clip(upper=rows[PROMPT_TOKENS]).to_numpy(np.int64)
    common = np.minimum(shared, shared[first])
    return np.where(is_later, first, -1), np.where(is_later, common, 0)
