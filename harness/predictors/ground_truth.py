"""What a predictor is made from: requests with their true lengths and texts."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


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
