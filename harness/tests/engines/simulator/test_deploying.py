"""One deployment turned into another: who leaves a group that stays."""

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.engines.lifecycle import Lifecycle
from harness.engines.recorder import Recorder
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.deploying import Deployer
from harness.engines.simulator.group import LiveGroup
from harness.engines.simulator.host_memory import NO_HOST_MEMORY
from harness.engines.simulator.stepping import Stepper
from harness.engines.simulator.timeline import Timeline
from harness.interface.decisions import Deployment
from harness.interface.entities import GpuId, Group, GroupId, ServiceId
from harness.interface.kv_ledger import KvLedger
from harness.interface.policies import Capability, System
from harness.tests.support.serving import Everywhere, LinearCosts, cluster, rule, workload
from harness.workloads.workload import Workload


class Idle(Stepper):
    """Steps nothing."""

    def __init__(self) -> None:
        self.flights = {}

    def interrupt(self, live: LiveGroup) -> None:
        """Nothing runs."""


def _group(name: str, gpu: int, *services: str) -> Group:
    return Group(GroupId(name), frozenset(map(ServiceId, services)), (GpuId(gpu),))


def _deployer(load: Workload) -> Deployer:
    """Of groups that may be shared, and that nobody steps."""
    groups: dict[GroupId, LiveGroup] = {}
    system = System("test", Fcfs(rule=rule()), RoundRobin(), Everywhere())
    life = Lifecycle(
        load, cluster(2), system, groups=groups, deliver=lambda r, to: deployer.deliver(r, to)
    )

    compiled = CompiledGroups(life.state.arrays, len(load.services))

    def new_group(group: Group) -> LiveGroup:
        services = {name: life.services[name] for name in sorted(group.services)}
        ledger = KvLedger(capacity_bytes=10**6, services=services)
        host = NO_HOST_MEMORY.of_group(1, overlaps=False)
        number = compiled.reserve()
        return LiveGroup(group, services, ledger, 8, 256, 1.0, life.state, host, compiled, number)

    deployer = Deployer(
        lifecycle=life,
        groups=groups,
        timeline=Timeline(),
        stepper=Idle(),
        compiled=compiled,
        costs=LinearCosts(),
        recorder=Recorder(),
        supports=frozenset({Capability.SHARED_GROUP}),
        new_group=new_group,
        loads_first=False,
        tell=lambda event: None,
        wants=lambda kind: False,
    )
    return deployer


def test_a_group_that_stays_keeps_the_requests_of_services_that_stay() -> None:
    """Two services share a group; one of them gets a second group, the other is left alone."""
    load = workload([9] * 6, [3] * 6, services=2)
    deployer = _deployer(load)
    life, groups = deployer.lifecycle, deployer.groups
    shared, second = _group("shared", 0, "m0", "m1"), _group("second", 1, "m0")
    deployer.deploy(Deployment((shared,)))
    for service in life.services:
        life.hold_back(service, [r for r in range(len(load)) if load.service_of(r) == service])
        life.hand_out(service)
    live = groups[shared.id]
    # Two have been looked at, the others are in the inbox.
    rest, live.inbox = live.inbox[2:], live.inbox[:2]
    live.absorb()
    live.inbox = rest
    deployer.deploy(Deployment((shared, second)))
    here, there = ({*map(int, groups[g].members), *groups[g].inbox} for g in groups)
    assert {1, 3, 5} <= here
    assert here | there == set(range(6))
    assert here & there == set()
    assert life.held_back == {}
    assert {load.service_of(r) for r in there} == {"m0"}
