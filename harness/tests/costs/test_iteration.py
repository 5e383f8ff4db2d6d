"""Seconds of iterations by hand, and the table of a profile."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.costs.iteration import (
    MAX_REQUESTS,
    IterationTable,
    decode_iterations_within,
    decode_run_seconds,
    expand,
    iteration_seconds,
)
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.profiles import Profile
from harness.interface.entities import ServiceId, Work

VICUNA = ServiceId("vicuna-13b-v1.5")
COSTS = ProfileCosts(gpu="A100-80G", profile_dir="a100_80g_vllm_0_3", memory_share=0.9, parts=PARTS)


def _hand_table() -> IterationTable:
    """Digits that cannot be mistaken for one another in a sum; 2 requests at most."""
    return IterationTable(
        prefill_base_s=np.array([0.0, 1.0, 2.0]),
        prefill_per_padded_token_s=np.array([0.0, 10.0, 20.0]),
        prefill_per_attended_s=np.array([0.0, 100.0, 200.0]),
        prefill_per_token_s=np.array([0.0, 1e3, 2e3]),
        decode_base_s=np.array([0.0, 1e4, 2e4]),
        decode_per_context_s=np.array([0.0, 1e5, 2e5]),
        decode_per_padded_s=np.array([0.0, 1e6, 2e6]),
        shared_s=np.array([0.5]),
    )


def _decode_table(base_s: float, context_s: float, padded_s: float) -> IterationTable:
    every = np.ones(MAX_REQUESTS + 1)
    return _hand_table()._replace(
        decode_base_s=base_s * every,
        decode_per_context_s=context_s * every,
        decode_per_padded_s=padded_s * every,
    )


def test_prefill_alone() -> None:
    seconds = iteration_seconds(_hand_table(), 2, 3, 4, 5.0, 0, 0, 0)
    assert seconds == 2 + 20 * 4 + 200 * 5 + 2000 * 3


def test_decode_alone_pads_to_the_longest() -> None:
    seconds = iteration_seconds(_hand_table(), 0, 0, 0, 0.0, 2, 3, 2)
    assert seconds == 2e4 + 2e5 * 3 + 2e6 * (2 * 2)


def test_a_chunked_iteration_counts_the_shared_cost_once() -> None:
    table = _hand_table()
    apart = iteration_seconds(table, 1, 3, 4, 5.0, 0, 0, 0)
    apart += iteration_seconds(table, 0, 0, 0, 0.0, 2, 3, 2)
    assert iteration_seconds(table, 1, 3, 4, 5.0, 2, 3, 2) == apart - 0.5


def test_the_step_of_the_padded_tokens_ends_level() -> None:
    table = _hand_table()._replace(prefill_step_s=np.array([0.0, -0.25, -0.75]))
    plain = _hand_table()
    for padded, step in ((1, -0.25), (2, -0.75), (9, -0.75)):
        difference = iteration_seconds(table, 1, 1, padded, 1.0, 0, 0, 0) - iteration_seconds(
            plain, 1, 1, padded, 1.0, 0, 0, 0
        )
        assert difference == step


SMALL = st.floats(0.0, 1e-4)
COUNTS = st.integers(1, 3000)


@settings(max_examples=25, deadline=None)  # the first call compiles
@given(st.floats(1e-4, 1.0), SMALL, SMALL, st.integers(1, 512), COUNTS, st.integers(0, 300))
def test_a_run_is_the_sum_of_its_iterations(
    base_s: float, context_s: float, padded_s: float, requests: int, longest: int, iterations: int
) -> None:
    table = _decode_table(base_s, context_s, padded_s)
    context = requests * longest // 2
    summed = sum(
        iteration_seconds(table, 0, 0, 0, 0.0, requests, context + k * requests, longest + k)
        for k in range(iterations)
    )
    run_s = decode_run_seconds(table, requests, context, longest, iterations)
    assert run_s == pytest.approx(summed, rel=1e-9)


@settings(max_examples=25, deadline=None)  # the first call compiles
@given(
    st.floats(1e-4, 1.0),
    st.one_of(st.just(0.0), SMALL),
    st.one_of(st.just(0.0), SMALL),
    st.integers(1, 512),
    COUNTS,
    COUNTS,
    st.floats(0.0, 1.2),
)
def test_iterations_within_is_the_first_boundary_at_or_after(
    base_s: float,
    context_s: float,
    padded_s: float,
    requests: int,
    longest: int,
    most: int,
    share: float,
) -> None:
    table = _decode_table(base_s, context_s, padded_s)
    state = (table, requests, requests * longest, longest)
    seconds = share * decode_run_seconds(*state, most)
    looped = next((n for n in range(1, most) if decode_run_seconds(*state, n) >= seconds), most)
    assert decode_iterations_within(*state, seconds, most) == looped


def _tiny_profile() -> Profile:
    zero = {"base_s": (0.0, 0.0)}
    return Profile(
        model="m",
        gpu="g",
        engine="e",
        kind="measured",
        source="s",
        tensor_parallel=1,
        knots_requests=(1, 3),
        prefill={
            "forward": {"base_s": (1.0, 3.0), "per_attended_s": (2.0, 2.0)},
            "prepare": {"base_s": (10.0, 10.0)},
            "sample": zero,
            "other": zero,
        },
        decode={
            "forward": {"base_s": (0.5, 0.7), "per_context_s": (3.0, 1.0)},
            "prepare": zero,
            "sample": zero,
            "other": {"base_s": (100.0, 100.0)},
        },
        step_knots_tokens=(1, 3),
        step_s=(0.0, 4.0),
        load_s=None,
        load_source="",
        kv_blocks=None,
        block_tokens=16,
        valid={},
        error={},
    )


def test_a_table_adds_components_and_is_linear_between_and_beyond_knots() -> None:
    table = expand(_tiny_profile(), PARTS)
    assert table.prefill_base_s[:6].tolist() == [0, 11, 12, 13, 14, 15]
    assert table.prefill_per_attended_s[5] == 2.0
    # a falling line stops at 0
    assert table.decode_per_context_s[[1, 2, 3, 4, 9]].tolist() == [3, 2, 1, 0, 0]
    assert table.prefill_step_s.tolist() == [0, 0, 2, 4]
    assert table.shared_s.tolist() == [11.0]


def test_parts_leave_components_out() -> None:
    table = expand(_tiny_profile(), ("forward",))
    assert (table.prefill_base_s[1], table.decode_base_s[1]) == (1.0, 0.5)
    assert expand(_tiny_profile(), ("other",)).prefill_step_s.tolist() == [0.0]
    work = Work(decode_requests=64, context_tokens=12_800, longest_tokens=300)
    parts_s = [COSTS.with_parts((part,)).iteration_s(VICUNA, 1, work) for part in PARTS]
    assert sum(parts_s) == pytest.approx(COSTS.iteration_s(VICUNA, 1, work))
    assert min(parts_s) > 0.0
