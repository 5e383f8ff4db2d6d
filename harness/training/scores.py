"""How good predicted lengths are, and how long a prediction takes."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from harness.predictors.proxy_heads import HEADS, Lengths

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Json = dict[str, Any]
Asked = TypeVar("Asked")

WARM_UPS = 10


def scores(truth: Ints, predicted: Ints, lengths: Lengths, head: str | None = None) -> Json:
    """Five-class accuracy and macro F1 by the class of the predicted length, MAE, Spearman's rho.

    A binary head knows two classes: its accuracy and F1 are of those (`classes` says so). A
    correlation with a constant is 0.
    """
    is_half = head is not None and HEADS[head].learns == "half"
    classes = lengths.half_of if is_half else lengths.class_of
    count = 2 if is_half else len(lengths.class_tokens)
    right, found = classes(truth), classes(predicted)
    varies = len(np.unique(predicted)) > 1
    return {
        "classes": count,
        "accuracy": _short((right == found).mean()),
        "macro_f1": _short(macro_f1(right, found, count)),
        "mae_tokens": _short(np.abs(truth - predicted).mean()),
        "spearman": _short(spearmanr(truth, predicted).statistic) if varies else 0.0,
    }


def macro_f1(truth: Ints, found: Ints, classes: int) -> float:
    """Mean over the classes that occur of 2 TP / (2 TP + FP + FN)."""
    values = []
    for it in range(classes):
        hit = ((truth == it) & (found == it)).sum()
        named = (truth == it).sum() + (found == it).sum()
        if named:
            values.append(2 * hit / named)
    return float(np.mean(values))


def timed(predict: Callable[[Asked], object], asked: Sequence[Asked]) -> Floats:
    """Seconds of each prediction, asked one at a time, after a few that do not count."""
    for one in asked[:WARM_UPS]:
        predict(one)
    seconds = []
    for one in asked:
        started_s = time.perf_counter()
        predict(one)
        seconds.append(time.perf_counter() - started_s)
    return np.array(seconds)


def latency(seconds: Floats) -> Json:
    """Mean, median, 99th percentile and largest, in seconds, and of how many."""
    return {
        "mean": _short(seconds.mean()),
        "p50": _short(np.quantile(seconds, 0.5)),
        "p99": _short(np.quantile(seconds, 0.99)),
        "max": _short(seconds.max()),
        "count": len(seconds),
    }


def _short(value: Any) -> float:
    return float(f"{float(value):.4g}")
