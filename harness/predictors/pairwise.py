"""A predictor that only says which of two requests will be answered at greater length."""

import math
from bisect import bisect_left
from collections import deque
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from harness.interface.entities import LengthPrediction, Request
from harness.interface.policies import LengthPredictor
from harness.predictors.ground_truth import GroundTruth
from harness.workloads.ecdf import length_files, load_lengths

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ERRORS = ("alike", "by_gap")
PAIRED = 300  # requests, all pairs of which say how often a comparison is right
FURTHEST = 12.0  # of the logarithm of a spread: nothing, or nothing but noise


class Pairwise:
    """Makes the predictor of a workload (arXiv 2404.08509 sec. 3.1, the alternative).

    A request finds its place among the last `window` requests by binary search, as a new arrival
    finds its place in a sorted queue: log2 of them comparisons, each of which takes `latency_s` and
    is right with probability `accuracy`: in every comparison alike, or by the gap, where answers
    nearly as long as each other are hard to tell and `accuracy` is the mean over pairs. The place,
    as a share, becomes a length by the distribution `lengths`, so that predictions of different
    times can be compared.
    """

    def __init__(
        self, *, accuracy: float, errors: str, latency_s: float, window: int, lengths: str
    ) -> None:
        """`errors` is alike or by_gap.

        Raises ValueError for an accuracy outside 0 to 1 (by the gap 0.5 to 1), a window below 1,
        unknown errors and unknown lengths.
        """
        if errors not in ERRORS:
            raise ValueError(f"predictor.errors={errors} is not one of {', '.join(ERRORS)}")
        if errors == "by_gap" and not 0.5 <= accuracy <= 1:
            raise ValueError(f"predictor.accuracy is {accuracy}, by the gap it is 0.5 to 1")
        if not 0 <= accuracy <= 1:
            raise ValueError(f"predictor.accuracy is {accuracy}, it must lie between 0 and 1")
        if latency_s < 0:
            raise ValueError(f"predictor.latency_s is {latency_s}, it cannot be negative")
        if window < 1:
            raise ValueError(f"predictor.window is {window}, it must be at least 1")
        self.accuracy, self.latency_s, self.window = accuracy, latency_s, window
        self._errors, self.lengths = errors, load_lengths(lengths)
        self.files = length_files([lengths])

    def of(self, workload: GroundTruth, seed: int) -> LengthPredictor:
        """Same workload and seed, same predictions to requests that come in the same order."""
        rng = np.random.default_rng([seed, 10])
        spread = None
        if self._errors == "by_gap":
            spread = _spread(workload.output_tokens, self.accuracy)
        return _Placed(self, workload.output_tokens, spread, rng)


def _right_by_gap(gap: Floats, spread: float) -> Floats:
    """How often a comparison is right: half at no gap, always at a wide one.

    Gaps are of the logarithms of lengths, of which normal noise of this spread is heard.
    """
    return np.asarray(ndtr(gap / spread), np.float64)


def _spread(tokens: Ints, accuracy: float) -> float:
    """The noise with which so many comparisons of these answers are right."""
    logs = np.log(tokens[:PAIRED])
    gaps = np.abs(logs[:, None] - logs[None, :])[~np.eye(len(logs), dtype=bool)]

    def excess(log_spread: float) -> float:
        return float(_right_by_gap(gaps, math.exp(log_spread)).mean()) - accuracy

    if not len(gaps) or excess(-FURTHEST) <= 0:
        return math.exp(-FURTHEST)
    if excess(FURTHEST) >= 0:
        return math.exp(FURTHEST)
    return math.exp(brentq(excess, -FURTHEST, FURTHEST))


class _Placed:
    foresees: ClassVar[bool] = False

    def __init__(
        self, maker: Pairwise, tokens: Ints, spread: float | None, rng: np.random.Generator
    ) -> None:
        self._maker, self._tokens, self._spread, self._rng = maker, tokens, spread, rng
        self._latest: deque[int] = deque(maxlen=maker.window)
        self._sorted: list[int] = []

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """The length at its place among the latest, after the comparisons that takes."""
        if len(self._latest) == self._latest.maxlen:
            self._sorted.remove(self._latest[0])
        comparisons = math.ceil(math.log2(len(self._sorted) + 1))
        # The search goes on behind shorter answers.
        place = bisect_left(
            self._sorted, True, key=lambda other: not self._is_longer(request.id, other)
        )
        self._sorted.insert(place, request.id)
        self._latest.append(request.id)
        share = (place + 0.5) / len(self._sorted)
        length = LengthPrediction((int(self._maker.lengths.at_share(share)),))
        return length, comparisons * self._maker.latency_s

    def _is_longer(self, one: int, other: int) -> bool:
        """Belief that `one` is answered at greater length: as often as it errs, against the truth.

        With a spread it is right the more often the more the answers differ; see `_right_by_gap`.
        """
        tokens, accuracy = self._tokens, self._maker.accuracy
        truth = bool(tokens[one] > tokens[other])
        if self._spread is not None:
            gap = abs(math.log(tokens[one] / tokens[other]))
            accuracy = float(_right_by_gap(np.array([gap]), self._spread)[0])
        return truth if self._rng.random() < accuracy else not truth
