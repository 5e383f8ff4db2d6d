"""Peaks of KV by hand, lengths drawn from past answers, admission by both."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from baselines.past_future import PastFuture, _sampled, peak_tokens
from harness.interface.entities import Request
from harness.tests.support.calls import Call
from harness.tests.support.serving import FlatCosts, serve, workload


def past_future(**settings: float) -> PastFuture:
    """One answer of history, nothing spare."""
    given = {"max_num_seqs": 8, "max_num_batched_tokens": 256, "window": 1, "spare": 0.0}
    given |= {"most_samples": 2, "least_lengths": 10} | settings
    return PastFuture(**given)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Running:
    """A request whose answer may have 99 tokens."""

    generated_tokens: int
    facts: Request = Call(0, app=0).facts


def test_peak_by_hand() -> None:
    """After two iterations 4 + 2 and 6 + 2 are held; the first alone holds 9 at its end."""
    assert peak_tokens(np.array([4, 6]), np.array([5, 2])) == 14
    # With much left, the last to end is the largest.
    assert peak_tokens(np.array([4, 6]), np.array([50, 2])) == 54


def test_lengths_by_hand() -> None:
    """Of 10, 20 and 30, an answer of 15 tokens so far ends between 15, 20, 30 and the limit."""
    shares = np.array([[0.0], [1 / 6], [1 / 3], [2 / 3], [5 / 6]])
    drawn = _sampled(np.array([10.0, 20.0, 30.0]), [Running(15)], shares)  # type: ignore[list-item]
    assert drawn.ravel().tolist() == [15, 18, 20, 30, 64]
    # At first the history has the limit alone.
    drawn = _sampled(np.array([np.inf]), [Running(15)], np.array([[0.5]]))  # type: ignore[list-item]
    assert drawn.tolist() == [[57]]


def test_past_answers_decide_admission_by_hand() -> None:
    """KV of 64 tokens, prompts of 16, answers of 5 and at most 40.

    Without a past, two requests may come to hold 2 x 55: the second waits. At 1.5 the first has
    ended with 5 tokens, so that two more may come to hold 2 x 20, and both are admitted. Half a
    second a prefill, a quarter a decode.
    """
    load = replace(workload([16] * 3, [5] * 3), max_output_tokens=np.full(3, 40))
    frame = serve(load, past_future(), costs=FlatCosts(load=0.0, blocks=4)).requests
    assert frame["finished_s"].tolist() == [1.5, 3.0, 3.0]
    frame = serve(load, past_future(spare=0.4), costs=FlatCosts(load=0.0, blocks=4)).requests
    assert frame["finished_s"].tolist() == [1.5, 3.0, 4.5]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"window": 0}, "policy.window is 0, it must be at least 1"),
        ({"spare": 1.0}, "policy.spare is 1.0, it must be at least 0 and below 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, float], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        past_future(**settings)
