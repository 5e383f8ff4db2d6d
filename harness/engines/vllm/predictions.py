"""Predictions on a real clock: asked for at arrival, delivered when they are ready."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from harness.engines.lifecycle import Lifecycle
from harness.interface.entities import LengthPrediction, RequestId
from harness.interface.policies import LengthPredictor


class Predictions:
    """What a predictor has said and policies have not been told yet.

    A prediction is ready so many seconds after it was asked for, and not before the predictor has
    answered: one that computes has taken these seconds by then, one that draws them has not.
    """

    def __init__(self, lifecycle: Lifecycle, clock: Callable[[], float]) -> None:
        self._lifecycle, self._clock = lifecycle, clock
        self._waiting: list[tuple[float, RequestId, LengthPrediction]] = []

    def foresee(self) -> None:
        """A predictor that knows all is asked before the first placement."""
        life = self._lifecycle
        if life.system.predictor is not None and life.system.predictor.foresees:
            life.foresee(life.system.predictor, np.flatnonzero(life.workload.arrival_s <= 0))

    def ask(self, predictor: LengthPredictor, requests: Iterable[int]) -> None:
        """Ask about requests that have arrived, one after the other."""
        asked_s = self._clock()
        asked = np.fromiter(requests, np.int64)
        for name, length, seconds in self._lifecycle.predict(predictor, asked):
            self._waiting.append((asked_s + seconds, name, length))
            asked_s = self._clock()

    def ready(self) -> Iterator[tuple[RequestId, LengthPrediction]]:
        """The ones that are ready now, each once."""
        now_s = self._clock()
        due = [one for one in self._waiting if one[0] <= now_s]
        for one in due:
            self._waiting.remove(one)
            yield one[1:]

    @property
    def are_awaited(self) -> bool:
        """Whether any is still to come."""
        return bool(self._waiting)
