"""How good predicted lengths are, and predictors without a language model to compare with."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.metrics import f1_score

from harness.predictors.proxy_heads import HEADS, TrainingLengths
from harness.tools.training.data import Splits, texts

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Json = dict[str, Any]
Asked = TypeVar("Asked")

Predict = Callable[[pd.DataFrame], Floats]

WARM_UPS = 10
ALPHAS = (0.3, 1.0, 3.0, 10.0)


def scores(truth: Ints, predicted: Ints, lengths: TrainingLengths, head: str | None = None) -> Json:
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
        "macro_f1": _short(f1_score(right, found, average="macro", zero_division=0.0)),
        "mae_tokens": _short(np.abs(truth - predicted).mean()),
        "spearman": _short(spearmanr(truth, predicted).statistic) if varies else 0.0,
    }


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


def baselines(
    splits: Splits, lengths: TrainingLengths, timed_rows: int, seed: int
) -> Iterator[Json]:
    """Score and latency of every baseline on the test split."""
    for name, predict in _fitted(splits, lengths, seed):
        predicted = np.rint(predict(splits.test)).clip(1).astype(np.int64)
        few = [splits.test.iloc[i : i + 1] for i in range(min(timed_rows, len(splits.test)))]
        seconds = timed(predict, few)
        yield {
            "name": name,
            **scores(splits.test["tokens"].to_numpy(), predicted, lengths),
            "latency_s": latency(seconds),
        }


def _fitted(splits: Splits, lengths: TrainingLengths, seed: int) -> Iterator[tuple[str, Predict]]:
    classes = np.bincount(lengths.class_of(splits.train["tokens"]))
    most = float(lengths.class_tokens[int(classes.argmax())])
    yield "constant median", lambda rows: np.full(len(rows), lengths.middle_tokens)
    yield "majority class", lambda rows: np.full(len(rows), most)
    boosted = HistGradientBoostingRegressor(loss="absolute_error", random_state=seed)
    boosted.fit(splits.train[["prompt_tokens"]].to_numpy(), splits.train["tokens"])
    yield (
        "prompt length, boosting",
        lambda rows: boosted.predict(rows[["prompt_tokens"]].to_numpy()),
    )
    yield "TF-IDF, ridge", _ridge(splits)


def _ridge(splits: Splits) -> Predict:
    """Ridge on words and pairs of words; its strength is chosen on the validation split."""
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    seen = words.fit_transform(texts(splits.train))
    held = words.transform(texts(splits.validation))
    truth = splits.validation["tokens"].to_numpy()
    fits = [Ridge(alpha=alpha).fit(seen, splits.train["tokens"]) for alpha in ALPHAS]
    best = min(fits, key=lambda fit: float(np.abs(fit.predict(held) - truth).mean()))
    return lambda rows: best.predict(words.transform(texts(rows)))
