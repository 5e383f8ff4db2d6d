"""The true output length, known at once: the bound that no predictor passes."""

from typing import ClassVar

from harness.interface.entities import LengthPrediction, Request
from harness.interface.policies import LengthPredictor
from harness.predictors.ground_truth import GroundTruth


class Oracle:
    """Makes the predictor of a workload."""

    def of(self, workload: GroundTruth, seed: int) -> LengthPredictor:
        """Reads the true lengths of these requests."""
        return _Knowing(workload)


class _Knowing:
    foresees: ClassVar[bool] = True

    def __init__(self, workload: GroundTruth) -> None:
        self._workload = workload

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """The true length, in no time."""
        return LengthPrediction((int(self._workload.output_tokens[request.id]),)), 0.0
