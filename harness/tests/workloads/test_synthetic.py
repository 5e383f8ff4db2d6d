from typing import Any

import numpy as np
import pytest

from harness.workloads.arrivals import ClosedLoop
from harness.workloads.synthetic import Synthetic

SYNTHETIC: dict[str, Any] = {
    "model": "tiny",
    "requests": 4000,
    "rate_per_s": 5.0,
    "burstiness": 1.0,
    "prompt_median_tokens": 60,
    "prompt_sigma": 0.8,
    "output_median_tokens": 40,
    "output_sigma": 0.5,
    "max_prompt_tokens": 500,
    "max_output_tokens": 300,
    "starts_s": 0.0,
}


@pytest.mark.parametrize("burstiness", [0.5, 1.0, 3.0])
def test_arrivals_have_the_rate_and_the_burstiness(burstiness: float) -> None:
    arrival_s = Synthetic(**SYNTHETIC | {"burstiness": burstiness}).build(0).arrival_s
    gaps = np.diff(arrival_s)
    assert gaps.mean() == pytest.approx(0.2, rel=0.12)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness, rel=0.12)


def test_lengths_have_the_median_and_stay_within_the_limits() -> None:
    load = Synthetic(**SYNTHETIC).build(0)
    assert np.median(load.prompt_tokens) == pytest.approx(60, rel=0.06)
    assert np.median(load.output_tokens) == pytest.approx(40, rel=0.06)
    assert load.prompt_tokens.max() <= 500
    assert (load.output_tokens <= load.max_output_tokens).all()


def test_the_rate_changes_nothing_but_the_arrivals() -> None:
    slow, fast = (Synthetic(**SYNTHETIC | {"rate_per_s": rate}).build(3) for rate in (1.0, None))
    np.testing.assert_array_equal(slow.prompt_tokens, fast.prompt_tokens)
    np.testing.assert_array_equal(slow.output_tokens, fast.output_tokens)
    assert fast.arrival_s.max() == 0.0


def test_arrivals_may_come_in_the_place_of_a_rate() -> None:
    closed = ClosedLoop(clients=64, ramp_up_s=32.0, think_s=0.5)
    load, timed = Synthetic(**SYNTHETIC, arrivals=closed).build(3), Synthetic(**SYNTHETIC).build(3)
    assert load.arrival_s[:64].tolist() == [n / 2 for n in range(64)]
    assert np.isinf(load.arrival_s[64:]).all()
    assert load.think_s == 0.5
    assert load.is_closed_loop
    np.testing.assert_array_equal(load.prompt_tokens, timed.prompt_tokens)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"requests": 0}, "workload.requests is 0"),
        ({"output_sigma": -0.5}, "output_sigma is -0.5, it must be from 0 to 10"),
        ({"max_prompt_tokens": 900}, "exceed the context of tiny, 1024"),
        ({"model": "tinny"}, "tinny"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Synthetic(**SYNTHETIC | change)
