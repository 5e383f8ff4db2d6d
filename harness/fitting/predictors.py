"""Makes the stored tables of measured length predictors: how often which class, and how long."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Json = dict[str, Any]

BINS = 40  # of as many requests by true length
LATENCIES = 101
MEASURED_HERE = "proxy_"
"""How tables begin that `harness.training` measures: no two runs of it give the same."""
SOURCE = (
    "James-QiuHaoran/LLM-serving-with-proxy-models@4b86686 "
    "model-serving/prediction/final/predictions_warmup_multi_cls_1000K.csv"
)


def predictor_files(data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every table."""
    measured = pd.read_parquet(data / "lmsys_vicuna13b" / "predictions.parquet")
    yield (
        "lmsys_vicuna13b_class5.json",
        table(
            measured["output_tokens"],
            measured["pred_class5"],
            measured["predictor_s_class5"],
            kind="measured classes of a BERT predictor, answers of vicuna-13b of 2 to 511 tokens",
            source=SOURCE,
        ),
    )


def table(
    length: "pd.Series[int]",
    predicted: "pd.Series[int]",
    seconds: "pd.Series[float]",
    *,
    kind: str,
    source: str,
) -> Json:
    """Share of every predicted class by true length, its median true length, and the latency.

    Row i of `class_share` is for true lengths above `length_tokens[i - 1]` up to
    `length_tokens[i]`; longer ones go by the last. `latency_s` are quantiles at equal shares.
    """
    ends = np.unique(np.quantile(length, np.linspace(0, 1, BINS + 1)[1:], method="higher"))
    row = np.searchsorted(ends, length, side="left")
    counts = pd.crosstab(row, predicted).to_numpy(np.float64)
    share = counts / counts.sum(axis=1, keepdims=True)
    return {
        "kind": kind,
        "source": source,
        "count": len(length),
        "length_tokens": [int(end) for end in ends],
        "class_share": [[float(f"{value:.5g}") for value in line] for line in share],
        "class_tokens": [int(value) for value in length.groupby(predicted).median()],
        "latency_s": [
            float(f"{value:.6g}") for value in np.quantile(seconds, np.linspace(0, 1, LATENCIES))
        ],
    }
