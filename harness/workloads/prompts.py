"""Prompt lengths: from a shipped profile, a dataset hub, or a local file. Never a substitute."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.config import inputs
from harness.config.hub import Pinned, pinned
from harness.config.paths import PROFILES
from harness.workloads.ecdf import length_files, load_lengths
from harness.workloads.row_files import read_rows

Ints = NDArray[np.int64]

WORDS = PROFILES / "tokens_per_word.json"
TOKENS_COLUMN = "prompt_tokens"
MOST = 2**31
"""Tokens of a prompt; more is no length but a damaged value."""
TEXT_COLUMNS = ("prompt", "instruction", "input")


@dataclass(frozen=True, slots=True)
class PromptLengths:
    """Prompt lengths in tokens, and the sha256 of what they come from."""

    tokens: Ints
    datasets: dict[str, str]


class PromptSource:
    """Where prompt lengths come from.

    `source` is "profile" (the length profile `profile`, sampled), "hub" (`hub_dataset`,
    NAME@REVISION, split `hub_split`, through Hugging Face datasets) or the path of a parquet, CSV
    or JSONL file. Rows of a dataset have `prompt_tokens`, or text in `prompt` or in `instruction`
    and `input`; text is counted as words x the shipped ratio of tokens to words. `files` are
    the ones that are read.
    """

    def __init__(self, *, source: str, profile: str, hub_dataset: str, hub_split: str) -> None:
        self._source, self._profile = source, profile
        self._rows: int | None = None
        self._hub_dataset, self._hub_split = hub_dataset, hub_split
        self.files: Mapping[str, str] = {}
        if source == "profile":
            load_lengths(profile)
            self.files = length_files([profile])
        elif source == "hub":
            pinned("workload.hub_dataset", hub_dataset)
            self.files = inputs.digests([WORDS])
        else:
            # What is read must not depend on the folder that a worker process is in.
            self._source = str(Path(source).resolve())
            if not Path(source).is_file():
                raise ValueError(f"workload.source={source} is neither profile, hub nor a file")
            self.files = inputs.digests([WORDS, Path(source)])
            self._rows = count_rows(self._source, inputs.sha256(Path(source)))

    def refuse_fewer(self, count: int) -> None:
        """Raise ValueError where a file has fewer prompts; a hub is asked when they are drawn."""
        if self._rows is not None:
            refuse_fewer(self._source, self._rows, count)

    def draw(self, count: int, rng: np.random.Generator) -> PromptLengths:
        """`count` prompt lengths: sampled from the profile, or distinct rows of the dataset."""
        if self._source == "profile":
            tokens = load_lengths(self._profile).sample(count, rng)
            return PromptLengths(tokens, dict(self.files))
        if self._source == "hub":
            asked = pinned("workload.hub_dataset", self._hub_dataset)
            name, rows = self._hub_dataset, _read_hub(asked, self._hub_split)
        else:
            name, rows = self._source, read_rows(Path(self._source))
        tokens = token_counts(name, rows)
        refuse_fewer(name, len(tokens), count)
        digest = hashlib.sha256(np.ascontiguousarray(tokens).tobytes()).hexdigest()
        return PromptLengths(rng.permutation(tokens)[:count], {name: digest, **self.files})


def _read_hub(dataset: Pinned, split: str) -> pd.DataFrame:
    """Rows of a revision of a dataset of the hub, from the cache where it is there."""
    import datasets  # here because it takes seconds to import and only this branch needs it

    # Its retries are told to the terminal; what came of them is told below.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        rows = datasets.load_dataset(dataset.name, split=split, revision=dataset.revision)
    except Exception as error:
        raise ValueError(
            f"the split {split} of the dataset {'@'.join(dataset)} is neither cached here nor to "
            f"be had from the hub ({type(error).__name__}); where there is a network, get it with: "
            "python -c "
            f'\'import datasets; datasets.load_dataset("{dataset.name}", split="{split}", '
            f'revision="{dataset.revision}")\''
        ) from error
    return pd.DataFrame({name: rows[name] for name in rows.column_names if name in _KNOWN})


_KNOWN = (TOKENS_COLUMN, *TEXT_COLUMNS)


@cache
def count_rows(file: str, sha256: str) -> int:
    """How many rows a file has, counted before a run begins, once for each content."""
    return len(token_counts(file, read_rows(Path(file))))


def refuse_fewer(name: str, there: int, asked: int) -> None:
    """Raise ValueError where a file or dataset has fewer prompts than are asked for."""
    if there < asked:
        raise ValueError(f"{name} has {there} prompts, {asked} were asked for")


def token_counts(name: str, rows: pd.DataFrame) -> Ints:
    """Tokens of every row; ValueError with the row and the value for a corrupt one."""
    if rows.empty:
        raise ValueError(f"{name} has no rows")
    if TOKENS_COLUMN in rows:
        given = rows[TOKENS_COLUMN]
        whole = given.map(as_count)
        _refuse_bad_row(name, given, whole < 1, TOKENS_COLUMN)
        return np.asarray(whole, np.int64)
    text = [column for column in TEXT_COLUMNS if column in rows]
    # A prompt is the whole text; an instruction goes with its input.
    columns = text[:1] if "prompt" in text else text
    if not columns:
        there = ", ".join(map(str, rows.columns))
        raise ValueError(f"{name} lacks the columns {', '.join(_KNOWN)}, but {there}")
    words = np.zeros(len(rows), np.int64)
    for column in columns:
        counted = rows[column].map(_words)
        _refuse_bad_row(name, rows[column], counted < 0, column)
        words += np.asarray(counted, np.int64)
    _refuse_bad_row(name, rows[columns[0]], pd.Series(words < 1, rows.index), columns[0])
    ratio = inputs.read_json(WORDS)["tokens_per_word"]
    return np.asarray(np.maximum(1, np.rint(words * ratio)), np.int64)


def _refuse_bad_row(
    name: str, values: "pd.Series[Any]", bad: "pd.Series[bool]", column: str
) -> None:
    if bad.any():
        row = int(np.argmax(bad.to_numpy()))
        raise ValueError(f"{name} row {row + 1}: {column} is {values.tolist()[row]!r:.60}")


def as_count(value: object) -> int:
    """A whole number of tokens, or 0 for what is none."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return int(value) if is_number and 1 <= value <= MOST and value % 1 == 0 else 0  # type: ignore


def _words(text: object) -> int:
    """Words between white space; 0 where nothing is given, -1 for what is no text."""
    if isinstance(text, str):
        return len(text.split())
    return 0 if text is None or text != text else -1
