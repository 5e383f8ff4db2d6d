"""Predictors that only tests have."""

from typing import ClassVar

from harness.interface.entities import LengthPrediction, Request


class Guess:
    """Predictions that come a little after their requests, as wrong as they may be."""

    foresees: ClassVar[bool] = False

    def __init__(self, late_s: float = 0.004) -> None:
        """Late by so many seconds, or twice that, or not at all."""
        self._late_s = late_s

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """A length that only looks like one."""
        tokens = 1 + 37 * request.prompt_tokens % 60
        return LengthPrediction((tokens, tokens + 9)), self._late_s * (request.id % 3)


class Truth:
    """Predicts the lengths given, at once."""

    foresees: ClassVar[bool] = False

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """Belief, and seconds until it is ready."""
        return LengthPrediction((self._tokens[request.id],)), 0.0
