"""Requests are dealt in turn, and the turn is remembered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from baselines.round_robin import RoundRobin
from harness.interface.decisions import Deployment
from harness.interface.entities import ServiceId
from harness.interface.views import ClusterView
from harness.tests.support.serving import Everywhere, FlatCosts, a_group, serve, workload

M, N = ServiceId("m"), ServiceId("n")


@dataclass
class Deployed:
    """A cluster of which only the deployment is looked at."""

    deployment: Deployment


def _view(*groups: tuple[str, int]) -> ClusterView:
    deployment = Deployment(tuple(a_group(service, gpu) for service, gpu in groups))
    return cast(ClusterView, Deployed(deployment))


def _dealt(policy: RoundRobin, count: int, service: ServiceId, view: ClusterView) -> Sequence[str]:
    return list(policy.dispatch(list(range(count)), service, view))


def test_each_service_has_its_own_turn_among_its_own_groups() -> None:
    policy, view = RoundRobin(), _view(("m", 0), ("n", 1), ("m", 2), ("m", 3))
    assert _dealt(policy, 4, M, view) == ["m@0", "m@2", "m@3", "m@0"]
    assert _dealt(policy, 2, N, view) == ["n@1", "n@1"]
    assert _dealt(policy, 3, M, view) == ["m@2", "m@3", "m@0"]
    assert _dealt(policy, 0, M, view) == []


def test_the_turn_goes_on_when_groups_change() -> None:
    """Five dealt to two groups: the sixth goes to place 5 modulo the groups there are then."""
    policy = RoundRobin()
    assert _dealt(policy, 5, M, _view(("m", 0), ("m", 1)))[-1] == "m@0"
    assert _dealt(policy, 1, M, _view(("m", 0), ("m", 1), ("m", 2))) == ["m@2"]


def test_in_a_run_every_second_request_goes_to_the_second_group() -> None:
    """Two groups, one request at a time each, 0.5 + 0.25 s: r0 and r1 end together, then r2."""
    from baselines.fcfs import Fcfs
    from harness.tests.support.serving import rule

    frame = serve(
        workload([4, 4, 4], [2, 2, 2]),
        Fcfs(rule=rule(max_num_seqs=1)),
        Everywhere(("m", (0,)), ("m", (1,))),
        costs=FlatCosts(),
    ).requests
    assert frame["finished_s"].tolist() == [1.75, 1.75, 2.5]
