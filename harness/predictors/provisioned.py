"""A predictor whose padded answers provide as much too much and too little KV as a paper prints."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import root
from scipy.stats import norm

from harness.interface.policies import LengthPredictor
from harness.predictors.ground_truth import GroundTruth, Known

Floats = NDArray[np.float64]

SOLVED = 1e-4
"""Shares that are found this near to those asked for: what is drawn has steps."""


class Error(NamedTuple):
    """A prediction is the true length times `bias` and a lognormal factor of median 1."""

    bias: float
    sigma: float  # of the logarithm


class Shares(NamedTuple):
    """Of the KV that is set aside for all answers."""

    over: float  # beyond the true answers
    short: float  # what answers need beyond their own


class Provisioned:
    """Makes the predictor of a workload from two shares of the KV that is set aside for answers.

    A policy sets `padding` more aside than is predicted, whole tokens and at most what a request
    may answer. Over all requests `over_share` of that is too much and `short_share` is lacking.
    Errors do not depend on the length. Both numbers of the error are fitted to the requests of a
    workload; a few dozen requests may have no error with these shares.
    """

    def __init__(
        self, *, over_share: float, short_share: float, padding: float, latency_s: float
    ) -> None:
        """Raises ValueError for shares outside 0 to 1, and where no error has both."""
        for name, share in (("over_share", over_share), ("short_share", short_share)):
            if not 0 < share < 1:
                raise ValueError(f"predictor.{name} is {share}, it must be above 0 and below 1")
        for name, value in (("padding", padding), ("latency_s", latency_s)):
            if value < 0:
                raise ValueError(f"predictor.{name} is {value}, it cannot be negative")
        self._asked, self._padding = Shares(over_share, short_share), padding
        self._latency_s = latency_s
        self.error = self._fitted(lambda error: shares_of(error, padding))
        """Of whole lengths without a limit: what fits start from."""

    def of(self, workload: GroundTruth, seed: int) -> LengthPredictor:
        """Same workload and seed, same predictions. ValueError where no error fits."""
        truth, limit = workload.output_tokens, workload.max_output_tokens.astype(np.float64)
        normal = np.random.default_rng([seed, 9]).standard_normal(len(truth))

        def said(error: Error) -> Floats:
            found: Floats = truth * error.bias * np.exp(error.sigma * normal)
            return found.clip(1.0, limit)

        def drawn(error: Error) -> Shares:
            # Half a token more on average, as policies round up.
            provided = np.minimum(limit, (1 + self._padding) * said(error) + 0.5)
            over, short = (
                np.clip(it, 0, None).sum() for it in (provided - truth, truth - provided)
            )
            return Shares(float(over / provided.sum()), float(short / provided.sum()))

        error = self._fitted(drawn) if len(truth) > 1 else self.error
        return Known(np.rint(said(error)).astype(np.int64), self._latency_s)

    def _fitted(self, shares: Callable[[Error], Shares]) -> Error:
        """The error that has the shares asked for. ValueError where none is found."""
        over, short = self._asked

        def off(logs: Floats) -> list[float]:
            return [a - b for a, b in zip(shares(Error(*np.exp(logs))), self._asked, strict=True)]

        # Shares differ by 1 - 1 / mean, which starts the bias; their sum grows with sigma.
        start = np.log([1 / ((1 + self._padding) * (1 + short - over)), over + short])
        with np.errstate(over="ignore"):  # on the way
            found = root(off, start)
        if max(map(abs, off(found.x))) > SOLVED:
            raise ValueError(
                f"no error of predictions provides {over:g} too much and {short:g} too little with "
                f"padding {self._padding:g}"
            )
        return Error(*map(float, np.exp(found.x)))


def shares_of(error: Error, padding: float) -> Shares:
    """Shares for very many answers, without rounding and without a limit.

    With m = (1 + padding) x bias, M = m exp(sigma^2 / 2), d1 = (ln m + sigma^2) / sigma and
    d2 = ln m / sigma: Phi(d1) - Phi(d2) / M and Phi(-d2) / M - Phi(-d1).
    """
    median = (1 + padding) * error.bias
    mean = median * np.exp(error.sigma**2 / 2)
    d1, d2 = (np.log(median) + error.sigma**2) / error.sigma, np.log(median) / error.sigma
    over, short = norm.cdf(d1) - norm.cdf(d2) / mean, norm.cdf(-d2) / mean - norm.cdf(-d1)
    return Shares(float(over), float(short))
