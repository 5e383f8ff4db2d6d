"""A predictor that only says which of two requests will be answered at greater length."""

import math
from bisect import bisect_left
from collections import deque
from typing import ClassVar

import numpy as np

from harness.interface.entities import LengthPrediction, Request
from harness.interface.policies import LengthPredictor
from harness.predictors.ecdf import Ecdf, load_lengths
from harness.predictors.ground_truth import GroundTruth


class Pairwise:
    """Makes the predictor of a workload (arXiv 2404.08509 sec. 3.1, the alternative).

    A request finds its place among the last `window` requests by binary search, as a new arrival
    finds its place in a sorted queue: log2 of them comparisons, each of which takes `latency_s` and
    is right with probability `accuracy`. The place, as a share, becomes a length by the
    distribution `lengths`, so that predictions of different times can be compared.
    """

    def __init__(self, *, accuracy: float, latency_s: float, window: int, lengths: str) -> None:
        """Raises ValueError for an accuracy outside 0 to 1, a window below 1, unknown lengths."""
        if not 0 <= accuracy <= 1:
            raise ValueError(f"predictor.accuracy is {accuracy}, it must lie between 0 and 1")
        if latency_s < 0:
            raise ValueError(f"predictor.latency_s is {latency_s}, it cannot be negative")
        if window < 1:
            raise ValueError(f"predictor.window is {window}, it must be at least 1")
        self._accuracy, self._latency_s, self._window = accuracy, latency_s, window
        self._lengths = load_lengths(lengths)

    def of(self, workload: GroundTruth, seed: int) -> LengthPredictor:
        """Same workload and seed, same predictions to requests that come in the same order."""
        rng = np.random.default_rng([seed, 10])
        comparer = _Comparer(workload, self._accuracy, rng)
        return _Placed(comparer, self._latency_s, self._window, self._lengths)


class _Comparer:
    """Which of two answers is the longer, by the truth or, as often as it errs, against it."""

    def __init__(self, workload: GroundTruth, accuracy: float, rng: np.random.Generator) -> None:
        self._tokens, self._accuracy, self._rng = workload.output_tokens, accuracy, rng

    def is_longer(self, one: int, other: int) -> bool:
        """Belief that `one` is answered at greater length."""
        truth = bool(self._tokens[one] > self._tokens[other])
        return truth if self._rng.random() < self._accuracy else not truth


class _Placed:
    foresees: ClassVar[bool] = False

    def __init__(self, comparer: _Comparer, latency_s: float, window: int, lengths: Ecdf) -> None:
        self._comparer, self._latency_s, self._lengths = comparer, latency_s, lengths
        self._latest: deque[int] = deque(maxlen=window)
        self._sorted: list[int] = []

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """The length at its place among the latest, after the comparisons that takes."""
        if len(self._latest) == self._latest.maxlen:
            self._sorted.remove(self._latest[0])
        comparisons = math.ceil(math.log2(len(self._sorted) + 1))
        # The search goes on behind those that are shorter.
        place = bisect_left(
            self._sorted,
            True,
            key=lambda other: not self._comparer.is_longer(request.id, other),
        )
        self._sorted.insert(place, request.id)
        self._latest.append(request.id)
        share = (place + 0.5) / len(self._sorted)
        length = LengthPrediction((int(self._lengths.at_share(share)),))
        return length, comparisons * self._latency_s
