"""The simulator with a batch of one against the recursion of a queue."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness.interface.decisions import (
    ContinuousBatching,
)
from harness.interface.entities import (
    Work,
)
from harness.tests.support.serving import (
    SERVICE,
    LinearCosts,
    rule,
    serve,
    workload,
)

ALONE = rule(max_num_seqs=1)


def _service_s(costs: LinearCosts, prompt: int, output: int) -> float:
    """Seconds of a request served alone."""
    square = float(prompt) ** 2
    alone_s = costs.iteration_s(SERVICE, 1, Work(1, prompt, prompt, square, 0, 0, 0))
    for context in range(prompt + 1, prompt + output):
        alone_s += costs.iteration_s(SERVICE, 1, Work(0, 0, 0, 0.0, 1, context, context))
    return alone_s


@pytest.mark.parametrize(
    "batch_rule",
    [ALONE, rule(chunked_prefill=True, max_num_seqs=1), rule(pads=True, max_num_seqs=1)],
)
@given(fast=st.booleans(), seed=st.integers(0, 10**6), gap_s=st.sampled_from([0.05, 0.25, 1.0]))
@settings(max_examples=6, deadline=None)
def test_a_batch_of_one_is_lindleys_queue(
    batch_rule: ContinuousBatching, fast: bool, seed: int, gap_s: float
) -> None:
    """finish_i = max(arrival_i, finish_(i-1)) + service_i, for every request."""
    costs = LinearCosts(load=0.75)
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(1, 90, 25), rng.integers(1, 60, 25)
    arrivals_s = np.cumsum(rng.exponential(gap_s, 25))
    load = workload(prompts.tolist(), outputs.tolist(), arrivals_s.tolist())
    frame = serve(load, Fcfs(rule=batch_rule), costs=costs, fast_forward=fast).requests
    finish_s, expected = costs.load, []
    for arrival_s, prompt, output in zip(arrivals_s, prompts, outputs, strict=True):
        finish_s = max(arrival_s, finish_s) + _service_s(costs, int(prompt), int(output))
        expected.append(finish_s)
    np.testing.assert_allclose(frame["finished_s"], expected, rtol=1e-9)
