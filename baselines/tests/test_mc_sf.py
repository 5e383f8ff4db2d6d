"""Admission by predicted completions, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from baselines.mc_sf import McSf, fits
from harness.interface.policies import SchedulingPolicy
from harness.tests.support.predictors import Truth
from harness.tests.support.serving import FlatCosts, LinearCosts, rule, serve, workload

CHUNKS = rule(chunked_prefill=True)


def test_completions_by_hand() -> None:
    """A and B of the next test hold 3 + 2 tokens in the first round, C would add 3.

    A round later, C would come to hold 3 when A holds 4.
    """
    assert fits(np.array([2, 1]), np.array([2, 1]), 5, 1)
    assert not fits(np.array([2, 1]), np.array([2, 1]), 4, 1)
    assert not fits(np.array([2, 1, 2]), np.array([2, 1, 3]), 6, 1)
    assert not fits(np.array([3, 2]), np.array([1, 3]), 6, 1)
    # In blocks of four tokens: one each, then a second for what grows from four to five.
    assert fits(np.array([3, 4]), np.array([1, 1]), 3, 4)
    assert not fits(np.array([3, 4]), np.array([2, 2]), 3, 4)


def test_the_papers_order_by_hand() -> None:
    """KV of 6 tokens; A, B and C have prompts of 2, 1 and 2 tokens, and answers of 2, 1 and 3.

    B and A are admitted, C when A has ended: rounds 1, 2 and 5, here half a second for one with a
    prompt and a quarter for one without.
    """
    load = workload([2, 1, 2], [2, 1, 3])
    load = replace(load, max_output_tokens=load.output_tokens)
    costs = FlatCosts(load=0.0, blocks=6, block=1)
    policy = McSf(rule=CHUNKS, protected_share=0.0)
    served = serve(load, policy, costs=costs, predictor=Truth([2, 1, 3]))
    assert served.requests["finished_s"].tolist() == [0.75, 0.5, 1.75]


@pytest.mark.parametrize(
    ("protected_share", "finished_s"),
    [
        # All three at once: they hold 11 tokens in the second round, and then fewer.
        (0.0, [1.0, 0.75, 1.25]),
        # 7 tokens are left to them. B and A hold these in the second round; in the third A holds 5,
        # and C would add 3: it is admitted when A has ended.
        (0.5, [1.0, 0.75, 2.25]),
    ],
)
def test_a_share_is_protected_by_hand(protected_share: float, finished_s: list[float]) -> None:
    """As above, with KV of 14 tokens and answers that are longer by one."""
    load = workload([2, 1, 2], [3, 2, 4])
    load = replace(load, max_output_tokens=load.output_tokens)
    costs = FlatCosts(load=0.0, blocks=14, block=1)
    policy = McSf(rule=CHUNKS, protected_share=protected_share)
    served = serve(load, policy, costs=costs, predictor=Truth([3, 2, 4]))
    assert served.requests["finished_s"].tolist() == finished_s


def _preemptions(policy: SchedulingPolicy, wrong_by: int = 0) -> int:
    """Of 40 requests that come at once, with KV for few; predictions may be too low."""
    rng = np.random.default_rng(5)
    prompts, outputs = rng.integers(1, 100, 40).tolist(), rng.integers(1, 60, 40).tolist()
    predictor = Truth([max(1, tokens - wrong_by) for tokens in outputs])
    load, costs = workload(prompts, outputs), LinearCosts(blocks=24)
    served = serve(load, policy, costs=costs, predictor=predictor).requests
    assert served["finished_s"].notna().all()
    return int(served["preemptions"].sum())


def test_true_lengths_leave_nothing_to_preempt() -> None:
    policy = McSf(rule=CHUNKS, protected_share=0.0)
    assert _preemptions(policy) == 0
    assert _preemptions(policy, wrong_by=30) > 0
    assert _preemptions(Fcfs(rule=CHUNKS)) > 0


def test_a_share_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"policy\.protected_share is 1\.0, it must be at least"):
        McSf(rule=CHUNKS, protected_share=1.0)
