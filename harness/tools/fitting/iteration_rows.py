"""Whole iterations that others measured, brought to one form.

`profiles/measured.json` lists the sources: which file and rows, which GPU and engine, and how the
file is to be read (`kind`). Every row is one batch of equally long requests.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from harness.config.paths import PROFILES
from harness.costs.iteration import MAX_REQUESTS

Column: TypeAlias = "pd.Series[float]"

ALL_SMS = 100
COLUMNS = ("model", "tp", "phase", "requests", "length", "seconds")
"""Phase: prefill or decode. Length: tokens of each prompt, or of each context decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSource:
    """Where iterations of one engine on one GPU type were measured.

    `models` maps the file's names to ours. A source with a `folder` gets a profile folder of that
    name; `family` names the group of authors, left out together when the roofline is judged.
    `kv_tokens` is the KV pool of the measured engine where it is stated.
    """

    folder: str
    family: str
    kind: str
    file: str
    keep: Mapping[str, str]
    gpu: str
    engine: str
    models: Mapping[str, str]
    source: str
    note: str
    requests: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    most_prefill_tokens: int = 0
    kv_tokens: int | None = None
    tensor_parallel: int = 1
    decode_context: int = 0


@cache
def measured_sources() -> tuple[MeasuredSource, ...]:
    """All sources that the profiles know."""
    raw = json.loads((PROFILES / "measured.json").read_text(encoding="utf-8"))
    return tuple(MeasuredSource(**entry) for entry in raw)


def raw_rows(source: MeasuredSource, data: Path) -> pd.DataFrame:
    """Rows of the source's file that belong to it, `model` in our names where there is one."""
    rows = pd.read_csv(data / source.file)
    for column, value in source.keep.items():
        rows = rows[rows[column] == value]
    if "model" not in rows:
        rows = rows.assign(model=next(iter(source.models)))
    if "tp" not in rows:
        rows = rows.assign(tp=source.tensor_parallel)
    return rows.assign(model=rows["model"].map(source.models)).reset_index(drop=True)


def by_pair(rows: pd.DataFrame) -> Iterator[tuple[str, int, pd.DataFrame]]:
    """The rows of every model and tensor-parallel size (`model`, `tp`)."""
    for _, pair in rows.groupby(["model", "tp"], observed=True):
        yield str(pair["model"].iloc[0]), int(pair["tp"].iloc[0]), pair


def iteration_rows(source: MeasuredSource, data: Path) -> pd.DataFrame:
    """The measured iterations with `COLUMNS`, up to `MAX_REQUESTS` requests."""
    rows = raw_rows(source, data)
    match source.kind:
        case "grid":  # at all of the SMs, both phases of every batch size and sequence length
            rows = rows[rows["sm_percent"] == ALL_SMS]
            length = rows["seq_len"]
            found = _both(rows, length, length, rows["prefill_ms"] / 1e3, rows["decode_ms"] / 1e3)
        case "means":
            found = _means(rows)
        case "batches":  # batches served to their end: seconds of the prompts, ms of a mean decode
            prompt, seconds = rows["input_len"], rows["decode_step_ms"] / 1e3
            context = prompt + rows["output_len"] / 2
            found = _both(rows, prompt, context, rows["prefill_batch_s"], seconds)
        case "list":  # a row per batch: single prompts, and decodes of one known context
            length = rows["num_tokens"].where(rows["phase"] == "prefill", source.decode_context)
            requests = rows["batch_size"].astype(int)
            found = rows.assign(requests=requests, length=length, seconds=rows["batch_s"])
        case _:
            found = _coefficients(rows, source)
    found = found[found["requests"] <= MAX_REQUESTS]
    return found[list(COLUMNS)].reset_index(drop=True)


def _both(
    rows: pd.DataFrame, prompt: Column, context: Column, prefill_s: Column, decode_s: Column
) -> pd.DataFrame:
    phases = (("prefill", prompt, prefill_s), ("decode", context, decode_s))
    return pd.concat(
        rows.assign(phase=phase, requests=rows["batch_size"], length=length, seconds=seconds)
        for phase, length, seconds in phases
    )


def _means(rows: pd.DataFrame) -> pd.DataFrame:
    """Repeated runs, in ms: the prompt's iteration and the mean of the decodes.

    A prompt time below that of fewer equal prompts is no iteration of the whole batch (it did not
    fit at once), so its run is left out.
    """
    keys = ["model", "tp", "prompt_size", "batch_size", "token_size"]
    rows = rows.groupby(keys)[["prompt_ms", "token_ms"]].median().reset_index()
    equal = rows.groupby(["model", "tp", "prompt_size", "token_size"])["prompt_ms"]
    rows = rows[rows["prompt_ms"] >= equal.cummax()]
    prompt, context = rows["prompt_size"], rows["prompt_size"] + rows["token_size"] / 2
    return _both(rows, prompt, context, rows["prompt_ms"] / 1e3, rows["token_ms"] / 1e3)


def coefficients(pair: pd.DataFrame) -> dict[str, tuple[float, float, float]]:
    """The linear functions of one model and size by phase, in seconds and not in ms."""
    columns = (pair[name] / 1e3 for name in ("c0", "c1", "c2"))
    return dict(zip(pair["phase"], zip(*columns, strict=True), strict=True))


def _coefficients(rows: pd.DataFrame, source: MeasuredSource) -> pd.DataFrame:
    """The authors' linear functions evaluated at the batches that the source lists."""
    found = []
    for model, tp, pair in by_pair(rows):
        of_phase = coefficients(pair)
        threshold = pair["decode_batch_threshold"].iloc[0]
        for count, length in itertools.product(source.requests, source.lengths):
            tokens = count * length
            if tokens <= source.most_prefill_tokens:
                base, per_token, per_pair = of_phase["prefill"]
                seconds = base + per_token * tokens + per_pair * tokens * length
                found.append((model, tp, "prefill", count, length, seconds))
            size = "smallbs" if count < threshold else "largebs"
            base, per_token, per_request = of_phase[f"decoding_{size}"]
            seconds = base + per_token * tokens + per_request * count
            found.append((model, tp, "decode", count, length, seconds))
    return pd.DataFrame(found, columns=list(COLUMNS))
