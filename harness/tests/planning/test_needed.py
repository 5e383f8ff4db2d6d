"""Operations with every token counted once, as SamuLLM's program has it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.planning.estimate import Counted, Forecast, Forecaster
from harness.planning.plans import Load, Plan
from harness.tests.support.plans import TINY, load_of
from harness.tests.support.serving import SERVICE, LinearCosts, rule

PADDED = rule(pads=True, max_num_seqs=4, tokens=300, padding=40)


def _forecast(load: Load, plan: Plan, *, blocks: int = 200, needed_only: bool = True) -> Forecast:
    counted = Counted(needed_only=needed_only)
    forecaster = Forecaster(costs=LinearCosts(blocks=blocks), rule=PADDED, counted=counted)
    return forecaster.forecast(SERVICE, TINY, plan, load)


def test_needed_operations_by_hand() -> None:
    """Two layers, hidden size 4: c = 4 x (2 + 2 + 2 + 2) x 2 + 2 x 4 x 8 = 128.

    Nothing is padded, and of a prompt a token sees those before it, 3 pairs of 3 and 1 of 2:
    2 x (128 x 3 + 2 x 4 x 3) = 816 and 2 x (128 x 2 + 2 x 4 x 1) = 528. A token that is decoded
    with 4 or 5 before it 320 or 336; both with 3 and 4 together 2 x (128 x 2 + 2 x 4 x 7) = 624.
    """
    one = Plan(1, 1)
    assert _forecast(load_of([3], [3]), one).flops == pytest.approx(816 + 320 + 336)
    both = _forecast(load_of([2, 3], [2, 2]), one)
    assert both.flops == pytest.approx(528 + 816 + 624)
    # A request with one token generated has been read before.
    assert _forecast(load_of([3], [3], [1]), one).flops == pytest.approx(320 + 336)


@given(seed=st.integers(0, 10**6), groups=st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_what_is_needed_depends_on_no_plan_and_no_memory(seed: int, groups: int) -> None:
    """With 12 blocks many are preempted and computed again, which counts as computed alone."""
    rng = np.random.default_rng(seed)
    load = load_of(rng.integers(1, 90, 30).tolist(), rng.integers(1, 70, 30).tolist())
    ample = _forecast(load, Plan(1, 1))
    scarce = _forecast(load, Plan(groups, 1), blocks=12)
    assert scarce.flops == pytest.approx(ample.flops)
    assert ample.flops <= _forecast(load, Plan(1, 1), needed_only=False).flops
    done = [scarce.flops_by(float(at_s)) for at_s in np.linspace(0.0, scarce.finish_s, 50)]
    assert done == sorted(done)
