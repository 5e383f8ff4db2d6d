"""Rows of published files that are no columns of times and lengths yet, made such rows.

What was assumed or left out is listed in `attrs[NOTES]`; a row keeps its number in the index.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.workloads.prompts import token_counts
from harness.workloads.trace_columns import DELAY, NOTES, SESSION, SHARED, SHARES
from harness.workloads.trace_values import numbers


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
    return noted(found.drop(columns="answer"), notes)


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
    return noted(frame, ["answers are as long as max_completion_tokens or max_tokens"])


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
    return noted(found, said)


def tracelab_rounds(path: Path, rows: pd.DataFrame) -> pd.DataFrame:
    """TraceLab: rounds of sessions in order, each with the wait after the answer before it."""
    ours = {"session_id" if "session_id" in rows else "id": SESSION}
    found = rows.rename(columns=ours)
    number = numbers(path, rows["round_idx"], "round_idx", least=0.0)
    keys = pd.DataFrame({"session": pd.factorize(found[SESSION])[0], "round": number})
    if (twice := keys.duplicated()).any():
        row = rows.index[int(np.argmax(twice.to_numpy()))]
        raise ValueError(f"{path} row {row}: its session has this round_idx before")
    found = found.loc[keys.sort_values(["session", "round"], kind="stable").index]
    column = "tool_wait_after_ms"
    waits = numbers(path, found[column], column, least=0.0)
    found[DELAY] = waits.groupby(found[SESSION].to_numpy()).shift(1)
    return noted(found, [])


def noted(rows: pd.DataFrame, notes: Sequence[str]) -> pd.DataFrame:
    """The rows with notes."""
    rows.attrs[NOTES] = tuple(notes)
    return rows
