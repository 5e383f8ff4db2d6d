"""Stages are followed as planned, and adjusted as arXiv 2503.16893 sec. 4.3 says."""

from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interface.entities import ServiceId
from harness.planning.plan_tracking import StageFollower
from harness.planning.plans import Plan, Stage

M1, M2, M3, M4 = (ServiceId(f"M{i}") for i in range(1, 5))
ONE, TWO, THREE, FOUR = (Plan(n, 1) for n in range(1, 5))


def _follow(
    stages: Sequence[Stage], ends: Sequence[ServiceId], gpus: int = 4
) -> list[dict[ServiceId, Plan]]:
    """What runs at the start and after each end."""
    follower = StageFollower(stages, gpus)
    unfinished = {service for stage in stages for service in stage}
    shown = [follower.next(unfinished)]
    for service in ends:
        assert service in shown[-1], f"{service} ends without running"
        unfinished.remove(service)
        shown.append(follower.next(unfinished))
    return shown


def test_a_service_in_its_last_stage_and_an_unchanged_pair_keep_running() -> None:
    """E1 = (M1, M2, M3) should end with M1, but M2 ends first.

    E1 is the last stage of M1: it keeps its GPU. (M3, 2 GPUs) is in E2 as well: it keeps its two.
    M2 of E2 has ended, so nothing else is due, and the fourth GPU is left over. Then M1 ends: E2 is
    settled, E3 gives M3 all.
    """
    stages = [{M1: ONE, M2: ONE, M3: TWO}, {M2: TWO, M3: TWO}, {M3: FOUR}]
    assert _follow(stages, [M2, M1]) == [stages[0], {M1: ONE, M3: TWO}, {M3: FOUR}]


def test_the_pairs_of_the_next_stage_come_before_the_old_ones() -> None:
    """M2 ends first. M1 keeps its GPU, E2 wants (M3, 1) and (M4, 2): they fit beside it.

    The old pair (M3, 2) is given up for (M3, 1).
    """
    stages = [{M1: ONE, M2: ONE, M3: TWO}, {M2: ONE, M3: ONE, M4: TWO}]
    assert _follow(stages, [M2])[1] == {M1: ONE, M3: ONE, M4: TWO}


def test_an_old_pair_stays_where_the_next_one_does_not_fit() -> None:
    """M2 ends first. M1 keeps 1 of 4 GPUs, so (M3, 4) of E2 cannot run yet: (M3, 2) goes on.

    E2 is not passed before its pair runs: when M1 ends, M3 gets its four.
    """
    stages = [{M1: ONE, M2: ONE, M3: TWO}, {M3: FOUR}]
    assert _follow(stages, [M2, M1]) == [stages[0], {M1: ONE, M3: TWO}, {M3: FOUR}]


def test_an_old_pair_is_dropped_where_no_gpu_is_left_and_comes_back_in_its_stage() -> None:
    """E1 ends with M2, as planned is M1. (M4, 3) of E2 fits beside M1; for (M3, 2) nothing is left.

    M3 is in E3: it comes back when M1 or M4 has ended and (M4, 3) has run.
    """
    stages = [{M1: ONE, M2: ONE, M3: TWO}, {M4: THREE}, {M3: THREE}]
    shown = _follow(stages, [M2, M1])
    assert shown[1] == {M1: ONE, M4: THREE}
    # M4 is in its last stage and keeps three; (M3, 3) of E3 does not fit beside it and waits.
    assert shown[2] == {M4: THREE}
    assert _follow(stages, [M2, M4])[2] == {M1: ONE, M3: THREE}


def test_gpus_of_a_service_that_ended_early_go_to_a_later_stage() -> None:
    """M2 ends in E1 though planned for E2; E2's other pair runs, so E3's is looked at at once."""
    stages = [{M1: TWO, M2: TWO}, {M2: TWO, M3: ONE}, {M4: ONE}]
    assert _follow(stages, [M2])[1] == {M1: TWO, M3: ONE, M4: ONE}


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[dict[ServiceId, Plan]], int, list[int]]:
    """Random stages within the GPUs in which each of up to five services occurs; random choices."""
    gpus = draw(st.integers(1, 6))
    services = [ServiceId(f"m{i}") for i in range(draw(st.integers(1, 5)))]
    stages: list[dict[ServiceId, Plan]] = []
    for _ in range(draw(st.integers(0, 5))):
        stage: dict[ServiceId, Plan] = {}
        for service in draw(st.permutations(services)):
            free = gpus - sum(plan.gpus for plan in stage.values())
            size = draw(st.integers(0, free))
            if size:
                stage[service] = draw(st.sampled_from([Plan(size, 1), Plan(1, size)]))
        if stage:
            stages.append(stage)
    for service in services:
        if not any(service in stage for stage in stages):
            stages.insert(draw(st.integers(0, len(stages))), {service: Plan(1, gpus)})
    return stages, gpus, draw(st.lists(st.integers(0, 99), min_size=5, max_size=5))


@given(plans())
@settings(max_examples=25, deadline=None)
def test_nobody_is_lost_whatever_ends_first(
    case: tuple[list[dict[ServiceId, Plan]], int, list[int]],
) -> None:
    """Always terminates within the GPUs, and passes no stage before its pairs ran or ended."""
    stages, gpus, choices = case
    follower = StageFollower(stages, gpus)
    unfinished = {service for stage in stages for service in stage}
    ran: set[tuple[ServiceId, Plan]] = set()
    for choice in choices[: len(unfinished)]:
        running = follower.next(unfinished)
        ran |= set(running.items())
        assert running, "no request runs"
        assert running.keys() <= unfinished
        assert sum(plan.gpus for plan in running.values()) <= gpus
        _assert_none_passed(stages[: follower.position], ran, unfinished)
        unfinished.remove(sorted(running)[choice % len(running)])
    assert not unfinished


def _assert_none_passed(
    passed: Sequence[Mapping[ServiceId, Plan]],
    ran: set[tuple[ServiceId, Plan]],
    unfinished: set[ServiceId],
) -> None:
    for stage in passed:
        for service, plan in stage.items():
            assert (service, plan) in ran or service not in unfinished


@given(plans())
@settings(max_examples=25, deadline=None)
def test_a_service_in_its_last_stage_keeps_its_plan_until_it_ends(
    case: tuple[list[dict[ServiceId, Plan]], int, list[int]],
) -> None:
    """Once it runs under the plan of its last stage, and that stage has been due."""
    stages, gpus, choices = case
    follower = StageFollower(stages, gpus)
    unfinished = {service for stage in stages for service in stage}
    last = {s: i for i, stage in enumerate(stages) for s in stage}
    final = {s: plan for stage in stages for s, plan in stage.items()}
    before: dict[ServiceId, Plan] = {}
    position = -1
    for choice in choices[: len(unfinished)]:
        running = follower.next(unfinished)
        for service, plan in before.items():
            if service in unfinished and last[service] <= position and plan == final[service]:
                assert running[service] == plan
        before, position = running, follower.position
        unfinished.remove(sorted(running)[choice % len(running)])


def test_without_preemption_what_runs_stays() -> None:
    """M2 ends first; E2 wants M3 on one GPU and M4 on three, but M3 keeps the two it has.

    M4 has to wait until M1 and M3 have left it three.
    """
    stages = [{M1: ONE, M2: ONE, M3: TWO}, {M3: ONE, M4: THREE}]
    follower = StageFollower(stages, 4, preemption=False)
    assert follower.next({M1, M2, M3, M4}) == stages[0]
    assert follower.next({M1, M3, M4}) == {M1: ONE, M3: TWO}
    assert follower.next({M3, M4}) == {M3: TWO}
    assert follower.next({M4}) == {M4: THREE}
