"""Orders of applications in the engine: examples by hand, compiled runs equal to stepped ones."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from baselines.fcfs import Fcfs
from baselines.parrot import Parrot
from harness.config.build import build
from harness.interface.policies import SchedulingPolicy
from harness.planning.application_history import ApplicationHistory, UnitRun
from harness.tests.support.files import SCENARIOS, offered_to_all, read_nodes
from harness.tests.support.outside import LLM_S, applied, random_applications
from harness.tests.support.serving import UnevenCosts, cluster, rule, serve, workload
from harness.tests.support.shared import UnitCosts, of_services
from harness.workloads.workload import Workload
from systems.hermes.pdgraph import GraphSettings
from systems.hermes.policy import Hermes

ONE_SLOT = rule(max_num_seqs=1)


def unit_calls(outputs: list[int], arrivals_s: list[float]) -> Workload:
    """Calls of a service whose iterations take 1 s."""
    load = workload([9] * len(outputs), outputs, arrivals_s, services=2)
    return of_services(load, "0" * len(outputs))


def hermes(
    past: ApplicationHistory, *, objective: str = "gittins", displaces: str | None = "pause"
) -> Hermes:
    return Hermes(
        rule=ONE_SLOT,
        objective=objective,
        graphs=GraphSettings(0.0, 1.0, refines=True, buckets=9, min_correlation=0.5),
        displaces=displaces,
        renew_s=1.0,
        applications=past,
    )


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("policy", "act_s"),
    [
        (partial(Fcfs, rule=ONE_SLOT), [15.0, 9.0]),
        (partial(Parrot, rule=ONE_SLOT, order="arrival", displaces=None), [10.0, 14.0]),
    ],
)
def test_an_application_that_has_begun_goes_on_by_hand(
    policy: Callable[[], SchedulingPolicy], act_s: list[float], fast: bool
) -> None:
    """Calls of 5 s in one slot: two of X, which comes at 0 s, and one of Y, which comes at 1 s."""
    load = applied(
        unit_calls([5, 5, 5], [0.0, 0.0, 1.0]), [(0, 1)], app=[0, 0, 1], external_s=[LLM_S] * 3
    )
    frame = serve(load, policy(), costs=UnitCosts(), fast_forward=fast).apps
    assert frame is not None
    assert (frame["finished_s"] - frame["arrived_s"]).tolist() == act_s


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("objective", "displaces", "mean_s"),
    [("gittins", "pause", 10.5), ("mean", "pause", 11.0), ("gittins", None, 13.0)],
)
def test_one_or_nine_seconds_against_three_by_hand(
    objective: str, displaces: str | None, mean_s: float, fast: bool
) -> None:
    """Sums of completion times: Gittins gives the first a second, its rank is then 8 against 3."""
    risky, sure = ([[UnitRun("x", (9,), (tokens,))] for tokens in own] for own in ([1, 9], [3]))
    ends_s = 0.0
    for tokens in (1, 9):
        load = applied(unit_calls([tokens, 3], [0.0, 0.0]), [], app=[0, 1], external_s=[LLM_S] * 2)
        policy = hermes(
            ApplicationHistory({"a": risky, "b": sure}), objective=objective, displaces=displaces
        )
        found = serve(load, policy, costs=UnitCosts(), fast_forward=fast).requests
        ends_s += found["finished_s"].sum()
    assert ends_s / 2 == mean_s


def some_past() -> ApplicationHistory:
    """Runs of the units and the kinds of random applications."""
    rng = np.random.default_rng(3)

    def run() -> list[UnitRun]:
        calls = [
            UnitRun(unit, (int(rng.integers(1, 60)),), (int(rng.integers(1, 40)),))
            for unit in rng.choice(["x", "y"], int(rng.integers(1, 4))).tolist()
        ]
        return [*calls, UnitRun("z", external_s=0.2)]

    return ApplicationHistory({kind: [run() for _ in range(20)] for kind in ("a", "b")})


def order_of(name: str, displaces: str | None) -> SchedulingPolicy:
    """As its file has it, in small batches whose keys are asked often."""
    small: dict[str, Any] = {
        "chunked_prefill": True,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 64,
    }
    node = read_nodes(SCENARIOS / f"policy/{name}.yaml", **small)["policy"]
    node["displaces"] = displaces
    if "renew_s" in node:
        node["renew_s"] = 0.1
    offered = offered_to_all(UnevenCosts(), cluster()) | {"applications": some_past()}
    policy: SchedulingPolicy = build(node, offered=offered)
    return policy


@pytest.mark.parametrize("displaces", [None, "recompute"])
@pytest.mark.parametrize(
    "name",
    ["hermes_gittins", "hermes_lstf", "parrot", "parrot_depth", "vtc", "vtc_calls", "edf"],
)
def test_compiled_as_stepped(name: str, displaces: str | None) -> None:
    """Deadlines, and two services, each on a group of its own."""
    for seed in range(2):
        load = random_applications(seed, count=16, services=2)
        slack_s = np.random.default_rng(seed).choice([0.1, 0.5, 2.0], 16)
        first_s = np.array([load.arrival_s[load.app == app].min() for app in range(16)])
        load = replace(load, deadline_s=(first_s + slack_s)[load.app])
        costs = UnevenCosts(blocks=30, load=0.0)
        on, off = (
            serve(load, order_of(name, displaces), costs=costs, fast_forward=fast).requests
            for fast in (True, False)
        )
        np.testing.assert_allclose(on["finished_s"], off["finished_s"], rtol=1e-9)
        np.testing.assert_array_equal(on["preemptions"], off["preemptions"])
