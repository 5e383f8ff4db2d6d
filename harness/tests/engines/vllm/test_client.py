"""Which requests have come by the clock of a run, and how late its loop looked."""

import numpy as np
import pytest

from harness.engines.vllm.client import Client
from harness.tests.support.serving import workload


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time that was set."""
        return self.now_s


def client(*arrivals_s: float) -> tuple[Client, Clock]:
    """A client of requests at these times, and its clock."""
    load = workload([8] * len(arrivals_s), [2] * len(arrivals_s), list(arrivals_s))
    clock = Clock()
    return Client(load, np.arange(len(arrivals_s)), clock), clock


def test_requests_come_when_the_loop_looks_at_the_clock() -> None:
    made, clock = client(0.5, 0.5, 0.7, 2.0)
    assert [*made.arrived()] == []
    made.start()
    clock.now_s = 1.0
    assert [*made.arrived()] == [[0, 1], [2]]
    assert not made.is_through
    clock.now_s = 2.0
    assert [*made.arrived()] == [[3]]
    assert made.is_through


def test_an_idle_loop_that_looks_late_is_late() -> None:
    made, clock = client(0.5, 0.7)
    made.start()
    clock.now_s = 0.8
    assert [*made.arrived()] == [[0], [1]]
    assert made.lag_s == pytest.approx([0.3, 0.1])


def test_a_loop_that_computed_is_late_from_the_end_of_that_on() -> None:
    """The step ended at 0.9 s, when both had come; the loop looks at 0.95 s."""
    made, clock = client(0.5, 0.93)
    made.start()
    clock.now_s = 0.9
    made.was_busy()
    clock.now_s = 0.95
    assert [*made.arrived()] == [[0], [1]]
    assert made.lag_s == pytest.approx([0.05, 0.02])


def test_to_take_requests_in_is_to_be_busy() -> None:
    """While the first is taken in for 0.2 s the second comes: it is not late."""
    made, clock = client(0.5, 0.6)
    made.start()
    clock.now_s = 0.5
    found = made.arrived()
    assert next(found) == [0]
    clock.now_s = 0.7
    assert next(found) == [1]
    assert made.lag_s == pytest.approx([0.0, 0.0])


def test_requests_of_a_closed_loop_come_at_their_own_time() -> None:
    made, clock = client(0.0, 5.0)
    made.start()
    assert [*made.arrived()] == [[0]]
    made.later(1.0, [7 - 6])
    clock.now_s = 1.5
    assert [*made.arrived()] == [[1]]
    assert made.lag_s[1] == pytest.approx(0.5)


def test_waiting_ends_with_the_next_request_or_the_time_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, clock = client(0.5)
    made.start()

    def sleep(seconds: float) -> None:
        clock.now_s += seconds

    monkeypatch.setattr("time.sleep", sleep)
    assert made.wait(0.2) == []
    assert clock.now_s == pytest.approx(0.2)
    assert made.wait(1.0) == [0]
    assert clock.now_s == pytest.approx(0.5)
