from typing import ClassVar

import pytest

from harness.interface.entities import LengthPrediction, Request
from harness.tests.support.serving import FlatCosts, rule, serve, workload
from systems.ssjf.policy import Ssjf


class Guess:
    """Predicts a length for each request; a second late for those in `late`."""

    foresees: ClassVar[bool] = False

    def __init__(self, tokens: list[int], late: tuple[int, ...] = ()) -> None:
        self._tokens, self._late = tokens, late

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """Belief, and seconds until it is ready."""
        seconds = 1.0 if request.id in self._late else 0.0
        return LengthPrediction((self._tokens[request.id],)), seconds


def first_tokens(guess: Guess) -> list[float]:
    """When each of four requests, one slot, produces its first token (half a second a prefill)."""
    load = workload([10, 10, 10, 10], [1, 1, 1, 1])
    policy = Ssjf(rule=rule(max_num_seqs=1), aging_tokens_per_s=0.0)
    frame = serve(load, policy, costs=FlatCosts(load=0.0), predictor=guess).requests
    seconds: list[float] = frame["first_token_s"].tolist()
    return seconds


def test_shortest_prediction_first_by_hand() -> None:
    assert first_tokens(Guess([30, 10, 20, 5])) == [2.0, 1.0, 1.5, 0.5]


def test_predictions_count_not_truths() -> None:
    assert first_tokens(Guess([1, 2, 3, 4])) == [0.5, 1.0, 1.5, 2.0]
    assert first_tokens(Guess([4, 3, 2, 1])) == [2.0, 1.5, 1.0, 0.5]


def test_a_late_prediction_waits_behind_those_that_are_ready() -> None:
    """Request 3 would be first; its prediction comes after one second, when two have run."""
    assert first_tokens(Guess([30, 10, 20, 5], late=(3,))) == [2.0, 0.5, 1.0, 1.5]


def test_who_runs_is_not_preempted() -> None:
    load = workload([10, 10], [20, 1], [0.0, 0.1])
    policy = Ssjf(rule=rule(max_num_seqs=1), aging_tokens_per_s=0.0)
    recorder = serve(load, policy, costs=FlatCosts(load=0.0), predictor=Guess([20, 1]))
    assert recorder.requests["preemptions"].sum() == 0
    assert recorder.requests["started_s"].tolist()[1] == recorder.requests["finished_s"].tolist()[0]


def test_aging_lets_a_long_request_pass_later_short_ones() -> None:
    """A request of 50 comes at 0 behind one that runs for 2 s; short ones follow, one a second.

    At 20 tokens a second it overtakes requests that come 2.5 s later or more; without aging it
    is the last of all.
    """
    load = workload([10] * 7, [4, 1, 1, 1, 1, 1, 1], [0.0, 0.0, 0.9, 1.4, 1.9, 2.6, 2.7])
    guess = [1, 50, 5, 5, 5, 5, 5]
    order = {}
    for aging in (0.0, 20.0):
        policy = Ssjf(rule=rule(max_num_seqs=1), aging_tokens_per_s=aging)
        frame = serve(load, policy, costs=FlatCosts(load=0.0), predictor=Guess(guess)).requests
        order[aging] = frame["started_s"].argsort().tolist()
    assert order[0.0] == [0, 2, 3, 4, 5, 6, 1]
    assert order[20.0] == [0, 2, 3, 4, 1, 5, 6]


def test_negative_aging_is_refused() -> None:
    with pytest.raises(ValueError, match=r"aging_tokens_per_s is -1"):
        Ssjf(rule=rule(max_num_seqs=1), aging_tokens_per_s=-1.0)
