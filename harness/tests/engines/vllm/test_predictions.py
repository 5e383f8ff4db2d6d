"""When a prediction is ready on a real clock, by hand."""

from typing import Any, ClassVar
from unittest.mock import Mock

from harness.engines.vllm.predictions import Predictions
from harness.interface.entities import LengthPrediction


class Clock:
    """Seconds that pass only where somebody says so."""

    def __init__(self) -> None:
        self.now_s = 10.0

    def __call__(self) -> float:
        """Now."""
        return self.now_s


class Lasting:
    """A predictor that says half a second, and has been at it for so long itself or not."""

    foresees: ClassVar[bool] = False

    def __init__(self, clock: Clock, *, blocks: bool) -> None:
        self.clock, self.blocks = clock, blocks

    def predict(self, request: Any) -> tuple[LengthPrediction, float]:
        """As many tokens as the request's number."""
        self.clock.now_s += 0.5 * self.blocks
        return LengthPrediction((request,)), 0.5


def ready_s(*, blocks: bool) -> dict[int, float]:
    """Ten quarters of a second: when r1 and r2, asked at 10 s, are ready."""
    clock = Clock()
    life = Mock(predict=lambda predictor, asked: ((r, *predictor.predict(r)) for r in asked))
    predictions = Predictions(life, clock)
    predictions.ask(Lasting(clock, blocks=blocks), [1, 2])
    found: dict[int, float] = {}
    for _ in range(10):
        for name, length in predictions.ready():
            assert length == LengthPrediction((name,))
            found[name] = clock.now_s
        clock.now_s += 0.25
    return found


def test_a_predictor_that_computes_is_not_waited_for_twice() -> None:
    """Its seconds have passed when it answers: both are ready at once, at 11 s."""
    assert ready_s(blocks=True) == {1: 11.0, 2: 11.0}


def test_one_whose_seconds_are_drawn_is_waited_for() -> None:
    assert ready_s(blocks=False) == {1: 10.5, 2: 10.5}
