"""Workloads whose requests begin alike, at random."""

from dataclasses import replace

import numpy as np

from harness.tests.support.serving import workload
from harness.workloads.workload import Workload


def alike(seed: int, count: int, *, longest: int = 120, most: int = 30, gap_s: float) -> Workload:
    """Requests of which most begin with some of the context of one that has come before.

    As system prompts, sessions and blocks of a trace do; arrivals are `gap_s` apart on average.
    """
    rng = np.random.default_rng(seed)
    outputs = rng.integers(1, most + 1, count)
    own = rng.integers(1, longest // 3, count)
    prefix, tokens = np.full(count, -1), np.zeros(count, np.int64)
    prompts = np.zeros(count, np.int64)
    for row in range(count):
        if row and rng.random() < 0.8:
            prefix[row] = rng.integers(max(0, row - 12), row)
            context = prompts[prefix[row]] + outputs[prefix[row]]
            shared = context if rng.random() < 0.3 else rng.integers(0, context + 1)
            tokens[row] = min(shared, longest - own[row])
        # Some have no token of their own.
        prompts[row] = max(1, tokens[row] + own[row] * (rng.random() < 0.9))
    arrivals = np.cumsum(rng.exponential(gap_s, count)) if gap_s else np.zeros(count)
    # To twentieths, so that some come at the same time and some at the end of an iteration.
    arrivals = np.floor(arrivals * 20) / 20
    load = workload(prompts.tolist(), outputs.tolist(), arrivals.tolist())
    return replace(load, prefix=prefix, prefix_tokens=tokens)
