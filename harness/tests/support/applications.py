"""Workloads whose calls wait for the answers of others."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

from harness.engines.recorder import Recorder
from harness.interface.graph import Edges
from harness.tests.support.serving import (
    workload,
)
from harness.workloads.workload import Floats, Workload


def linked(load: Workload, pairs: list[tuple[int, int]], *, carries: bool = True) -> Workload:
    """The workload with edges; prompts grow by the answers carried to them."""
    both = np.array(pairs, np.int64).reshape(-1, 2)
    edges = Edges(both[:, 0], both[:, 1], np.full(len(both), carries))
    carried = edges.carried(load.output_tokens)
    return replace(
        load,
        edges=edges,
        own_tokens=load.prompt_tokens,
        prompt_tokens=load.prompt_tokens + carried,
    )


def linked_pairs(load: Workload) -> list[tuple[int, int]]:
    """(parent, child) of every edge."""
    return list(zip(load.edges.parent.tolist(), load.edges.child.tolist(), strict=True))


def arrives_s(load: Workload, frame: pd.DataFrame, after_s: float = 0.0) -> Floats:
    """When every call comes: with its application, or so long after the last that it waits for."""
    due_s: Floats = load.arrival_s.copy()
    for parent, child in linked_pairs(load):
        due_s[child] = max(due_s[child], frame["finished_s"][parent] + after_s)
    return due_s


def assert_served_as_stepped(
    load: Workload, serve_it: Callable[[bool], Recorder], after_s: float
) -> pd.DataFrame:
    """Fast-forward on and off: the same requests, calls so long after what they wait for.

    Returns them.
    """
    frames = [serve_it(fast).requests for fast in (True, False)]
    pd.testing.assert_frame_equal(frames[0], frames[1], rtol=1e-9)
    assert frames[0]["arrival_s"].to_numpy() == pytest.approx(arrives_s(load, frames[0], after_s))
    return frames[0]


@st.composite
def applications(draw: st.DrawFn) -> Workload:
    """Up to 24 calls of three services with edges to earlier calls, chains among them."""
    count = draw(st.integers(2, 24))
    sizes = st.integers(1, 40)
    prompts = draw(st.lists(sizes, min_size=count, max_size=count))
    outputs = draw(st.lists(sizes, min_size=count, max_size=count))
    gaps = draw(st.lists(st.sampled_from([0.0] * 5 + [0.0507]), min_size=count, max_size=count))
    load = workload(prompts, outputs, np.cumsum(gaps).tolist(), services=3)
    service = np.array(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    parents = [
        draw(st.lists(st.integers(max(0, i - 6), i - 1), max_size=2, unique=True)) if i else []
        for i in range(count)
    ]
    came_s = load.arrival_s
    pairs = [(p, i) for i, chosen in enumerate(parents) for p in chosen if came_s[p] == came_s[i]]
    return linked(replace(load, service=service), pairs)
