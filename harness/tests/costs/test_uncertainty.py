"""Intervals from the error of the costs."""

import numpy as np
import pytest

from harness.costs.iteration import iteration_seconds
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.uncertainty import DrawnCosts
from harness.interface.entities import ServiceId, Work

MODEL = ServiceId("vicuna-13b-v1.5")
ROOFLINE = ServiceId("stablelm-tuned-alpha-7b")


@pytest.fixture
def costs() -> ProfileCosts:
    return ProfileCosts(
        gpu="A100-80G", profile_dir="a100_80g_vllm_0_3", memory_share=0.9, parts=PARTS
    )


def test_every_iteration_is_off_by_the_same_factor(costs: ProfileCosts) -> None:
    drawn = DrawnCosts(costs, 3, 0)
    prefill, decode = drawn.factors(MODEL, 2)
    works = (
        (Work(3, 60, 90, 2700.0), prefill),
        (Work(decode_requests=40, context_tokens=9000, longest_tokens=400), decode),
    )
    for work, factor in works:
        assert drawn.iteration_s(MODEL, 2, work) == pytest.approx(
            factor * costs.iteration_s(MODEL, 2, work)
        )
    table = drawn.table(MODEL, 2)
    assert iteration_seconds(table, 0, 0, 0, 0.0, 40, 9000, 400) == pytest.approx(
        decode * costs.iteration_s(MODEL, 2, works[1][0])
    )


def test_a_draw_repeats_and_draws_differ(costs: ProfileCosts) -> None:
    """Also by the seed: draw 1 of ten seeds is ten draws."""

    def factors(draw: int, seed: int, tensor_parallel: int = 1) -> tuple[float, float]:
        return DrawnCosts(costs, draw, seed).factors(MODEL, tensor_parallel)

    assert factors(1, 3) == factors(1, 3)
    assert len({factors(draw, seed) for draw in range(1, 9) for seed in range(10)}) == 80
    assert factors(1, 3) != factors(1, 3, tensor_parallel=2)


@pytest.mark.parametrize("service", [MODEL, ROOFLINE])
def test_the_median_size_of_a_draw_is_the_profiles_error(
    costs: ProfileCosts, service: ServiceId
) -> None:
    """The median of |log factor| over many draws is the median held-out error of decodes."""
    sizes = [abs(np.log(DrawnCosts(costs, d, 0).factors(service, 1)[1])) for d in range(1, 2001)]
    assert np.median(sizes) == pytest.approx(costs.error(service, 1)["decode_median"], rel=0.07)


def test_loads_and_memory_are_not_drawn(costs: ProfileCosts) -> None:
    drawn = DrawnCosts(costs, 5, 0)
    assert drawn.load_s(MODEL, 1) == costs.load_s(MODEL, 1)
    assert drawn.kv_blocks(MODEL, 1) == costs.kv_blocks(MODEL, 1)
    assert drawn.block_tokens(MODEL) == costs.block_tokens(MODEL)
