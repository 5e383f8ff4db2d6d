"""Calls of applications: ids that tell nothing of what is to come, and columns that do not fit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.interface.graph import Edges
from harness.tests.support.outside import LLM_S, applied
from harness.tests.support.serving import workload
from harness.workloads.workload import Workload


def two_chains(seed: int = 0, **changes: Any) -> Workload:
    """Three calls and two, each after the one before; the second of the first runs outside."""
    about: dict[str, Any] = {
        "app": [0, 0, 0, 1, 1],
        "external_s": [LLM_S, 2.0, LLM_S, LLM_S, LLM_S],
    }
    load = workload([10, 1, 11, 20, 21], [3] * 5, [0.0] * 3 + [1.0] * 2)
    return applied(load, [(0, 1), (1, 2), (3, 4)], seed=seed, **about | changes)


def test_calls_that_wait_come_after_all_others_in_any_order() -> None:
    orders = {tuple(two_chains(seed).app.tolist()) for seed in range(20)}
    assert orders == {(0, 1, 0, 1, 0), (0, 1, 1, 0, 0)}
    load = two_chains()
    assert load.prompt_tokens[[0, 1, 4]].tolist() == [10, 20, 11]
    assert load.facts(0).unit == "x"


def test_ids_of_second_calls_do_not_tell_how_long_a_chain_is() -> None:
    """Of a long chain and nine short ones, its second call is as often among the first half."""
    app = [0] * 9 + [number for number in range(1, 10) for _ in range(2)]
    pairs = [(i, i + 1) for i in range(len(app) - 1) if app[i] == app[i + 1]]
    load = workload([10] * len(app), [3] * len(app), np.array(app, float).tolist())
    ids = []
    for seed in range(200):
        made = applied(load, pairs, app=app, external_s=[LLM_S] * len(app), seed=seed)
        ids.append(int(np.flatnonzero(made.app == 0)[1]))
    assert {10 <= number < 20 for number in ids} == {True}
    assert 80 <= sum(number < 15 for number in ids) <= 120


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"external_s": [LLM_S, 0.0] + [LLM_S] * 3}, "takes 0.0 s outside any LLM, it must be"),
        ({"instance": [0, 1, 2, 1, 3]}, "is of run 1 of a unit, with another application"),
        ({"instance": [0, 0, 1, 2, 3]}, "is of run 0 of a unit, with another number of calls"),
        ({"instance": [0, 1, 2, 3, 5]}, "run of a unit 4 has no call"),
        ({"app": [0, 0, 0, 2, 2]}, "application 1 has no call"),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        two_chains(**changes)


def test_ids_that_tell_and_deadlines_in_the_past_are_refused() -> None:
    load = two_chains()
    with pytest.raises(ValueError, match=r"application 1 has a deadline of 0.5 s before arrival"):
        replace(load, deadline_s=np.where(load.app == 1, 0.5, np.nan))


def test_a_call_that_waits_for_none_after_one_that_waits_is_refused() -> None:
    """Its id would be one more than the number of calls before it."""
    load = replace(workload([10] * 3, [3] * 3), app=np.array([0, 0, 1]))
    alone = applied(load, [], app=[0, 0, 1], external_s=[LLM_S] * 3)
    edges = Edges(np.array([0]), np.array([1]), np.array([False]))
    with pytest.raises(ValueError, match="ids would tell the number of calls"):
        replace(alone, edges=edges)
