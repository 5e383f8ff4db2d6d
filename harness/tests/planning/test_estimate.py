"""A forecast is the simulator's own run of estimated lengths, its operations those of eq. 1-2."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines.fcfs import Fcfs
from harness.interface.decisions import ContinuousBatching, Deployment
from harness.interface.entities import GpuId, Group, GroupId, ServiceId
from harness.interface.views import ClusterView
from harness.planning.estimate import Forecast, Forecaster, estimated_workloads
from harness.planning.plans import Load, Plan
from harness.predictors.oracle import Oracle
from harness.tests.support.plans import TINY, load_of
from harness.tests.support.serving import SERVICE, Everywhere, LinearCosts, rule, serve, workload
from harness.workloads.ecdf import Ecdf

PLANS = (Plan(1, 1), Plan(2, 1), Plan(3, 1), Plan(1, 2), Plan(2, 2))
RULES = (
    rule(pads=True, max_num_seqs=4, tokens=300, padding=40),
    rule(chunked_prefill=True, max_num_seqs=6, tokens=32),
)


def _random(seed: int, count: int) -> tuple[list[int], list[int]]:
    rng = np.random.default_rng(seed)
    return rng.integers(1, 90, count).tolist(), rng.integers(1, 70, count).tolist()


def _forecast(
    load: Load, plan: Plan, batch_rule: ContinuousBatching = RULES[0], blocks: int = 200
) -> Forecast:
    forecaster = Forecaster(costs=LinearCosts(blocks=blocks), rule=batch_rule)
    return forecaster.forecast(SERVICE, TINY, plan, load)


class Spread(Everywhere):
    """One service by a plan; looks at what is unfinished at given times, if any."""

    def __init__(self, plan: Plan, looks_s: list[float] | None = None) -> None:
        size = plan.tensor_parallel
        self._deployment = Deployment(
            tuple(
                Group(
                    GroupId(f"g{i}"),
                    frozenset({SERVICE}),
                    tuple(GpuId(i * size + j) for j in range(size)),
                )
                for i in range(plan.data_parallel)
            )
        )
        self._looks_s = list(looks_s or [])
        self.seen: list[tuple[list[int], list[int]]] = []

    def place(self, view: ClusterView) -> Deployment:
        """The same every time."""
        if view.now_s > 0:
            table = view.unfinished(SERVICE)
            self.seen.append((table.prompt_tokens.tolist(), table.generated_tokens.tolist()))
        wake_s = self._looks_s.pop(0) if self._looks_s else None
        return Deployment(self._deployment.groups, wake_s)


@pytest.mark.parametrize("batch_rule", RULES)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 40),
    plan=st.sampled_from(PLANS),
    blocks=st.sampled_from([12, 17, 200]),
    share=st.floats(0.01, 0.99),
)
@settings(max_examples=20, deadline=None)
def test_a_forecast_is_the_simulators_run(
    batch_rule: ContinuousBatching, seed: int, count: int, plan: Plan, blocks: int, share: float
) -> None:
    """Finish time to 1e-9, and at any moment the same requests with the same tokens."""
    prompts, outputs = _random(seed, count)
    forecast = _forecast(load_of(prompts, outputs), plan, batch_rule, blocks)
    costs = LinearCosts(blocks=blocks, load=1.0)
    at_s = share * forecast.finish_s
    placement = Spread(plan, [costs.load + at_s])
    served = serve(
        workload(prompts, outputs), Fcfs(rule=batch_rule), placement, costs=costs, gpus=4
    )
    assert costs.load + forecast.finish_s == pytest.approx(
        served.requests["finished_s"].max(), rel=1e-9
    )
    rest = forecast.load_after(at_s)
    assert placement.seen[0] == (rest.prompt_tokens.tolist(), rest.generated_tokens.tolist())


def test_operations_by_hand() -> None:
    """Two layers, hidden size 4: c = 4 x (2 + 2 + 2 + 2) x 2 + 2 x 4 x 8 = 128.

    Prompt 3, output 3. Eq. 1: 2 x (128 x 3 + 2 x 4 x 3^2) = 912. Eq. 2 with contexts 4 and 5:
    2 x (128 + 2 x 4 x 4) = 320 and 2 x (128 + 2 x 4 x 5) = 336. Together 1,568.
    """
    forecast = _forecast(load_of([3], [3]), Plan(1, 1))
    assert forecast.flops == 1568
    assert _forecast(load_of([3], [1]), Plan(1, 1)).flops == 912


def test_operations_of_a_padded_pair_by_hand() -> None:
    """Prompts 2 and 3 padded to 3, outputs 2: 2 x (128 x 6 + 2 x 4 x 2 x 9) = 1,824.

    One decode of both with contexts 3 and 4: 2 x (128 x 2 + 2 x 4 x 7) = 624.
    """
    assert _forecast(load_of([2, 3], [2, 2]), Plan(1, 1)).flops == 1824 + 624
    # Alone in their groups nothing is padded: (2 x (256 + 32) + 2 x (128 + 24)) + (912 + 320)
    assert _forecast(load_of([2, 3], [2, 2]), Plan(2, 1)).flops == 576 + 304 + 912 + 320


@given(seed=st.integers(0, 10**6), plan=st.sampled_from(PLANS))
@settings(max_examples=12, deadline=None)
def test_operations_grow_to_the_total(seed: int, plan: Plan) -> None:
    forecast = _forecast(load_of(*_random(seed, 30)), plan)
    times_s = np.linspace(-1.0, 1.2 * forecast.finish_s, 200)
    done = [forecast.flops_by(float(time_s)) for time_s in times_s]
    assert done[0] == 0
    assert done == sorted(done)
    assert done[-1] == forecast.flops_by(forecast.finish_s) == forecast.flops
    assert 0 < forecast.flops_by(forecast.finish_s / 2) < forecast.flops


@given(seed=st.integers(0, 10**6), plan=st.sampled_from(PLANS), blocks=st.sampled_from([12, 200]))
@settings(max_examples=12, deadline=None)
def test_load_after_conserves_tokens(seed: int, plan: Plan, blocks: int) -> None:
    """Requests keep what they generate and are gone only when complete; in the end none is left."""
    load = load_of(*_random(seed, 30))
    forecast = _forecast(load, plan, blocks=blocks)
    before = 0
    for time_s in np.linspace(0.0, forecast.finish_s, 7):
        rest = forecast.load_after(float(time_s))
        assert (rest.generated_tokens < rest.output_tokens).all()
        left = int((rest.output_tokens - rest.generated_tokens).sum())
        generated = int(load.output_tokens.sum()) - left
        assert generated >= before
        before = generated
    assert len(forecast.load_after(forecast.finish_s)) == 0
    assert before == load.output_tokens.sum()
    assert forecast.load_after(0.0).id.tolist() == load.id.tolist()


def test_what_never_fits_is_told() -> None:
    forecaster = Forecaster(costs=LinearCosts(blocks=2), rule=RULES[0])
    with pytest.raises(ValueError, match="r0 can never be admitted: 2 KV blocks of 16 tokens"):
        forecaster.forecast(ServiceId("m"), TINY, Plan(1, 1), load_of([90], [1]))


def test_estimated_loads_are_the_unfinished_requests_with_sampled_lengths() -> None:
    """All lengths are 40: cut to a request's limit, and never below what it has generated."""
    forty = Ecdf(
        np.array([39, 40]),
        np.array([0.0, 1.0]),
        mean_tokens=40.0,
        cap_tokens=40,
        kind="",
        source="",
    )
    seen: list[tuple[float, Load]] = []

    class Estimating(Everywhere):
        def place(self, view: ClusterView) -> Deployment:
            rngs = {ServiceId("m"): np.random.default_rng(0)}
            loads = estimated_workloads(view, {ServiceId("m"): forty}, rngs)
            seen.append((view.now_s, loads[ServiceId("m")]))
            wake_s = view.now_s + 0.6 if view.now_s < 3 else None
            return Deployment(super().place(view).groups, wake_s)

    load = workload([9, 9, 9, 9], [3, 20, 50, 50], [0.0, 0.0, 0.0, 1.0])
    costs = LinearCosts(base_s=0.08)
    frame = serve(load, None, Estimating(("m", (0,))), costs=costs).requests
    times = [time_s for time_s, _ in seen]
    assert times == pytest.approx([0.6 * i for i in range(6)])
    first = seen[0][1]
    assert first.prompt_tokens.tolist() == [9, 9, 9]
    assert first.output_tokens.tolist() == [8, 25, 40]
    for time_s, estimated in seen:
        there = (frame["arrival_s"] <= time_s) & (frame["finished_s"] > time_s)
        assert len(estimated) == there.sum()
        assert (estimated.output_tokens > estimated.generated_tokens).all()
    assert seen[-1][1].generated_tokens.sum() > 0


def test_predicted_lengths_are_taken_instead_of_sampled_ones() -> None:
    """An oracle knows all; estimated is the truth, but for the limit."""
    forty = Ecdf(
        np.array([39, 40]),
        np.array([0.0, 1.0]),
        mean_tokens=40.0,
        cap_tokens=40,
        kind="",
        source="",
    )
    seen: list[list[int]] = []

    class Estimating(Everywhere):
        def place(self, view: ClusterView) -> Deployment:
            name = ServiceId("m")
            loads = estimated_workloads(view, {name: forty}, {name: np.random.default_rng(0)})
            seen.append(loads[name].output_tokens.tolist())
            return super().place(view)

    load = workload([9, 9, 9], [3, 20, 50], [0.0, 0.0, 0.0])
    serve(load, None, Estimating(("m", (0,))), predictor=Oracle().of(load, 0))
    assert seen[0] == [3, 20, 50]


def test_one_seed_makes_the_lengths_of_all_services_long_and_short_together() -> None:
    """The n-th requests of two services with one distribution have the same length, or not."""
    spread = Ecdf(
        np.array([0, 20]), np.array([0.0, 1.0]), mean_tokens=10.5, cap_tokens=20, kind="", source=""
    )
    names = [ServiceId("m0"), ServiceId("m1")]
    seen: list[list[list[int]]] = []

    class Estimating(Everywhere):
        one_seed = True

        def place(self, view: ClusterView) -> Deployment:
            shared = np.random.default_rng(5)
            rngs = {n: np.random.default_rng(5) if self.one_seed else shared for n in names}
            loads = estimated_workloads(view, dict.fromkeys(names, spread), rngs)
            seen.append([loads[name].output_tokens.tolist() for name in names])
            return super().place(view)

    load = workload([9] * 20, [25] * 20, [0.0] * 20, 2)
    for one_seed in (True, False):
        placement = Estimating(("m0", (0,)), ("m1", (1,)))
        placement.one_seed = one_seed
        serve(load, None, placement)
    together, apart = seen[0], seen[-1]
    assert together[0] == together[1]
    assert apart[0] != apart[1]
