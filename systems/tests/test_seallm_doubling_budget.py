"""Budgets that double, by hand: the examples of the paper, its first theorem and where it ends."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness.interface.entities import ServiceId
from harness.interface.policies import SchedulingPolicy
from harness.interface.tables import RequestTable, attained_s
from harness.planning.forecast import Window
from harness.runs.building import window_of
from harness.tests.support.serving import rule, workload
from harness.tests.support.shared import UnitCosts, of_services, served
from systems.seallm.doubling_budget import DoublingBudget

ONE = rule(max_num_seqs=1)
UNIT = UnitCosts()
FIFTH = UnitCosts(each_s=0.2)


def history(*tokens: Sequence[int]) -> Window:
    """Answers of so many tokens for each service; each token takes an iteration."""
    flat = [count for own in tokens for count in own]
    past = workload([9] * len(flat), flat, services=len(tokens))
    service = np.repeat(np.arange(len(tokens)), [len(own) for own in tokens])
    return window_of(replace(past, service=service))


def doubling_budget(
    past: Window | None,
    *,
    costs: UnitCosts = UNIT,
    max_num_seqs: int = 1,
    prompts_first: bool = True,
    displaces: str | None = "pause",
    starved_after: float | None = None,
) -> DoublingBudget:
    return DoublingBudget(
        costs=costs,
        rule=replace(rule(max_num_seqs=max_num_seqs), prompts_first=prompts_first),
        displaces=displaces,
        starved_after=starved_after,
        history=past,
    )


ONE_AND_FOUR = history([1], [4])
"""Requests of m0 take 1 s, those of m1 4 s."""
UNEVEN = history([1, 3], [5, 15])
"""By fifths of a second: 0.2 and 0.6 s, 0.4 +- 0.2 s, and 1 and 3 s, 2 +- 1 s."""


# ---- the order ----


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("policy", "ends_s", "normalized"),
    [
        (Fcfs(rule=ONE), [1, 2, 6, 7, 8], 15.0),
        (doubling_budget(ONE_AND_FOUR), [1, 2, 8, 3, 4], 7.5),
        (doubling_budget(ONE_AND_FOUR, prompts_first=False), [1, 2, 8, 3, 4], 7.5),
        (doubling_budget(ONE_AND_FOUR, displaces=None), [1, 2, 8, 3, 4], 7.5),
    ],
)
def test_five_requests_by_hand(
    policy: SchedulingPolicy, ends_s: list[float], normalized: float, fast: bool
) -> None:
    """A and B (m0, 1 s) come at 0; C (m1, 4 s), D and E (m0, 1 s) at 2: fig. 2.

    First come first served, C keeps D and E waiting; the shorter service first, it begins after
    them. The sum of latencies over mean seconds is 2.0 times as large under the former.
    """
    load = of_services(workload([9] * 5, [1, 1, 4, 1, 1], [0, 0, 2, 2, 2], services=2), "00100")
    ended = served(load, policy, UNIT, fast=fast).requests["finished_s"].to_numpy()
    assert ended.tolist() == ends_s
    assert ((ended - load.arrival_s) / load.output_tokens).sum() == normalized


def table_of(services: Sequence[int], gpu_s: Sequence[float]) -> RequestTable:
    """Requests that have come and are to be ordered."""
    count, names = len(services), max(2, max(services) + 1)
    return RequestTable(
        id=np.arange(count),
        arrival_s=np.zeros(count),
        prompt_tokens=np.full(count, 9),
        generated_tokens=np.zeros(count, np.int64),
        kv_tokens=np.zeros(count, np.int64),
        gpu_s=attained_s(np.array(gpu_s, float)),
        max_output_tokens=np.full(count, 99),
        deadline_s=np.full(count, np.nan),
        predicted_mean_tokens=np.full(count, np.nan),
        service=np.array(services),
        services=tuple(ServiceId(f"m{index}") for index in range(names)),
    )


def priorities(policy: DoublingBudget, table: RequestTable) -> list[float]:
    order = policy.schedule(view=None).priority_order  # type: ignore[arg-type]
    assert order is not None
    key = order.keys(table)
    assert not isinstance(key, np.ndarray)
    found: list[float] = key.at(table).tolist()
    return found


def test_budgets_that_double_by_hand() -> None:
    """0.4 +- 0.2 s: 0.6 s x 0.4 s; when these and 1.2, 2.4, 4.8 and 9.6 s more are over, twice.

    A fresh request of m1 (2 +- 1 s) has 3 s x 2 s: m0's goes before it up to 9.0 s, and not from
    18.6 s on. One of m0 with 0.1 s attained goes before a fresh one.
    """
    spent_s = [0.0, 0.1, 0.6, 1.8, 4.2, 9.0, 18.6, 0.0]
    found = priorities(
        doubling_budget(UNEVEN, costs=FIFTH), table_of([0, 0, 0, 0, 0, 0, 0, 1], spent_s)
    )
    expected = [0.24, 0.20, 0.48, 0.96, 1.92, 3.84, 7.68, 6.0]
    assert found == pytest.approx(expected, abs=1e-5)
    # Budgets go on doubling beyond those that a key says ahead: the fifteenth ends at 2^15 - 1.
    (last,) = priorities(doubling_budget(UNEVEN, costs=FIFTH), table_of([0], [0.6 * 32767.0]))
    assert last == pytest.approx(0.4 * 0.6 * 32768, rel=1e-6)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("prompts_first", [True, False])
def test_a_service_whose_budget_has_doubled_often_yields(prompts_first: bool, fast: bool) -> None:
    """Iterations of 0.6 s. r0 (m0) has a budget of 7.68 s^2 after 31 of 40, 18.6 s; r1 has 6.0.

    r1 (m1) spends its 3 s, which five iterations take, and r0 runs its last nine, 5.4 s.
    """
    load = workload([9, 9], [40, 5], services=2)
    policy = doubling_budget(UNEVEN, costs=FIFTH, max_num_seqs=8, prompts_first=prompts_first)
    found = served(load, policy, UnitCosts(each_s=0.6), fast=fast).requests
    assert found["started_s"].tolist() == pytest.approx([0.0, 18.6])
    assert found["finished_s"].tolist() == pytest.approx([27.0, 21.6])
    assert found["gpu_s"].tolist() == pytest.approx([24.0, 3.0])


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(("prompts_first", "first_token_s"), [(True, 3.0), (False, 5.0)])
def test_newcomers_of_the_chosen_service_by_hand(
    prompts_first: bool, first_token_s: float, fast: bool
) -> None:
    """Algorithm 2 in both readings: r0 has 4 s of its 4 s when r1 of the same service comes at 2.

    r0 has 2 s left and comes first: as printed it decodes to its end at 4 s, and then r1's prompt
    is computed. Where prompts of the chosen service go first, that ends at 3 s.
    """
    load = of_services(workload([9, 9], [4, 1], [0.0, 2.0], services=2), "11")
    policy = doubling_budget(ONE_AND_FOUR, max_num_seqs=8, prompts_first=prompts_first)
    found = served(load, policy, UNIT, fast=fast).requests
    assert found["first_token_s"].tolist() == [1.0, first_token_s]
    assert found["finished_s"].tolist() == [5.0 if prompts_first else 4.0, first_token_s]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("starved_after", "first_token_s", "ends_s"),
    [
        (None, 13.0, [1.0, 16.0, *range(2, 13)]),
        (2.0, 9.0, [1.0, 16.0, *range(2, 9), 10, 11, 12, 13]),
    ],
)
def test_a_starved_service_comes_first_by_hand(
    starved_after: float | None, first_token_s: float, ends_s: list[float], fast: bool
) -> None:
    """A request of m0 (1 s) comes every second to 11; r1 (m1, 4 s) is there from 0 on.

    m0 always comes first, to 12 s. With a threshold of 2 x 4 s, m1 is starved at 8 s and runs once,
    to 9 s; it would be again at 17 s, but m0 has run by 13 s.
    """
    load = of_services(
        workload([9] * 13, [1, 4] + [1] * 11, [0.0, 0.0, *range(1, 12)], services=2),
        "01" + "0" * 11,
    )
    policy = doubling_budget(ONE_AND_FOUR, starved_after=starved_after)
    found = served(load, policy, UNIT, fast=fast).requests
    assert found["first_token_s"][1] == first_token_s
    assert found["finished_s"].tolist() == ends_s


# ---- profiles ----


def test_services_that_the_history_lacks_by_hand() -> None:
    """m0 takes 1 s, m1 3 +- 1 s; m2 counts as their mean, 2 +- 0.5 s."""
    policy = doubling_budget(history([1], [2, 4]))
    assert priorities(policy, table_of([0, 1, 2], [0.0] * 3)) == pytest.approx([1, 12, 5])
    assert priorities(doubling_budget(None), table_of([0, 1], [0.0, 0.25])) == [1.0, 0.75]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"starved_after": 0.0}, r"policy\.starved_after is 0\.0, it must be above 0"),
        ({"displaces": "swap"}, r"policy\.displaces is swap, not pause, recompute or null"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, float | str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        doubling_budget(None, **settings)  # type: ignore[arg-type]


# ---- Theorem 1 ----

Instance = tuple[tuple[int, int], ...]
"""Second of arrival and service of each request."""


def by_priority(instance: Instance, seconds: Sequence[int]) -> float:
    """Sum of latencies over mean seconds where every second the first in the order runs."""
    policy = doubling_budget(history(*([count] for count in seconds)))
    left = [seconds[service] for _, service in instance]
    now_s, total = 0, 0.0
    while any(left):
        here = [r for r, (come_s, _) in enumerate(instance) if come_s <= now_s and left[r]]
        now_s += 1
        if here:
            services = [instance[r][1] for r in here]
            spent_s = [float(seconds[instance[r][1]] - left[r]) for r in here]
            first = here[int(np.argmin(priorities(policy, table_of(services, spent_s))))]
            left[first] -= 1
            if not left[first]:
                come_s, service = instance[first]
                total += (now_s - come_s) / seconds[service]
    return total


def least(instance: Instance, seconds: Sequence[int]) -> float:
    """The smallest such sum of all orders that are preempted at whole seconds."""

    @cache
    def of(now_s: int, left: tuple[int, ...]) -> float:
        if not any(left):
            return 0.0
        here = [r for r, (come_s, _) in enumerate(instance) if come_s <= now_s and left[r]]
        if not here:
            return of(now_s + 1, left)
        found = []
        for r in here:
            rest = of(now_s + 1, (*left[:r], left[r] - 1, *left[r + 1 :]))
            come_s, service = instance[r]
            found.append(rest + (left[r] == 1) * (now_s + 1 - come_s) / seconds[service])
        return min(found)

    return of(0, tuple(seconds[service] for _, service in instance))


@given(
    instance=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), min_size=2, max_size=4),
    seconds=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
@settings(max_examples=25, deadline=None)
def test_the_order_is_optimal_for_two_services(
    instance: list[tuple[int, int]], seconds: tuple[int, int]
) -> None:
    """Theorem 1 restricted to two services, whose requests all take the mean."""
    found = by_priority(tuple(instance), seconds)
    assert found == pytest.approx(least(tuple(instance), seconds))


def test_the_order_is_not_optimal_for_three_services() -> None:
    """Requests of 5, 3 and 1 s come at 0, 3 and 5 s: where Theorem 1 ends.

    At 3 s the first has 2 s x 5 s left and the second 3 s x 3 s, so it waits: ends at 9, 7 and 6 s,
    9/5 + 4/3 + 1. Were it to end first, at 5 s, the ends would be 5, 9 and 6 s: 1 + 2 + 1.
    """
    instance, seconds = ((0, 0), (3, 1), (5, 2)), (5, 3, 1)
    assert by_priority(instance, seconds) == pytest.approx(62 / 15)
    assert least(instance, seconds) == pytest.approx(4.0)
