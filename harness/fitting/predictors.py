"""Makes the stored tables of measured length predictors: how often which class, and how long."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from harness.fitting.stored import Json, rounded

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
    columns = (measured[name] for name in ("output_tokens", "pred_class5", "predictor_s_class5"))
    kind = "measured classes of a BERT predictor, answers of vicuna-13b of 2 to 511 tokens"
    yield "lmsys_vicuna13b_class5.json", table(*columns, kind=kind, source=SOURCE)


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
    content = {
        "kind": kind,
        "source": source,
        "count": len(length),
        "length_tokens": ends.astype(int),
        "class_share": rounded(counts / counts.sum(axis=1, keepdims=True), digits=5),
        "class_tokens": length.groupby(predicted).median().astype(int),
        "latency_s": np.quantile(seconds, np.linspace(0, 1, LATENCIES)),
    }
    return rounded(content)  # type: ignore[no-any-return]
