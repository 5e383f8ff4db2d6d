"""Fairness among tenants: schedules by hand, and what holds of any."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.runs.fairness import fairness_figures, jain

NAN = float("nan")


def requests(*rows: tuple[str, float, float, float]) -> pd.DataFrame:
    """Tenant, arrival, start and end of requests of 100 weighted tokens each."""
    frame = pd.DataFrame(rows, columns=["tenant", "arrival_s", "started_s", "finished_s"])
    return frame.assign(prompt_tokens=40, output_tokens=30)


def test_one_tenant_first_by_hand() -> None:
    """a is served until 20 s and waits until 10, b waits until 20.

    Both wait for 10 s, in which a receives 100 and b nothing. A second of backlog gave a 10, b 0.
    """
    rows = requests(("a", 0, 0, 10), ("a", 0, 10, 20), ("b", 0, 20, 30))
    found = fairness_figures(rows, horizon_s=30.0)
    assert found["service_difference_max"] == pytest.approx(100.0)
    assert found["fairness_jain"] == pytest.approx(0.5)


def test_service_while_the_other_does_not_wait_is_no_difference() -> None:
    """b comes when a's last request has started."""
    rows = requests(("a", 0, 0, 10), ("a", 0, 10, 20), ("b", 15, 20, 30))
    assert fairness_figures(rows, horizon_s=30.0)["service_difference_max"] == 0.0


def test_what_never_starts_waits_to_the_end_and_receives_nothing() -> None:
    """a is served from 5 to 15 s of 20 and waits on, b waits all the time: 100 to 0."""
    rows = requests(("a", 0, 5, 15), ("a", 0, NAN, NAN), ("b", 0, NAN, NAN))
    found = fairness_figures(rows, horizon_s=20.0)
    assert found["service_difference_max"] == pytest.approx(100.0)
    assert found["fairness_jain"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "rows",
    [[], [("a", 0, 1, 2)], [("a", 0, 0, 1), ("b", 0, 0, 1)], [("a", 0, 1, 2), ("b", 2, 2, 3)]],
)
def test_where_fewer_than_two_wait_nothing_is_said(
    rows: list[tuple[str, float, float, float]],
) -> None:
    found = fairness_figures(requests(*rows), horizon_s=3.0)
    assert np.isnan(list(found.values())).all()


TIMES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12
)


@pytest.mark.slow
@settings(deadline=None)
@given(TIMES, st.integers(2, 4))
def test_tenants_served_alike_are_served_fairly(
    times: list[tuple[int, int, int]], tenants: int
) -> None:
    rows = [
        (f"t{tenant}", at, at + wait, at + wait + length)
        for tenant in range(tenants)
        for at, wait, length in times
    ]
    found = fairness_figures(requests(*rows), horizon_s=40.0)
    if any(wait for _, wait, _ in times):
        assert found["service_difference_max"] == pytest.approx(0.0, abs=1e-6)
        if any(length for *_, length in times) and not np.isnan(found["fairness_jain"]):
            assert found["fairness_jain"] == pytest.approx(1.0)


@pytest.mark.slow
@settings(deadline=None)
@given(TIMES, TIMES)
def test_a_difference_is_bounded_by_all_service(
    one: list[tuple[int, int, int]], other: list[tuple[int, int, int]]
) -> None:
    """And a change of names changes nothing."""
    rows = [
        (name, at, at + wait, at + wait + length)
        for name, times in (("a", one), ("b", other))
        for at, wait, length in times
    ]
    frame = requests(*rows)
    found = fairness_figures(frame, horizon_s=40.0)
    swapped = fairness_figures(
        frame.assign(tenant=frame["tenant"].map({"a": "b", "b": "a"})), horizon_s=40.0
    )
    assert list(swapped.values()) == pytest.approx(list(found.values()), nan_ok=True)
    if not np.isnan(found["service_difference_max"]):
        assert 0 <= found["service_difference_max"] <= 100 * max(len(one), len(other)) + 1e-6


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20))
def test_jain_lies_between_its_bounds(values: list[int]) -> None:
    index = jain(np.array(values, float))
    if not any(values):
        assert np.isnan(index)
    else:
        assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
