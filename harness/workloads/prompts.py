"""Prompt lengths: from a shipped profile, a dataset hub, or a local file. Never a substitute."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.predictors.ecdf import LENGTHS, load_lengths

Ints = NDArray[np.int64]

TOKENS_COLUMN = "prompt_tokens"
TEXT_COLUMNS = ("prompt", "instruction", "input")


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompt lengths in tokens, and the sha256 of what they come from."""

    tokens: Ints
    datasets: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSource:
    """Where prompt lengths come from.

    `source` is "profile" (the length profile `profile`, sampled), "hub" (`hub_dataset`, split
    `hub_split`, through Hugging Face datasets) or the path of a parquet or JSONL file. Rows of a
    dataset have `prompt_tokens`, or text in `prompt` or in `instruction` and `input`; text is
    counted as words x the shipped ratio of tokens to words.
    """

    source: str
    profile: str
    hub_dataset: str
    hub_split: str

    def draw(self, count: int, rng: np.random.Generator) -> Prompts:
        """`count` prompt lengths: sampled from the profile, or rows of the dataset without repetition.

        Raises ValueError for a missing dataset (with the command that gets it), a corrupt row or
        too few rows.
        """
        if self.source == "profile":
            path = LENGTHS / f"{self.profile}.json"
            tokens = load_lengths(self.profile).sample(count, rng)
            return Prompts(tokens, {self.profile: hashlib.sha256(path.read_bytes()).hexdigest()})
        name, rows = (
            self._hub() if self.source == "hub" else (self.source, _read_file(Path(self.source)))
        )
        tokens = _token_counts(name, rows)
        if len(tokens) < count:
            raise ValueError(f"{name} has {len(tokens)} prompts, {count} were asked for")
        digest = hashlib.sha256(np.ascontiguousarray(tokens).tobytes()).hexdigest()
        return Prompts(rng.permutation(tokens)[:count], {name: digest})

    def _hub(self) -> tuple[str, pd.DataFrame]:
        import datasets  # here because it takes seconds to import and only this branch needs it

        try:
            rows = datasets.load_dataset(self.hub_dataset, split=self.hub_split)
        except Exception as error:
            raise ValueError(
                f"the dataset {self.hub_dataset} is neither cached here nor to be had from the hub "
                f"({type(error).__name__}); get it with: hf download --repo-type dataset {self.hub_dataset}"
            ) from error
        return self.hub_dataset, pd.DataFrame(
            {name: rows[name] for name in rows.column_names if name in _KNOWN}
        )


_KNOWN = (TOKENS_COLUMN, *TEXT_COLUMNS)


def _read_file(path: Path) -> pd.DataFrame:
    """Rows of a parquet or JSONL file."""
    if not path.is_file():
        raise ValueError(f"workload.source={path} is neither profile, hub nor a file")
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return pd.DataFrame(
        [_row_of(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    )


def _row_of(path: Path, number: int, line: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path} line {number} is not JSON: {line[:60]!r}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{path} line {number} is not an object: {line[:60]!r}")
    return row


def _token_counts(name: str, rows: pd.DataFrame) -> Ints:
    """Tokens of every row; ValueError with the row and the value for a corrupt one."""
    if TOKENS_COLUMN in rows:
        values = pd.to_numeric(rows[TOKENS_COLUMN], errors="coerce")
        bad = ~(values >= 1) | (values % 1 != 0)
        if bad.any():
            row = int(np.argmax(bad.to_numpy()))
            raise ValueError(
                f"{name} row {row + 1}: {TOKENS_COLUMN} is {rows[TOKENS_COLUMN].iloc[row]!r}"
            )
        return values.to_numpy(np.int64)
    columns = [column for column in TEXT_COLUMNS if column in rows]
    if not columns:
        raise ValueError(
            f"{name} has none of the columns {', '.join(_KNOWN)}, but {', '.join(map(str, rows.columns))}"
        )
    words = sum(
        (rows[c].fillna("").astype(str).str.split().str.len() for c in columns),
        pd.Series(0, rows.index),
    )
    if (words < 1).any():
        raise ValueError(
            f"{name} row {int(np.argmax((words < 1).to_numpy())) + 1}: the prompt is empty"
        )
    ratio = json.loads((LENGTHS.parent / "tokens_per_word.json").read_text())["tokens_per_word"]
    return np.maximum(1, np.rint(words.to_numpy(float) * ratio)).astype(np.int64)
