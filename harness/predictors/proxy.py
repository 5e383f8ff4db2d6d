"""A trained proxy model as predictor: it reads the prompts (arXiv 2404.08509 sec. 3.1)."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from harness.config import inputs
from harness.interface.entities import LengthPrediction, Request
from harness.interface.policies import LengthPredictor
from harness.predictors.ground_truth import GroundTruth
from harness.predictors.proxy_card import (
    CARD,
    ENCODER,
    LIBRARIES,
    TOKENIZER,
    WEIGHTS,
    read_card,
    require,
)

WARM_UPS = 3


class Proxy:
    """Makes the predictor of a workload with texts, from a checkpoint of `harness.tools.training`.

    Predicted tokens are the same every time; the seconds of each prediction are measured.
    """

    measures: ClassVar[bool] = True
    computed_by: ClassVar[tuple[str, ...]] = LIBRARIES

    def __init__(self, *, checkpoint: str, threads: int) -> None:
        """`checkpoint` is a folder; `threads` are those of the process that predicts.

        Raises ValueError for a folder that is no checkpoint, or a damaged one.
        """
        if threads < 1:
            raise ValueError(f"predictor.threads is {threads}, it must be positive")
        self._threads = threads
        # What is read must not depend on the folder that a worker process is in.
        self._folder = Path(checkpoint).resolve()
        read_card(self._folder)
        parts = (CARD, ENCODER, TOKENIZER, WEIGHTS)
        self.files: Mapping[str, str] = inputs.digests(self._folder / name for name in parts)

    def of(self, workload: GroundTruth, seed: int) -> LengthPredictor:
        """Loads the model. Raises ValueError for a workload without texts and missing libraries."""
        if not workload.texts:
            raise ValueError("predictor=proxy reads prompts, and the workload has no texts")
        require()
        # here because it takes seconds to import, and only this predictor needs it
        import torch

        from harness.predictors.proxy_model import load

        torch.set_num_threads(self._threads)
        model = load(self._folder)
        for text in workload.texts[:WARM_UPS]:
            model.tokens([text])
        return _Reading(workload, model)


class _Reading:
    foresees: ClassVar[bool] = False

    def __init__(self, workload: GroundTruth, model: Any) -> None:
        self._texts, self._model = workload.texts, model

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """What the model says of the text, and the seconds that took here."""
        started_s = time.perf_counter()
        tokens = int(self._model.tokens([self._texts[request.id]])[0])
        return LengthPrediction((tokens,)), time.perf_counter() - started_s
