"""What a predictor is made from, and one whose answers are known at the start."""

from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from harness.interface.entities import LengthPrediction, Request


class GroundTruth(Protocol):
    """Requests as columns, one entry each; a request's id is its row.

    The maker of a predictor may know true lengths, to be as accurate as asked for, or exact.
    Policies never see them, only predictions.
    """

    @property
    def output_tokens(self) -> NDArray[np.int64]:
        """True output lengths in tokens."""

    @property
    def max_output_tokens(self) -> NDArray[np.int64]:
        """The most that each may answer, in tokens."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The prompts where they are known, else empty."""

    def __len__(self) -> int:
        """Number of requests."""


class Known:
    """Predicts the length that it has for each request, after its seconds."""

    foresees: ClassVar[bool] = False

    def __init__(self, tokens: NDArray[np.int64], seconds: ArrayLike = 0.0) -> None:
        self._tokens = tokens
        self._seconds = np.broadcast_to(np.asarray(seconds, np.float64), len(tokens))

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """The length of a request, and how long the prediction takes."""
        tokens = int(self._tokens[request.id])
        return LengthPrediction((tokens,)), float(self._seconds[request.id])
