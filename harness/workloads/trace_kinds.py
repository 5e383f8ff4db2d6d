"""Published files of requests whose rows are not yet columns of times and lengths.

Each function makes plain rows of those of a file, and lists in `attrs[NOTES]` what it assumed or
left out. A row keeps its number in the index. What is damaged is refused with file and row.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.workloads.prompts import token_counts

NOTES = "notes"
SESSION, DELAY = "session", "delay_s"
"""Columns of turns: the session, and seconds from the answer before."""
SHARES, SHARED = "shares", "shared_tokens"
"""Columns of prompts that begin alike: the name of their beginning, and its tokens."""


def first_rounds(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """ShareGPT: the first prompt of each conversation and its answer, as `vllm bench` samples it.

    Conversations of one turn are left out. Answers are counted as words are.
    """
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
