import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.workloads.ecdf import LENGTHS, Ecdf, load_lengths, output_lengths

NAMES = sorted(path.stem for path in LENGTHS.glob("*.json"))


def _ecdf(tokens: list[int], cumulative: list[float]) -> Ecdf:
    columns = np.array(tokens), np.array(cumulative)
    return Ecdf(*columns, mean_tokens=1.0, cap_tokens=tokens[-1], kind="made up", source="none")


THREE = _ecdf([0, 1, 9, 10], [0.0, 0.25, 0.25, 1.0])  # 1 with 0.25, 10 with 0.75


def test_inverse_by_hand() -> None:
    assert THREE.at_share([1e-9, 0.25, 0.2500001, 1.0]).tolist() == [1, 1, 10, 10]
    # an even stretch of 4 lengths: each has a quarter
    even = _ecdf([2, 6], [0.0, 1.0])
    assert even.at_share([0.01, 0.25, 0.26, 0.5, 0.75, 0.76, 1.0]).tolist() == [3, 3, 4, 4, 5, 6, 6]


def test_cdf_by_hand() -> None:
    assert THREE.cdf([0, 1, 5, 9.9, 10, 99]).tolist() == [0.0, 0.25, 0.25, 0.25, 1.0, 1.0]


@settings(max_examples=25, deadline=None)  # the first call reads the tables
@given(st.floats(0.0, 1.0, exclude_min=True), st.sampled_from(NAMES))
def test_a_drawn_length_is_the_smallest_that_the_share_does_not_exceed(
    share: float, name: str
) -> None:
    ecdf = load_lengths(name)
    length = int(ecdf.at_share(share))
    assert ecdf.cdf(length) >= share - 1e-6
    assert ecdf.cdf(length - 1) < share + 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_tables_have_the_mean_and_cap_of_what_was_measured(name: str) -> None:
    ecdf = load_lengths(name)
    drawn = ecdf.at_share((np.arange(200_000) + 0.5) / 200_000)
    assert drawn.mean() == pytest.approx(ecdf.mean_tokens, rel=0.01)
    assert drawn.min() >= 1
    assert drawn.max() <= ecdf.cap_tokens == ecdf.tokens[-1]
    assert len(ecdf.tokens) <= 600


@pytest.mark.parametrize(
    ("name", "mean", "median"),
    [("vicuna-13b-v1.5", 208, 146), ("mpt-7b-chat", 450, 285), ("Llama-2-70b-chat-hf", 401, 382)],
)
def test_means_and_medians_of_the_source(name: str, mean: int, median: int) -> None:
    ecdf = load_lengths(name)
    assert ecdf.mean_tokens == pytest.approx(mean, abs=0.5)
    assert int(ecdf.at_share(0.5)) == pytest.approx(median, abs=1.5)


def test_mixinstruct_prompts_have_the_range_and_mean_of_the_paper() -> None:
    ecdf = load_lengths("mixinstruct_prompts")
    drawn = ecdf.sample(100_000, np.random.default_rng(0))
    assert (drawn.min(), drawn.max()) == (5, 127)
    assert drawn.mean() == pytest.approx(21.0, abs=0.15)
    assert "not measured" in ecdf.kind


def test_the_model_never_measured_is_pooled_and_says_so() -> None:
    pooled = load_lengths("stablelm-tuned-alpha-7b")
    assert pooled.kind.startswith("pooled over vicuna-13b-v1.5")
    assert pooled.kind.endswith("not measured")
    of = [load_lengths(name).cdf(300) for name in pooled.kind[12:-14].split(", ")]
    assert len(of) == 8
    assert pooled.cdf(300) == pytest.approx(np.mean(of), abs=0.005)


def test_outputs_are_cut_by_the_limit_and_the_context() -> None:
    """min(X, y, l_max - l_in) with X = 10, y = 8, l_max = 12: prompts of 1, 6, 11 and 12."""
    ten = _ecdf([9, 10], [0.0, 1.0])
    rng = np.random.default_rng(0)
    cut = output_lengths(ten, [1, 6, 11, 12], max_output_tokens=8, max_context_tokens=12, rng=rng)
    assert cut.tolist() == [8, 6, 1, 1]
    free = output_lengths(ten, [1], max_output_tokens=99, max_context_tokens=99, rng=rng)
    assert free.tolist() == [10]


@pytest.mark.parametrize(
    ("tokens", "cumulative", "sentence"),
    [
        ([1, 2, 3], [0.0, 1.0], "pairs at least 2 lengths"),
        ([2, 1], [0.0, 1.0], "must ascend"),
        ([1, 2], [0.0, 0.9], "from share 0 to 1, not from 0.0 to 0.9"),
    ],
)
def test_tables_that_are_no_distribution_are_refused(
    tokens: list[int], cumulative: list[float], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        _ecdf(tokens, cumulative)


def test_who_saw_some_samples_knows_about_the_same_distribution() -> None:
    """Of two lengths, a quarter and three quarters; the share seen is off by its sampling error."""
    seen = THREE.resampled(5000, np.random.default_rng(3))
    assert seen.tokens.tolist() == [0, 1, 10]
    assert seen.cdf([0]).tolist() == [0.0]
    assert seen.cdf([1])[0] == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 5000) ** 0.5)
    assert seen.cdf([1])[0] != 0.25
    assert seen.mean_tokens == pytest.approx(7.75, abs=0.3)
