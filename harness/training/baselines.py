"""Predictors without a language model, to compare with."""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge

from harness.predictors.proxy_heads import Lengths
from harness.training.data import Splits, texts
from harness.training.scores import Json, latency, scores, timed

ALPHAS = (0.3, 1.0, 3.0, 10.0)

Predict = Callable[[pd.DataFrame], "np.ndarray[tuple[int], np.dtype[np.float64]]"]


def baselines(splits: Splits, lengths: Lengths, timed_rows: int, seed: int) -> Iterator[Json]:
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


def _fitted(splits: Splits, lengths: Lengths, seed: int) -> Iterator[tuple[str, Predict]]:
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
