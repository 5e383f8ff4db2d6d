"""Requests with their text: prompts and answer lengths from a file, made-up arrivals."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from harness.config import inputs
from harness.costs.model_facts import model_facts
from harness.workloads.arrivals import Arrivals, think_s_of
from harness.workloads.prompts import WORDS, as_count, refuse_fewer, token_counts
from harness.workloads.row_files import read_rows
from harness.workloads.settings import require_positive, require_start
from harness.workloads.workload import Ints, Workload, services_of

TEXT, ANSWER = "prompt", "response_tokens"


class TextPrompts:
    """`requests` different rows of a parquet, CSV or JSONL file, in random order, to one model.

    A row has `prompt`, a text or the list of the turns of a conversation (previous prompts and
    answers, then the new prompt), and `response_tokens`, at least 1, which ends at
    `max_output_tokens`. Prompt tokens are `prompt_tokens` where the file has them, else words x the
    shipped ratio. `files` are the ones that are read.
    """

    def __init__(
        self,
        *,
        model: str,
        file: str,
        requests: int,
        arrivals: Arrivals,
        max_output_tokens: int,
        starts_s: float,
    ) -> None:
        self._starts_s = require_start(starts_s)
        self._facts = model_facts(model)
        require_positive("workload", requests=requests, max_output_tokens=max_output_tokens)
        # What is read must not depend on the folder that a worker process is in.
        self._path = Path(file).resolve()
        if not self._path.is_file():
            raise ValueError(f"workload.file={file} is no file")
        self._requests, self._arrivals = requests, arrivals
        self._max_output_tokens = max_output_tokens
        self.models = (model,)
        own = inputs.digests([WORDS, self._path])
        self.files: Mapping[str, str] = {**own, **arrivals.files}
        there = count_texts(self._path, inputs.sha256(self._path))
        refuse_fewer(str(self._path), there, requests)

    def build(self, seed: int) -> Workload:
        """Same seed, same workload. Raises ValueError for a corrupt row."""
        name, count = str(self._path), self._requests
        rows, truth = text_rows(self._path)
        order, gaps = (np.random.default_rng([seed, 13, part]) for part in range(2))
        picked = order.permutation(len(rows))[:count]
        return Workload(
            services=services_of([self._facts]),
            service=np.zeros(count, np.int64),
            arrival_s=self._arrivals.draw(count, gaps),
            prompt_tokens=token_counts(name, rows)[picked],
            output_tokens=truth[picked].clip(max=self._max_output_tokens),
            max_output_tokens=np.full(count, self._max_output_tokens),
            app=np.arange(count),
            deadline_s=np.full(count, np.nan),
            datasets=self.files,
            think_s=think_s_of(self._arrivals),
            texts=tuple(rows[TEXT].iloc[picked]),
        ).later(self._starts_s)


def text_rows(path: Path) -> tuple[pd.DataFrame, Ints]:
    """Rows of a file, with conversations as one text, and the true answer lengths."""
    rows = read_rows(path)
    for column in (TEXT, ANSWER):
        if column not in rows:
            there = ", ".join(map(str, rows.columns))
            raise ValueError(f"{path} has no column {column}, but {there}")
    truth = np.array([as_count(value) for value in rows[ANSWER]], np.int64)
    if (truth < 1).any():
        row = int(np.argmax(truth < 1))
        value = rows[ANSWER].tolist()[row]
        raise ValueError(f"{path} row {row + 1}: {ANSWER} is {value!r:.60}")
    return rows.assign(**{TEXT: [_text(path, *it) for it in enumerate(rows[TEXT])]}), truth


@cache
def count_texts(path: Path, sha256: str) -> int:
    """How many a file has, counted before a run begins, once for each content."""
    return len(token_counts(str(path), text_rows(path)[0]))


def conversation(turns: Sequence[str]) -> str:
    """Previous prompts and answers in order and the new prompt (arXiv 2404.08509 sec. 3.1)."""
    return "\n".join(turns)


def _text(path: Path, row: int, prompt: object) -> str:
    """A prompt as it is, or the turns of a conversation one after the other."""
    if isinstance(prompt, str) and prompt.strip():
        return prompt
    if isinstance(prompt, Sequence | np.ndarray) and len(prompt):
        turns = list(prompt)
        if all(isinstance(turn, str) for turn in turns) and "".join(turns).strip():
            return conversation(turns)
    raise ValueError(f"{path} row {row + 1}: {TEXT} is {prompt!r:.60}")
