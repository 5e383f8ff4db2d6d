"""What share of a run lies outside the ranges of its profile."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interface.entities import GpuId, Group, GroupId, ServiceId, Work
from harness.runs.basis import outside_note
from harness.runs.validity import late_notes, outside, outside_share

RANGES = {
    "requests": (1, 4),
    "prefill_tokens": (1, 100),
    "context_tokens": (10, 200),
    "longest": (5, 60),
}
COLUMNS = (
    "duration_s",
    "iterations",
    "prefill_requests",
    "prefill_tokens",
    "decode_requests",
    "context_tokens",
    "longest_tokens",
)


def logged(*rows: tuple[float, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS).assign(group="g")


@pytest.mark.parametrize(
    ("row", "share"),
    [
        ((1.0, 1, 1, 100, 0, 0, 100), 0.0),  # a prompt at the edge; its context is no decode's
        ((1.0, 1, 1, 101, 0, 0, 101), 1.0),
        ((1.0, 1, 5, 50, 0, 0, 10), 1.0),  # five prompts
        ((1.0, 10, 0, 0, 2, 100, 50), 0.0),  # contexts of 100 to 118, the longest 50 to 59
        ((1.0, 10, 0, 0, 2, 190, 50), 0.4),  # 190, 192 ... 208: six of ten are inside
        ((1.0, 10, 0, 0, 1, 55, 55), 0.4),  # the longest is 55 to 64
        ((1.0, 4, 0, 0, 1, 8, 8), 0.5),  # contexts of 8 to 11 where 10 is the least
        ((1.0, 1, 1, 50, 2, 300, 50), 1.0),  # a prompt beside decodes
    ],
)
def test_iterations_by_hand(row: tuple[float, ...], share: float) -> None:
    assert outside(logged(row), RANGES).tolist() == pytest.approx([share])


def _is_outside(work: Work) -> bool:
    """Whether a quantity of an iteration, where it has one, is outside the measured ranges."""
    asked = {
        "requests": max(work.prefill_requests, work.decode_requests),
        "prefill_tokens": work.prefill_tokens if work.prefill_requests else 0,
        "context_tokens": work.context_tokens if work.decode_requests else 0,
        "longest": work.longest_tokens if work.decode_requests else 0,
    }
    return any(
        value and not RANGES[name][0] <= value <= RANGES[name][1]
        for name, value in asked.items()
        if name in RANGES
    )


@settings(deadline=None)
@given(
    st.integers(1, 40),
    st.integers(0, 6),
    st.integers(0, 6),
    st.integers(1, 120),
    st.integers(1, 250),
    st.integers(1, 80),
)
def test_runs_of_iterations_are_as_one_by_one(
    runs: int, prefills: int, decodes: int, prompt: int, context: int, longest: int
) -> None:
    """Asked of each iteration alone."""
    alone = [
        Work(
            prefill_requests=prefills,
            prefill_tokens=prompt if prefills else 0,
            decode_requests=decodes,
            context_tokens=context + step * decodes,
            longest_tokens=longest + step * min(decodes, 1),
        )
        for step in range(runs)
    ]
    found = [_is_outside(work) for work in alone]
    row = (1.0, runs, prefills, prompt if prefills else 0, decodes, context, longest)
    assert outside(logged(row), RANGES)[0] == pytest.approx(np.mean(found))


def test_seconds_count_by_gpus_and_only_where_all_are_known() -> None:
    """3 of 4 s outside on two GPUs: 6 of 8 GPU seconds."""
    group = Group(GroupId("g"), frozenset({ServiceId("m")}), (GpuId(0), GpuId(1)))
    rows = logged((3.0, 1, 1, 101, 0, 0, 0), (1.0, 1, 1, 9, 0, 0, 0))

    def share(rows: pd.DataFrame | None, busy_gpu_s: float, *groups: Group) -> float:
        return outside_share(rows, groups, lambda *_: RANGES, busy_gpu_s=busy_gpu_s)

    assert share(rows, 8.0, group) == pytest.approx(0.75)
    assert np.isnan(share(rows, 12.0, group))
    assert np.isnan(share(None, 8.0, group))
    both = Group(group.id, frozenset({ServiceId("m"), ServiceId("n")}), group.gpus)
    assert np.isnan(share(rows, 8.0, both))


def test_a_note_says_the_most_of_any_run() -> None:
    shares = pd.DataFrame({"outside_profile_share": [0.01, 0.042, None]})
    assert outside_note(shares) == ["up to 4.2% of a run's GPU seconds outside what it measured"]
    assert outside_note(shares.assign(outside_profile_share=0.0)) == []
    assert outside_note(shares[[]]) == []


def test_a_run_whose_requests_were_taken_in_late_says_so() -> None:
    """By hand: 2 ms late on average, of a mean TTFT of 100 ms; half a millisecond is not late."""
    requests = pd.DataFrame({"arrival_s": [0.0, 1.0], "first_token_s": [0.1, 1.1]})
    assert late_notes(requests) == []
    assert late_notes(requests.assign(lag_s=[0.001, 0.0])) == []
    assert late_notes(requests.assign(lag_s=[0.004, 0.0])) == [
        "requests were taken in 2.00 ms late on average, 2.0% of the mean TTFT, which includes it"
    ]
