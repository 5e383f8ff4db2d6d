from dataclasses import replace

import numpy as np
import pytest

from harness.interface.entities import Service, ServiceId
from harness.tests.support.serving import workload

GOOD = workload([3, 4], [5, 6], [0.0, 1.0])


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("prompt_tokens", [3, 0], "request 1 has 0 prompt tokens"),
        ("output_tokens", [0, 6], "request 0 has 0 output tokens"),
        ("output_tokens", [5, 12], "request 1 has 12 output tokens, more than its limit"),
        ("arrival_s", [0.0, np.inf], "request 1 arrives at inf s"),
        ("arrival_s", [2.0, 1.0], "request 1 arrives at 1.0 s, before the request ahead of it"),
        (
            "prompt_tokens",
            [3, 4090],
            "request 1 with 4090 prompt tokens and its output limit exceeds the context of its "
            "service",
        ),
    ],
)
def test_rows_that_nobody_can_serve_are_named(column: str, values: list[float], said: str) -> None:
    kind = getattr(GOOD, column).dtype
    with pytest.raises(ValueError, match="request") as raised:
        replace(GOOD, **{column: np.array(values, kind)})  # type: ignore[arg-type]
    assert str(raised.value) == said


def test_a_context_that_is_just_filled_is_served() -> None:
    tight = replace(GOOD, services=(Service(ServiceId("m"), 1, 15),))
    assert len(tight) == 2
    with pytest.raises(ValueError, match="request 1"):
        replace(GOOD, services=(Service(ServiceId("m"), 1, 14),))


def test_facts_are_those_known_at_arrival() -> None:
    load = replace(GOOD, deadline_s=np.array([np.nan, 7.5]))
    first, second = load.facts(0), load.facts(1)
    assert (first.id, first.service, first.arrival_s, first.prompt_tokens) == (0, "m", 0.0, 3)
    assert (first.max_output_tokens, first.deadline_s) == (10, None)
    assert second.deadline_s == 7.5
    assert not hasattr(first, "output_tokens")


def test_a_workload_later_keeps_its_gaps_and_how_far_deadlines_are() -> None:
    due = replace(GOOD, deadline_s=np.array([9.0, np.nan]))
    later = due.later(2.5)
    assert later.arrival_s.tolist() == [2.5, 3.5]
    assert later.deadline_s[0] == 11.5
    assert np.isnan(later.deadline_s[1])
    assert due.later(0.0) is due
