"""Controls: what a formula gives is found, and where nothing differs nothing comes out."""

from collections.abc import Iterator, Sequence
from functools import cache
from math import log1p, pi, sqrt

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from baselines.fcfs import Fcfs
from baselines.fixed_placement import FixedPlacement
from baselines.round_robin import RoundRobin
from harness.claims.effects import ratio, reduction
from harness.claims.paper import Claim
from harness.conditions.cells import Ground, Side, ground_of
from harness.conditions.changes import alone, nearest_alone
from harness.conditions.maps import Map
from harness.conditions.outcomes import Found, Outcome, found_of
from harness.conditions.space import Point, Space, space_of
from harness.conditions.trials import tried
from harness.costs.iteration import MAX_REQUESTS
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.interface.entities import Cluster, GpuId
from harness.interface.policies import LengthPredictor, SchedulingPolicy, System
from harness.predictors.ground_truth import Known
from harness.tools.benchmarks.reference_load import vllm_rule
from harness.tools.verify.queues import TICK_COSTS, as_workload
from harness.tools.verify.samples import TICK_S, Sample
from systems.ssjf.policy import Ssjf

SAVES = 0.2
"""Of FCFS's mean response time: what shortest job first is said to save."""
QUEUE = {
    "claims": {"saves": None},
    "scenario": "ssjf_rates",
    "baseline": {},
    "dimensions": {
        "load": {"range": [0.1, 0.95], "reference": 0.2, "scale": "linear"},
        "spread": {"range": [0.3, 3.0], "reference": 1.0, "words": "CV of service times"},
    },
}


def saved(load: float, cv: float) -> float:
    """What SJF without preemption saves of FCFS's mean response in M/G/1, by Cobham's formula.

    Service is lognormal with mean 1; a size of z deviations waits behind the work in smaller ones.
    """
    sigma = sqrt(log1p(cv**2))
    nodes, weights = np.polynomial.legendre.leggauss(2000)
    z, residual = 12 * nodes, load * (1 + cv**2) / 2
    weights = 12 * weights * np.exp(-z * z / 2) / sqrt(2 * pi)
    shortest = (weights * residual / (1 - load * norm.cdf(z - sigma)) ** 2).sum() / weights.sum()
    return float(1 - (shortest + 1) / (residual / (1 - load) + 1))


@cache
def response_s(load: float, cv: float, seed: int, policy: type[Fcfs] | type[Ssjf]) -> float:
    """Mean response on the simulator, one request at a time."""
    rng, sigma, count = np.random.default_rng(seed), sqrt(log1p(cv**2)), 4000
    service = np.exp(sigma * rng.standard_normal(count) - sigma**2 / 2)
    gaps = rng.exponential(1.0, count) / load
    ticks = (np.rint(it / TICK_S).astype(np.int64) for it in (gaps, service))
    requests = as_workload(Sample(*(np.maximum(it, 1) for it in ticks)))
    rule = vllm_rule(chunked_prefill=False, max_num_seqs=1, max_num_batched_tokens=MAX_REQUESTS)
    predictor: LengthPredictor | None = None
    served: SchedulingPolicy = Fcfs(rule=rule)
    if policy is Ssjf:
        served, predictor = Ssjf(rule=rule, aging_tokens_per_s=0.0), Known(requests.output_tokens)
    cluster = Cluster((GpuId(0),), (frozenset({GpuId(0)}),))
    placement = FixedPlacement(data_parallel=1, tensor_parallel=1, costs=TICK_COSTS)
    system = System("queue", served, RoundRobin(), placement, predictor=predictor)
    recorder = Recorder()
    engine = Simulator(
        cluster=cluster,
        costs=TICK_COSTS,
        max_num_seqs=MAX_REQUESTS,
        max_num_batched_tokens=MAX_REQUESTS,
    )
    engine.run(requests, system, recorder)
    return float((recorder.requests["finished_s"] - recorder.requests["arrival_s"]).mean())


CLAIM = Claim(
    id="saves",
    figure="queue",
    where="Cobham 1954",
    says="saves a fifth",
    quote="",
    paper=SAVES * 1.5,  # it comes out from two thirds of what is claimed
    effect=lambda cells: reduction(cells, "jct_s_mean", of={"policy": Ssjf}, over={"policy": Fcfs}),
)


def ask(settings: Sequence[Point]) -> Iterator[Found]:
    """The claim in settings of the queue."""
    for it in settings:
        cells = pd.DataFrame(
            {"seed": seed, "policy": policy, "jct_s_mean": times}
            for seed in range(5)
            for policy in (Fcfs, Ssjf)
            for times in [response_s(it["load"], it["spread"], seed, policy)]
        )
        yield found_of(CLAIM, cells)


@pytest.mark.parametrize("cv", [1.0, 1.5])
def test_the_boundary_of_a_formula_is_found(cv: float) -> None:
    """From a load of 0.2 shortest job first saves a fifth where Cobham's formula says so."""
    space = space_of("queue", QUEUE)
    start = {"load": 0.2, "spread": cv}
    boundary = brentq(lambda load: saved(load, cv) - SAVES, 0.05, 0.95)
    (change,) = [
        one
        for one in nearest_alone(space, start, alone(space, start, ask), ask, comes=True)
        if list(one.values) == ["load"]
    ]
    assert change.values["load"] == pytest.approx(boundary, rel=0.1)


TWICE = {
    "claims": {"faster": None},
    "scenario": "ssjf_rates",
    "where": {"policy": "fcfs_continuous", "workload.arrivals.rate_per_s": 4},
    "baseline": {"policy": "fcfs_continuous"},
    "backlog": 100,
    "dimensions": {
        "load": {"range": [0.5, 3.0], "reference": [4]},
        "batch": {"range": [2, 16], "reference": 4},
    },
}


def test_a_policy_against_itself_comes_out_nowhere() -> None:
    """Under two names: every cell has no effect, no box is told and no change is found."""
    space = space_of("twice", TWICE)
    one, *_ = ground_of(space).sides
    sides = [one, Side({**one.axes, "policy": "another name"}, one.plain)]
    ground, claims = Ground(space, sides), {"faster": _faster()}
    rows = [tried(ground, claims, it, 2).row for it in space.sample(16)]
    found = Map(space, "faster", pd.DataFrame(rows))
    assert found.counts[Outcome.NO_EFFECT] == 16
    assert found.box == found.state_box == []


def _faster() -> Claim:
    names: list[dict[str, str]] = [{"policy": "another name"}, {"policy": "fcfs_continuous"}]
    return Claim(
        id="faster",
        figure="twice",
        where="nowhere",
        says="is faster",
        quote="",
        paper=1.5,
        effect=lambda cells: ratio(cells, "jct_s_mean", of=names[1], over=names[0]),
    )


def test_dimensions_of_a_space_are_what_it_says() -> None:
    space: Space = space_of("twice", TWICE)
    assert [it.at(0.5) for it in space.dimensions] == [pytest.approx(1.5**0.5), 6.0]
    assert space.dimension("batch").share(16) == 1.0
    with pytest.raises(ValueError, match="No dimension is called 'lenght'"):
        space_of("x", {**TWICE, "dimensions": {"lenght": {"range": [1, 2], "reference": 1}}})
