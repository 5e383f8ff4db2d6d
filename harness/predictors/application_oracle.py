"""What applications truly demand, known when they arrive: the bound that no estimate passes."""

from typing import Protocol

import numpy as np

from harness.interface.apps import Apps
from harness.interface.entities import AppId, DemandPrediction
from harness.interface.policies import LengthPredictor
from harness.interface.tables import Ints
from harness.predictors.ground_truth import GroundTruth, Known


class ApplicationTruth(GroundTruth, Protocol):
    """Requests with the applications that they are calls of."""

    @property
    def prompt_tokens(self) -> Ints:
        """Prompt lengths in tokens."""

    @property
    def app(self) -> Ints:
        """Number of the application of each."""

    @property
    def apps(self) -> Apps | None:
        """The applications; None where requests are of none."""


class ApplicationOracle:
    """Makes the predictor of a workload of applications."""

    def of(self, workload: ApplicationTruth, seed: int) -> LengthPredictor:
        """Reads the true demand. ValueError for a workload without applications."""
        if workload.apps is None:
            raise ValueError(
                "predictor=application_oracle knows what applications demand, and the workload has "
                "no applications"
            )
        return _Knowing(workload, workload.apps)


class _Knowing(Known):
    def __init__(self, workload: ApplicationTruth, apps: Apps) -> None:
        is_llm = ~apps.outside
        super().__init__(workload.output_tokens)
        self._prompts, self._outputs, self._external_s = (
            np.bincount(workload.app, np.where(is_counted, column, 0.0))
            for is_counted, column in (
                (is_llm, workload.prompt_tokens),
                (is_llm, workload.output_tokens),
                (~is_llm, apps.external_s),
            )
        )

    def predict_application(self, app: AppId) -> DemandPrediction:
        """The true demand."""
        return DemandPrediction(
            int(self._prompts[app]), int(self._outputs[app]), float(self._external_s[app])
        )
