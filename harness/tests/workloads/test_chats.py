from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from harness.config.paths import ROOT
from harness.tests.support.configured import cells_of
from harness.tests.support.data import DATA, needs_data
from harness.tools.fitting.pairs import pair_files
from harness.tools.fitting.stored import as_text
from harness.workloads.arrivals import AtOnce, Gamma
from harness.workloads.chats import Chats
from harness.workloads.lengths import PAIRS, Drawn, Lengths, Paired

ARRIVALS = sorted(
    path
    for path in (ROOT / "scenarios" / "workload" / "arrivals").glob("*.yaml")
    if not path.stem.startswith(
        "at_load"
    )  # relative to a capacity, which was measured for some settings
)
CHAT: dict[str, Any] = {
    "model": "vicuna-13b-v1.5",
    "requests": 300,
    "arrivals": Gamma(rate_per_s=1.0, burstiness=1.0, sorted_gaps=False),
    "lengths": Paired(
        table="lmsys_arena", part="all", outputs="lmsys_vicuna13b", longest_output_tokens=None
    ),
    "max_output_tokens": 512,
    "starts_s": 0.0,
}


def rounds(part: int, longest: int | None = None) -> Paired:
    return Paired(table="sharegpt_rounds", part=part, outputs=None, longest_output_tokens=longest)


def drawn(lengths: Lengths, count: int = 40_000) -> Drawn:
    return lengths.draw(count, np.random.default_rng(0), np.random.default_rng(1))


@pytest.mark.parametrize("longest", [None, 200])
@pytest.mark.parametrize("outputs", [None, "lmsys_vicuna13b"])
@pytest.mark.parametrize("few", [1, 300, 5000])
def test_the_first_of_many_pairs_are_those_of_few(
    outputs: str | None, longest: int | None, few: int
) -> None:
    lengths = Paired(
        table="lmsys_arena", part="all", outputs=outputs, longest_output_tokens=longest
    )
    less, more = drawn(lengths, few), drawn(lengths, 9000)
    assert len(less.output_tokens) == few
    for some, all_of_them in zip(less, more, strict=True):
        assert (some == all_of_them[:few]).all()


def rank_correlation(lengths: Drawn) -> float:
    return float(spearmanr(lengths.prompt_tokens, lengths.output_tokens).statistic)


def test_answers_are_those_of_the_model_and_go_with_the_prompt_as_in_the_arena() -> None:
    """Stated: answers of mean 177, median 140, 2 to 511; prompts of mean 136; rho 0.26."""
    found = drawn(CHAT["lengths"])
    assert found.output_tokens.mean() == pytest.approx(177, rel=0.02)
    assert np.median(found.output_tokens) == pytest.approx(140, rel=0.03)
    assert (found.output_tokens.min(), found.output_tokens.max()) == (2, 511)
    assert found.prompt_tokens.mean() == pytest.approx(136, rel=0.03)
    assert rank_correlation(found) == pytest.approx(0.26, abs=0.03)


def test_the_arenas_own_answers() -> None:
    own = Paired(table="lmsys_arena", part="all", outputs=None, longest_output_tokens=None)
    found = drawn(own)
    assert found.output_tokens.mean() == pytest.approx(256, rel=0.02)
    assert np.median(found.output_tokens) == pytest.approx(211, rel=0.03)


@pytest.mark.parametrize(
    ("part", "context", "answer", "correlation"),
    [(1, 225, 470, 0.06), (2, 881, 460, 0.33), (5, 2576, 452, 0.40)],
)
def test_later_rounds_carry_their_history(
    part: int, context: float, answer: float, correlation: float
) -> None:
    """Means and rank correlations of the rows behind the tables; bins lose about 0.01 of it."""
    found = drawn(rounds(part))
    assert found.prompt_tokens.mean() == pytest.approx(context, rel=0.02)
    assert found.output_tokens.mean() == pytest.approx(answer, rel=0.02)
    assert rank_correlation(found) == pytest.approx(correlation, abs=0.03)


def test_longer_answers_are_left_out_with_their_prompts() -> None:
    every, short = drawn(rounds(3)), drawn(rounds(3, 511))
    assert short.output_tokens.max() <= 511 < every.output_tokens.max()
    kept = every.output_tokens <= 511
    assert short.output_tokens.mean() == pytest.approx(every.output_tokens[kept].mean(), rel=0.02)
    assert short.prompt_tokens.mean() == pytest.approx(every.prompt_tokens[kept].mean(), rel=0.02)


def test_same_seed_same_workload_and_lengths_do_not_depend_on_arrivals() -> None:
    one, again, other = (
        Chats(**CHAT | change).build(3) for change in ({}, {}, {"arrivals": AtOnce()})
    )
    np.testing.assert_array_equal(one.arrival_s, again.arrival_s)
    for column in ("prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(getattr(one, column), getattr(again, column))
        np.testing.assert_array_equal(getattr(one, column), getattr(other, column))
    assert not np.array_equal(one.output_tokens, Chats(**CHAT).build(4).output_tokens)
    assert not np.array_equal(one.arrival_s, other.arrival_s)
    assert set(one.datasets) == {
        "harness/profiles/pairs/lmsys_arena.json",
        "harness/profiles/lengths/lmsys_vicuna13b.json",
    }


def test_prompts_are_cut_to_a_short_context() -> None:
    """GPT-2 has 1,024 tokens; beside answers of 512 there is room for as many."""
    workload_factory = Chats(
        **CHAT | {"model": "gpt2-large", "lengths": rounds(3), "requests": 2000}
    )
    load = workload_factory.build(0)
    assert load.prompt_tokens.max() == 512


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"requests": 0}, "workload.requests is 0, it must be positive"),
        ({"max_output_tokens": -1}, "workload.max_output_tokens is -1, it must be positive"),
        ({"model": "gpt2-large", "max_output_tokens": 1024}, "answers of 1024 tokens leave no"),
        ({"model": "vicunia"}, "vicunia"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Chats(**CHAT | change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"table": "sharegpt_round"}, "sharegpt_rounds"),
        ({"part": 7}, "No part of sharegpt_rounds is called '7'"),
        ({"outputs": "lmsys_vicuna"}, "lmsys_vicuna13b"),
        ({"longest_output_tokens": 1}, "longest_output_tokens is 1, the shortest answer has 2"),
    ],
)
def test_bad_lengths_are_named(change: dict[str, Any], said: str) -> None:
    about = {
        "table": "sharegpt_rounds",
        "part": "1",
        "outputs": None,
        "longest_output_tokens": None,
    }
    with pytest.raises(ValueError, match=said):
        Paired(**about | change)


@pytest.mark.parametrize(
    "axis",
    [
        "workload/arrivals=" + ",".join(path.stem for path in ARRIVALS),
        "workload/lengths=lmsys,sharegpt_round,lognormal",
    ],
)
def test_arrivals_and_lengths_are_axes_of_a_matrix(axis: str) -> None:
    name, _, values = axis.partition("=")
    cells = cells_of(
        "workload=chats", "system=fixed", "policy=vllm_0_3", f"+matrix={{{name}: [{values}]}}"
    )
    loads = [cell.workload_factory.build(0) for cell in cells]
    assert len({cell.folder for cell in cells}) == len(values.split(","))
    assert all(len(load) == 500 for load in loads)


@needs_data
def test_tables_of_pairs_are_reproduced_byte_for_byte() -> None:
    made = {name: as_text(content) for name, content in pair_files(DATA)}
    assert made == {path.name: path.read_text(encoding="utf-8") for path in PAIRS.iterdir()}
