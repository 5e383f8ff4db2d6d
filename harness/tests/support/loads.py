"""Random loads, and what must not differ between two ways to serve them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from harness.engines.recorder import Recorder
from harness.workloads.arrivals import ClosedLoop
from harness.workloads.workload import Workload

Load = tuple[list[int], list[int], list[float]]


@st.composite
def loads(draw: st.DrawFn, most: int = 30, longest: int = 70) -> Load:
    """Up to `most` requests in bursts and gaps: prompts, outputs up to `longest`, arrivals."""
    count = draw(st.integers(1, most))
    prompts = draw(st.lists(st.integers(1, 90), min_size=count, max_size=count))
    outputs = draw(st.lists(st.integers(1, longest), min_size=count, max_size=count))
    gaps = draw(
        st.lists(
            st.sampled_from([0.0, 0.0, 0.0031, 0.0507, 0.7013]), min_size=count, max_size=count
        )
    )
    return prompts, outputs, np.cumsum(gaps).tolist()


def closed(load: Workload, clients: int, think_s: float = 0.0, ramp_up_s: float = 0.0) -> Workload:
    """The requests of a workload, sent by so many clients."""
    arrivals = ClosedLoop(clients=clients, ramp_up_s=ramp_up_s, think_s=think_s)
    arrival_s = arrivals.draw(len(load), np.random.default_rng(0))
    return replace(load, arrival_s=arrival_s, think_s=think_s)


def waits_s(most: int) -> st.SearchStrategy[list[float]]:
    """Times between up to `most` redeployments."""
    return st.lists(st.sampled_from([0.0113, 0.2719, 1.6449]), max_size=most)


def assert_same_times(serve_it: Callable[[bool], Recorder]) -> Recorder:
    """Fast-forward on and off: the same counts, and times to 1e-9. Returns the former."""
    fast, slow = serve_it(True), serve_it(False)
    on, off = fast.requests, slow.requests
    exact = ["output_tokens", "preemptions", "swaps", "swapped_bytes"]
    exact += ["cached_tokens"] * ("cached_tokens" in on)
    np.testing.assert_array_equal(on[exact], off[exact])
    times = ["arrival_s", "started_s", "first_token_s", "finished_s"]
    times += ["gpu_s", "prefill_s", "preempted_s", "swap_s"]
    np.testing.assert_allclose(on[times], off[times], rtol=1e-9, atol=1e-9)
    gaps_s = [it["longest_gap_s"].fillna(0.0).to_numpy() for it in (on, off)]
    np.testing.assert_allclose(gaps_s[0], gaps_s[1], rtol=1e-9, atol=2e-9)
    assert fast.gaps.sum() == slow.gaps.sum()
    return fast
