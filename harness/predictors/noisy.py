"""A predictor that knows the true length but for noise, as accurate as asked for."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import rankdata

from harness.interface.policies import LengthPredictor
from harness.predictors.ground_truth import GroundTruth, Known

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_SIGMA = 6.0  # of the logarithm: next to nothing is left of the truth
TOLERANCE = 1e-4


class Noisy:
    """Makes the predictor of a workload, calibrated on its true lengths.

    A share of the requests is predicted at random, as long as some other request; the others are
    off by a lognormal factor. Both are chosen so that the share of predictions in the right class
    is `accuracy` and Spearman's correlation with the truth `rank_correlation`. No prediction is
    above the most that any request may answer: a model fitted to such answers says no more.
    """

    def __init__(
        self,
        *,
        accuracy: float,
        rank_correlation: float,
        class_bounds_tokens: Sequence[int],
        latency_s: float,
    ) -> None:
        """Classes end at these bounds. Raises ValueError for targets outside 0 to 1."""
        for name, value in (("accuracy", accuracy), ("rank_correlation", rank_correlation)):
            if not 0 < value <= 1:
                raise ValueError(f"predictor.{name} is {value}, it must be above 0 and at most 1")
        if latency_s < 0:
            raise ValueError(f"predictor.latency_s is {latency_s}, it cannot be negative")
        self._accuracy, self._correlation = accuracy, rank_correlation
        self._bounds = np.asarray(class_bounds_tokens)
        self._latency_s = latency_s

    def of(self, workload: GroundTruth, seed: int) -> LengthPredictor:
        """Same workload and seed, same predictions. ValueError where no noise meets both."""
        truth, bounds = workload.output_tokens.tobytes(), tuple(self._bounds.tolist())
        limit = int(workload.max_output_tokens.max(initial=1))
        known = _predicted(truth, limit, bounds, seed, self._accuracy, self._correlation)
        return Known(known, self._latency_s)


@lru_cache(maxsize=32)
def _predicted(
    truth: bytes,
    limit: int,
    bounds: tuple[int, ...],
    seed: int,
    accuracy: float,
    correlation: float,
) -> Ints:
    """Lengths that differ from the true ones, int64, as far as asked; not to be written to.

    Cells of a sweep differ in much that these do not depend on; all its seeds come in between.
    """
    rng = np.random.default_rng([seed, 9])
    noise = _Noise(np.frombuffer(truth, np.int64), limit, np.asarray(bounds), rng)
    return noise.predictions(accuracy, correlation)


class _Noise:
    """Predictions of one draw of random numbers, for any share at random and any sigma."""

    def __init__(self, truth: Ints, limit: int, bounds: Ints, rng: np.random.Generator) -> None:
        self._truth, self._limit, self._bounds = truth, limit, bounds
        self._normal, self._uniform = rng.standard_normal(len(truth)), rng.random(len(truth))
        self._other = rng.permutation(truth)
        self._class = np.digitize(truth, bounds)
        self._other_right = np.digitize(self._other, bounds) == self._class

    def predictions(self, accuracy: float, correlation: float) -> Ints:
        """Scores that meet both targets.

        With more at random and less noise on the rest accuracy can stay as it is, but order goes.
        """
        if accuracy == 1.0:
            return self._truth

        def excess(share: float) -> float:
            found = self.drawn(share, self._sigma(share, accuracy))
            return _rank_correlation(self._truth, found) - correlation

        most = self._most_share(accuracy)
        if excess(0.0) < 0 or excess(most) > 0:
            reach = f"{correlation + excess(most):.2f} to {correlation + excess(0.0):.2f}"
            raise ValueError(
                f"predictor.rank_correlation={correlation} cannot be met with accuracy={accuracy} "
                f"on these lengths, only {reach}"
            )
        share = brentq(excess, 0.0, most, xtol=TOLERANCE)
        return self.drawn(share, self._sigma(share, accuracy))

    def drawn(self, share: float, sigma: float) -> Ints:
        """Predicted lengths."""
        return np.where(self._uniform < share, self._other, self._noisy(sigma)).astype(np.int64)

    def right(self, share: float, sigma: float) -> float:
        """Share of predictions in the right class: asked some hundred times."""
        noisy_right = np.searchsorted(self._bounds, self._noisy(sigma), "right") == self._class
        found = np.where(self._uniform < share, self._other_right, noisy_right)
        return np.count_nonzero(found) / len(found)

    def _noisy(self, sigma: float) -> Floats:
        found: Floats = np.rint(self._truth * np.exp(sigma * self._normal)).clip(1, self._limit)
        return found

    def _sigma(self, share: float, accuracy: float) -> float:
        """The noise at which so many are right; 0 where even that is too much."""
        if self.right(share, 0.0) <= accuracy:
            return 0.0
        if self.right(share, MOST_SIGMA) >= accuracy:
            return MOST_SIGMA

        def excess(sigma: float) -> float:
            return self.right(share, sigma) - accuracy

        return float(brentq(excess, 0.0, MOST_SIGMA, xtol=TOLERANCE))

    def _most_share(self, accuracy: float) -> float:
        """The share at random at which nothing else may be wrong."""
        if self.right(1.0, 0.0) >= accuracy:
            return 1.0
        return float(brentq(lambda p: self.right(p, 0.0) - accuracy, 0.0, 1.0, xtol=TOLERANCE))


def _rank_correlation(first: Ints, second: Ints) -> float:
    """Spearman's: that of the ranks, of which equal values share theirs."""
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])
