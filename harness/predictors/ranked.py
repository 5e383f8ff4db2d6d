"""A predictor whose order agrees with that of the true lengths as far as asked for."""

import math

import numpy as np
from scipy.stats import norm, rankdata

from harness.interface.policies import LengthPredictor
from harness.predictors.ground_truth import GroundTruth, Known


class Ranked:
    """Predicts for every request the length of some request of the workload.

    Ranks of predictions and of true lengths have Spearman's correlation `rank_correlation`, in the
    mean over many requests, by a normal copula; 1 knows every length, 0 nothing.
    """

    def __init__(self, *, rank_correlation: float, latency_s: float) -> None:
        """Raises ValueError for a correlation outside 0 to 1 and for a negative latency."""
        if not 0 <= rank_correlation <= 1:
            raise ValueError(f"predictor.rank_correlation is {rank_correlation}, it is from 0 to 1")
        if latency_s < 0:
            raise ValueError(f"predictor.latency_s is {latency_s}, it cannot be negative")
        self._correlation, self._latency_s = rank_correlation, latency_s

    def of(self, workload: GroundTruth, seed: int) -> LengthPredictor:
        """Same workload and seed, same predictions; the same noise at every correlation."""
        tokens = workload.output_tokens
        noise = np.random.default_rng([seed, 9]).standard_normal(len(tokens))
        # Spearman's correlation of two normal variables is less than their own.
        own = 2 * math.sin(math.pi * self._correlation / 6)
        truth = norm.ppf((rankdata(tokens, "ordinal") - 0.5) / max(len(tokens), 1))
        said = own * truth + math.sqrt(max(0.0, 1 - own**2)) * noise
        ranks = rankdata(said, "ordinal").astype(np.int64) - 1
        return Known(np.sort(tokens)[ranks], self._latency_s)
