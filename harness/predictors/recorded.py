"""The predictions that a trace brings along, known at once."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from harness.interface.policies import LengthPredictor
from harness.predictors.ground_truth import Known


class HasPredictions(Protocol):
    """Requests as columns; a request's id is its row."""

    @property
    def predicted_tokens(self) -> NDArray[np.float64]:
        """Predicted output lengths; NaN, or no column, where there is none."""


class Recorded:
    """Makes the predictor of a workload with predictions."""

    def of(self, workload: HasPredictions, seed: int) -> LengthPredictor:
        """Raises ValueError where a request has none."""
        lacks = np.isnan(workload.predicted_tokens)
        if not len(lacks) or lacks.any():
            row = f"; request {int(np.argmax(lacks))} is the first" if (~lacks).any() else ""
            raise ValueError(f"predictor=recorded: the workload lacks predicted_tokens{row}")
        return Known(np.maximum(1, np.rint(workload.predicted_tokens)).astype(np.int64))
