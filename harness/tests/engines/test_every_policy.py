"""What holds for every policy that a YAML file names. A new file is a new case."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from harness.config.build import build
from harness.config.yaml_files import policy_files
from harness.engines.recorder import GpuUse, Recorder
from harness.engines.simulator.loop import SUPPORTS
from harness.interface.decisions import Decision
from harness.interface.events import Event
from harness.interface.moving import MovingKey
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.tables import Floats
from harness.interface.views import GroupView
from harness.tests.support.files import (
    assert_conserved,
    assert_equal,
    name_of,
    offered_to_all,
    read_nodes,
)
from harness.tests.support.ledger_problems import problems
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import LinearCosts, cluster, of_tenants, serve, workload
from harness.workloads.workload import Workload

POLICIES = policy_files()


_node = cache(read_nodes)


def _policy(path: Path) -> SchedulingPolicy:
    """A fresh policy; skips where it needs what the simulator does not offer (all are told)."""
    policy: SchedulingPolicy = build(
        _node(path)["policy"], offered=offered_to_all(LinearCosts(), cluster())
    )
    if missing := policy.requires - SUPPORTS - {Capability.PREDICTIONS}:
        pytest.skip(f"the simulator lacks {', '.join(sorted(c.value for c in missing))}")
    return policy


def _loads() -> dict[str, tuple[Workload, LinearCosts]]:
    """A burst, arrivals over time for two services, and more requests than the KV holds.

    The last are taken in between iterations. Tenants and deadlines; whatever a context may be, it
    fits the smallest KV.
    """
    rng = np.random.default_rng(11)
    prompts, outputs = rng.integers(1, 120, 40).tolist(), rng.integers(1, 80, 40).tolist()
    arrivals_s = np.cumsum(rng.exponential(0.06, 40)).tolist()
    loads = {
        "burst": (None, 1, 800, 0.0),
        "online": (arrivals_s, 2, 200, 0.0),
        "tight": (arrivals_s, 1, 40, 0.0037),
    }
    return {
        kind: (
            of_tenants(
                workload(prompts, outputs, come_s, services, max_context_tokens=256),
                11,
                slack_s=4.0,
            ),
            LinearCosts(blocks=blocks, received_s_per_request=received_s),
        )
        for kind, (come_s, services, blocks, received_s) in loads.items()
    }


LOADS = _loads()


def _fingerprint(view: GroupView) -> tuple[object, ...]:
    """Everything of a view that a decision may rest on."""
    table = view.table
    columns = [
        getattr(table, name).tobytes() for name in type(table).__slots__ if name != "services"
    ]
    ledger = [(i, view.kv.holding(i), view.kv.reservation(i)) for i in view.requests]
    free = [view.kv.free_blocks(service) for service in view.services]
    rest = (view.now_s, view.group, view.in_flight, view.free_share, view.max_num_batched_tokens)
    return (*columns, *ledger, *free, *rest, problems(view.kv).copy() == [])


def _numbers(key: Floats | MovingKey) -> tuple[Floats, ...]:
    if isinstance(key, MovingKey):
        return key.value, key.slope, key.until
    return (key,)


@dataclass
class Checked:
    """Lets a policy decide and checks that it only looked."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset()

    inner: SchedulingPolicy
    waited: bool = False
    asked: int = 0

    def observe(self, event: Event) -> None:
        """Pass it on."""
        self.inner.observe(event)

    def schedule(self, view: GroupView) -> Decision:
        """Compare the view before and after, and the key of a priority order with itself."""
        self.asked += 1
        before = _fingerprint(view)
        decision = self.inner.schedule(view)
        assert _fingerprint(view) == before
        if decision.priority_order is not None and decision.priority_order.key is not None:
            one, other = (decision.priority_order.keys(view.table) for _ in range(2))
            np.testing.assert_equal(_numbers(one), _numbers(other))
            assert _fingerprint(view) == before
        self.waited |= not decision.launch and decision.priority_order is None
        return decision


def _checked(policy: SchedulingPolicy) -> Checked:
    """The policy between checks, with its own needs and events."""

    class Same(Checked):
        requires = policy.requires
        subscribes = policy.subscribes

    return Same(policy)


def _serve(
    load: Workload,
    policy: SchedulingPolicy,
    costs: LinearCosts,
    *,
    fast: bool = True,
    recorder: Recorder | None = None,
) -> Recorder:
    """Run it; who orders by predictions is told some."""
    predictor = Guess() if Capability.PREDICTIONS in policy.requires else None
    return serve(
        load, policy, costs=costs, fast_forward=fast, recorder=recorder, predictor=predictor
    )


@pytest.mark.parametrize("kind", LOADS)
@pytest.mark.parametrize("path", POLICIES, ids=name_of)
def test_a_policy_only_looks_and_fast_forward_changes_nothing(path: Path, kind: str) -> None:
    """Asked at every iteration, it drains, leaves every view as it was, and ends the same.

    In a burst, from load to last finish, the GPU is busy, unless the policy asked to wait.
    """
    load, costs = LOADS[kind]
    policy = _checked(_policy(path))
    asked = _serve(load, policy, costs, fast=False, recorder=Recorder(keep_events=True))
    # Once for each batch of up to four whole requests, if not for each iteration.
    assert policy.asked >= len(load) / 4
    assert_conserved(load, asked)
    on, off = _serve(load, _policy(path), costs).requests, asked.requests
    np.testing.assert_array_equal(on["preemptions"], off["preemptions"])
    times = ["first_token_s", "finished_s", "gpu_s"]
    np.testing.assert_allclose(on[times], off[times], rtol=1e-9)
    if kind == "burst" and not policy.waited:
        busy = asked.gpu_frame().query(f"use == '{GpuUse.BUSY.value}'")
        busy_s = (busy["end_s"] - busy["start_s"]).sum()
        assert busy_s == pytest.approx(off["finished_s"].max() - costs.load, rel=1e-9)


@pytest.mark.parametrize("path", POLICIES, ids=name_of)
def test_a_policy_does_the_same_twice(path: Path) -> None:
    load, costs = LOADS["tight"]
    one, other = (
        _serve(load, _policy(path), costs, recorder=Recorder(keep_events=True)) for _ in range(2)
    )
    assert_conserved(load, one)
    assert_equal(one, other)
