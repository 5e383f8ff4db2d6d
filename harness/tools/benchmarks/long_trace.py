"""A long trace on one replica at 80% load: `... harness.tools.benchmarks.long_trace --requests N`.

Requests are W1's with uneven lengths around the same means. The process measures its own peak of
memory, that of the modules included; nothing else runs in it.
"""

import argparse
import json
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.tools.benchmarks.reference_load import (
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    SEED,
    capacity_per_s,
    printed,
    serve_s,
    vllm_policy,
    w1,
)
from harness.workloads.workload import Floats, Workload

REQUESTS = 10_000_000
LOAD = 0.8
BACKLOG = 20_000
"""Requests all there at once, of which the replica's capacity is taken."""


def trace(requests: int, arrival_s: Floats) -> Workload:
    """Prompts and answers of evenly drawn lengths, up to twice those of W1."""
    rng = np.random.default_rng(SEED)
    output_tokens = rng.integers(1, 2 * OUTPUT_TOKENS, requests)
    return replace(
        w1(requests, 1),
        arrival_s=arrival_s,
        prompt_tokens=rng.integers(1, 2 * PROMPT_TOKENS, requests),
        output_tokens=output_tokens,
        max_output_tokens=output_tokens,
    )


def measure() -> dict[str, float]:
    """Wall-clock seconds to serve the whole trace under vLLM's order, and the peak of memory."""
    seconds, peak_bytes = printed(["-m", "harness.tools.benchmarks.long_trace"])
    return {"trace_10m_s": seconds, "trace_10m_peak_bytes": peak_bytes}


def print_served(load: Workload) -> None:
    """Serve a load after a warm-up; prints [seconds, peak bytes]."""
    serve_s(vllm_policy(), w1(1000, 1), 1)
    seconds = serve_s(vllm_policy(), load, 1)
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve one trace; prints [seconds, peak bytes]; the exit status."""
    parser = argparse.ArgumentParser(description="Seconds and bytes of a long trace.")
    parser.add_argument("--requests", type=int, default=REQUESTS, metavar="N")
    given = parser.parse_args(arguments)
    if given.requests < 1:
        parser.error(f"--requests is {given.requests}, it must be 1 or more")
    policy, rng = vllm_policy(), np.random.default_rng(SEED)
    per_s = LOAD * capacity_per_s(policy, trace(BACKLOG, np.zeros(BACKLOG)))
    gaps_s = rng.exponential(1 / per_s, given.requests)
    print_served(trace(given.requests, gaps_s.cumsum(out=gaps_s)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
