"""Whether a measured run and a simulated one computed the same batches, by their iteration logs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

LOG = "iterations.parquet"
SEED = "config.seed"
"""Column of `read_summaries`."""
COMPARED = (
    *("prefill_requests", "prefill_tokens", "prefill_attended"),
    *("decode_requests", "context_tokens", "longest_tokens", "held_tokens"),
)
"""Columns of the log that say what an iteration computed and how much KV requests held."""


def compared_batches(rows: pd.DataFrame, name: str) -> list[dict[str, object]]:
    """One entry per value of the column `name`, over the seeds of its runs with both logs.

    `equal` counts the seeds with the same iterations from the first to the last, `iterations` those
    measured and `until` those before the first that differs, over all seeds; `exact` is whether
    every request has the same number of answer tokens on both engines.
    """
    entries: list[dict[str, object]] = []
    is_measured = rows["engine"].str.startswith("measured")
    for system, part in rows.groupby(name, sort=True):
        real, simulated = (
            {seed: Path(folder) for seed, folder in zip(some[SEED], some["folder"], strict=True)}
            for some in (part[is_measured[part.index]], part[~is_measured[part.index]])
        )
        pairs = [(real[seed], simulated[seed]) for seed in sorted(real)]
        if not all((folder / LOG).is_file() for pair in pairs for folder in pair):
            continue
        logs = [(_batches(one), _batches(other)) for one, other in pairs]
        untils = [first_difference(one, other) for one, other in logs]
        entries.append(
            {
                "system": str(system),
                "seeds": len(pairs),
                "equal": sum(until is None for until in untils),
                "iterations": sum(len(one) for one, _ in logs),
                "until": sum(
                    len(one) if until is None else until
                    for (one, _), until in zip(logs, untils, strict=True)
                ),
                "exact": all(
                    np.array_equal(_answers(one), _answers(other)) for one, other in pairs
                ),
            }
        )
    return entries


def same_batches_text(row: Mapping[str, Any]) -> str:
    """One entry as a sentence."""
    tokens = "the same" if row["exact"] else "different"
    return (
        f"{row['system']} runs the same batches in {row['equal']} of {row['seeds']} seeds, in "
        f"{row['until']:,} of {row['iterations']:,} iterations up to the first that differs; "
        f"{tokens} answer lengths"
    )


def first_difference(one: NDArray[np.int64], other: NDArray[np.int64]) -> int | None:
    """The number of the first iteration that differs, None where all are the same."""
    count = min(len(one), len(other))
    differ = np.flatnonzero((one[:count] != other[:count]).any(axis=1))
    if len(differ):
        return int(differ[0])
    return None if len(one) == len(other) else count


def _batches(folder: Path) -> NDArray[np.int64]:
    return every_iteration(pd.read_parquet(folder / LOG))


def every_iteration(log: pd.DataFrame) -> NDArray[np.int64]:
    """Columns `COMPARED`, a row per iteration; a row of the log is a run of equal iterations.

    In such a run each decoding request grows by a token per iteration.
    """
    count = log["iterations"].to_numpy(np.int64)
    later = np.arange(count.sum()) - np.repeat(count.cumsum() - count, count)
    rows = log.loc[log.index.repeat(count), list(COMPARED)].astype(np.int64)
    decodes = rows["decode_requests"].to_numpy()
    for column in ("context_tokens", "held_tokens"):
        rows[column] += later * decodes
    rows["longest_tokens"] += later * (decodes > 0)
    return rows.to_numpy()


def _answers(folder: Path) -> NDArray[np.int64]:
    requests = pd.read_parquet(folder / "requests.parquet", columns=["request", "output_tokens"])
    return requests.sort_values("request")["output_tokens"].to_numpy(np.int64)
