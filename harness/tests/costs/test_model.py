import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.costs.model import (
    MAX_REQUESTS,
    PARTS,
    IterationTable,
    ProfileCosts,
    decode_iterations_within,
    decode_run_seconds,
    expand,
    iteration_seconds,
)
from harness.costs.models import PROFILES, load_models
from harness.costs.profiles import Profile, read_profiles
from harness.interface.entities import ServiceId, Work

VICUNA = ServiceId("vicuna-13b-v1.5")
SIZES = (1, 2, 4)


def _costs(gpu: str = "A100-80G", memory_share: float = 0.9) -> ProfileCosts:
    return ProfileCosts(
        gpu=gpu, profile_dir="a100_80g_vllm_0_3", memory_share=memory_share, parts=PARTS
    )


COSTS = _costs()


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


@settings(deadline=None)  # the first call compiles
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


@settings(deadline=None)  # the first call compiles
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


@settings(deadline=None)
@given(COUNTS, COUNTS)
def test_iterations_within_is_exact_on_a_boundary(iterations: int, context: int) -> None:
    state = (COSTS.table(VICUNA, 1), 7, 7 * context, context)
    seconds = decode_run_seconds(*state, iterations)
    assert decode_iterations_within(*state, seconds, 10_000) == iterations


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


@pytest.mark.parametrize("name", load_models())
@pytest.mark.parametrize("size", SIZES)
def test_more_work_takes_longer(name: str, size: int) -> None:
    """Up to 0.1 ms: fits of noisy rows may fall by less."""
    table = COSTS.table(name, size)
    decodes = [iteration_seconds(table, 0, 0, 0, 0.0, n, n * 200, 300) for n in range(1, 600)]
    prompts = [iteration_seconds(table, n, n * 21, n * 30, n * 9e2, 0, 0, 0) for n in range(1, 200)]
    lengths = [
        iteration_seconds(table, 2, 2 * s, 2 * s, 2.0 * s * s, 0, 0, 0) for s in range(1, 2000)
    ]
    contexts = [iteration_seconds(table, 0, 0, 0, 0.0, 32, 32 * s, s) for s in range(1, 1000)]
    for seconds in (decodes, prompts, lengths, contexts):
        assert np.diff(seconds).min() > -1e-4
        assert min(seconds) > 0.002


def test_more_gpus_are_faster_for_large_batches_only_in_proportion() -> None:
    """SamuLLM sec. 1: twice the GPUs do not halve the time."""
    work = Work(decode_requests=256, context_tokens=256 * 300, longest_tokens=400)
    seconds = [COSTS.iteration_s(VICUNA, size, work) for size in SIZES]
    assert seconds[0] > seconds[1] > seconds[2] > seconds[0] / 4


def test_labels_say_where_costs_come_from() -> None:
    assert COSTS.label(VICUNA, 2) == "measured"
    assert COSTS.label("WizardLM-13B-V1.2", 2) == "measured on Llama-2-13b-hf"
    assert COSTS.label("Llama-2-7b-hf", 1) == "measured on Llama-2-7b-chat-hf"
    assert COSTS.label("Llama-2-70b-chat-hf", 2) == "roofline"
    assert _costs(gpu="H100-80G").label(VICUNA, 1) == "roofline"


def test_a_load_of_its_own_comes_before_that_of_the_stand_in() -> None:
    assert COSTS.load_s(ServiceId("WizardLM-13B-V1.2"), 2) == 50.4923
    assert COSTS.load_s(ServiceId("Llama-2-13b-chat-hf"), 1) == 10.3878
    assert COSTS.load_s(ServiceId("stablelm-tuned-alpha-7b"), 4) == 51.3686


def test_kv_blocks_are_measured_ones_and_move_with_the_memory_share() -> None:
    assert COSTS.kv_blocks(VICUNA, 1) == 3727
    # 0.1 x 80 GiB / 13,107,200 bytes = 655.36 blocks
    assert _costs(memory_share=1.0).kv_blocks(VICUNA, 1) == 3727 + 655
    assert _costs(memory_share=0.1).kv_blocks(VICUNA, 1) == 0
    assert COSTS.block_tokens(VICUNA) == 16


@pytest.mark.parametrize(
    ("name", "size"), [("Llama-2-70b-chat-hf", 1), ("Mixtral-8x7B-v0.1", 1), (VICUNA, 3)]
)
def test_no_kv_where_weights_do_not_fit_or_heads_do_not_split(name: str, size: int) -> None:
    assert COSTS.kv_blocks(ServiceId(name), size) == 0


def test_a_share_of_the_gpu_stretches_all_but_the_fixed_cost() -> None:
    work = Work(decode_requests=256, context_tokens=51_200, longest_tokens=300)
    whole_s = COSTS.iteration_s(VICUNA, 1, work)
    fixed_s = float(COSTS.table(VICUNA, 1).shared_s[0])
    half_s = COSTS.iteration_s(VICUNA, 1, work, gpu_share=0.5)
    assert half_s == pytest.approx(fixed_s + 2 * (whole_s - fixed_s))


def test_pickles_are_small_and_predict_the_same() -> None:
    costs = _costs().with_parts(("forward", "sample"))
    costs.table(VICUNA, 1)
    pickled = pickle.dumps(costs)
    assert len(pickled) < 500
    again: ProfileCosts = pickle.loads(pickled)
    work = Work(prefill_requests=1, prefill_tokens=9, prefill_padded_tokens=9, prefill_attended=81)
    assert again.iteration_s(VICUNA, 1, work) == costs.iteration_s(VICUNA, 1, work)


def test_validity_names_the_first_quantity_outside() -> None:
    inside = Work(decode_requests=8, context_tokens=2_000, longest_tokens=500)
    assert COSTS.outside_validity(VICUNA, 1, inside) is None
    outside = Work(decode_requests=600, context_tokens=2_000, longest_tokens=500)
    sentence = COSTS.outside_validity(VICUNA, 1, outside)
    assert sentence is not None
    assert "1 to 512 requests, not at 600" in sentence


def test_errors_are_sentences_with_the_value() -> None:
    with pytest.raises(ValueError, match="memory share lies between 0 and 1, not 90"):
        _costs(memory_share=90)
    with pytest.raises(ValueError, match="not 'sampel'"):
        COSTS.with_parts(("sampel",))
    with pytest.raises(ValueError, match="folder of cost profiles"):
        ProfileCosts(gpu="A100-80G", profile_dir="a100", memory_share=0.9, parts=PARTS)
    with pytest.raises(ValueError, match="No model is called 'gpt-5'"):
        COSTS.table("gpt-5", 1)
    with pytest.raises(ValueError, match="up to 1024 requests"):
        COSTS.iteration_s(VICUNA, 1, Work(decode_requests=1025))


def test_every_profile_states_source_and_error() -> None:
    profiles = read_profiles(PROFILES / "a100_80g_vllm_0_3")
    assert sum(1 for profile in profiles.values() if profile.decode) == 46
    for profile in profiles.values():
        assert profile.source.startswith("puddingfjz/vllm@de1677d")
        assert not profile.decode or set(profile.error) >= {"decode_median", "prefill_p95"}
