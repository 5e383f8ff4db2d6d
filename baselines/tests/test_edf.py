"""Earliest deadline first."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.edf import Edf
from harness.tests.support.serving import FlatCosts, rule, serve, workload


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("displaces", "ends_s"), [(None, [2.0, 3.0, 2.5]), ("pause", [2.5, 3.0, 2.0])]
)
def test_the_earliest_deadline_runs_first_by_hand(
    displaces: str | None, ends_s: list[float], fast: bool
) -> None:
    """One slot from 1 s on; r0's three tokens take 1 s, the one of r1 and r2 half a second.

    r0 is due at 8 s, r1 never, and r2, which comes at 1.1 s, at 7 s: it takes r0's slot at 1.5 s
    where the order displaces.
    """
    load = workload([10] * 3, [3, 1, 1], [0.0, 0.0, 1.1])
    load = replace(load, deadline_s=np.array([8.0, np.nan, 7.0]))
    policy = Edf(rule=rule(max_num_seqs=1), displaces=displaces)
    found = serve(load, policy, costs=FlatCosts(), fast_forward=fast).requests
    assert found["finished_s"].tolist() == ends_s
