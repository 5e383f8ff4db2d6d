"""What groups would make of a window of requests is what the engine makes of them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from baselines.round_robin import RoundRobin
from harness.interface.decisions import Deployment, Displaced, PreemptionMode, PriorityOrder
from harness.interface.entities import (
    GpuId,
    Group,
    GroupId,
    LengthPrediction,
    Request,
    ServiceId,
)
from harness.interface.load_order import LoadOrder, TurnOrder
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.tables import Floats
from harness.planning.forecast import ForecastGroup, GroupForecaster, Window
from harness.runs.building import window_of
from harness.tests.support.dispatches import LOAD_ORDERS, ByLoad
from harness.tests.support.fakes import FakeScene, as_group_view
from harness.tests.support.loads import Load, loads
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import (
    SERVICE,
    FlatCosts,
    LinearCosts,
    TwoSizes,
    rule,
    serve,
    workload,
)
from harness.tools.benchmarks.moving_policies import (
    Ordered,
    attained_quanta,
    doubling_budget_s,
    predicted_tokens,
    remaining_tokens,
)
from harness.tools.benchmarks.shared_groups import Unchanged
from harness.tools.benchmarks.speed import kinds
from harness.workloads.workload import Workload

TOKENS = 65536
OF_REAL_MODELS = ("shared_skip_join", "uniboost")
FOLLOWED = {
    name: (kind, policy)
    for kind, members in kinds().items()
    if kind not in ("draft", "renewed")
    for name, policy in members.items()
    if Capability.SWAP not in policy.requires and name not in OF_REAL_MODELS
}
"""Policies that are a priority order and need no host memory: of the tree, and of benchmarks.

Left out are orders of which keys are asked again, which forecasts do not do, and policies of which
the keys ask the costs of a real model.
"""
BLOCKS = {"allocation": [600]}
"""Of KV; an order that sets aside a whole context never fits less."""


class Foretold(Guess):
    """Predictions that are there at arrival."""

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """As wrong as they were."""
        return super().predict(request)[0], 0.0


def _window(load: Workload) -> Window:
    """All that a policy would know of these requests at arrival, and their answers."""
    predicted = [Foretold().predict(load.facts(i))[0].mean_tokens for i in range(len(load))]
    past = window_of(load)
    return Window(
        replace(past.table, predicted_mean_tokens=np.array(predicted)), past.output_tokens
    )


def _alone_s(
    forecaster: GroupForecaster, window: Window, *, ready_s: float = 0.0, until_s: float = np.inf
) -> Floats:
    """When one group, ready at `ready_s`, answers each request."""
    group = ForecastGroup(services=frozenset({SERVICE}), ready_s=ready_s)
    return forecaster.forecast_placement([group], window, TurnOrder(), until_s=until_s)


def _order(policy: SchedulingPolicy, blocks: int) -> PriorityOrder:
    order = policy.schedule(as_group_view(FakeScene(blocks).view())).priority_order
    assert order is not None
    return order


@pytest.mark.parametrize("name", FOLLOWED)
@given(
    data=st.data(),
    load=loads(most=20, longest=170),
    load_s=st.sampled_from([0.0, 0.7]),
    share=st.floats(0, 1),
)
@settings(max_examples=5, deadline=None)
def test_a_forecast_is_the_engines_run(
    name: str, data: st.DataObject, load: Load, load_s: float, share: float
) -> None:
    """Times to 1e-9, to the end and up to any moment before."""
    kind, policy = FOLLOWED[name]
    blocks = data.draw(st.sampled_from(BLOCKS.get(kind, [18, 40, 200])))
    costs = LinearCosts(blocks=blocks, load=load_s)
    requests = workload(*load)
    ran = serve(requests, policy, costs=costs, predictor=Foretold(), tokens=TOKENS).requests
    forecaster = GroupForecaster(
        costs=costs, order=_order(policy, blocks), max_num_batched_tokens=TOKENS
    )
    window = _window(requests)
    whole_s = _alone_s(forecaster, window, ready_s=load_s)
    np.testing.assert_allclose(whole_s, ran["finished_s"], rtol=1e-9)
    until_s = share * float(whole_s.max())
    # Seconds are added up in other pieces, so that ends within rounding of it may differ.
    assume(np.abs(whole_s - until_s).min() > 1e-9)
    part_s = _alone_s(forecaster, window, ready_s=load_s, until_s=until_s)
    ended = whole_s <= until_s
    np.testing.assert_allclose(part_s[ended], whole_s[ended], rtol=1e-9)
    assert np.isnan(part_s[~ended]).all()


def _forecaster(blocks: int = 64) -> GroupForecaster:
    order = PriorityOrder(None, rule(max_num_seqs=1))
    return GroupForecaster(
        costs=FlatCosts(blocks=blocks), order=order, max_num_batched_tokens=TOKENS
    )


def test_one_after_the_other_by_hand() -> None:
    """Half a second for a prompt and its token, a quarter for each more; ready at 2 s.

    r0 (3 tokens) ends at 3 s, r1 (2), which came at 1 s, at 3.75, r2 (1) at 4.25.
    """
    window = _window(workload([8, 8, 8], [3, 2, 1], [0.0, 1.0, 1.0]))
    assert _alone_s(_forecaster(), window, ready_s=2.0).tolist() == [3.0, 3.75, 4.25]
    cut_s = _alone_s(_forecaster(), window, ready_s=2.0, until_s=3.6)
    assert np.isnan(cut_s).tolist() == [False, True, True]


COSTS = TwoSizes(blocks=45, load=0.7)
APART = (("m0", 1), ("m0", 2), ("m1", 1), ("m1", 1))
TOGETHER = (("m0 m1", 1), ("m1", 1), ("m0 m1", 2))
DISPATCH: dict[str, RoundRobin | ByLoad] = {
    "turns": RoundRobin(),
    "requests": ByLoad(LOAD_ORDERS[0]),
    "prompts": ByLoad(LOAD_ORDERS[1]),
    "tokens": ByLoad(LOAD_ORDERS[2]),
}
PLACED_KEYS = {
    "arrival": None,
    "prediction": predicted_tokens,
    "remaining": remaining_tokens,
    "quanta": attained_quanta,
    "doubling budget": doubling_budget_s,
}


def _placement(shapes: Sequence[tuple[str, int]]) -> tuple[list[ForecastGroup], Deployment]:
    """Groups of these services on so many GPUs each, as a forecast and an engine take them."""
    groups, deployed, gpu = [], [], 0
    for number, (names, degree) in enumerate(shapes):
        services = frozenset(map(ServiceId, names.split()))
        loads_s = [COSTS.load_s(s, degree) for s in sorted(services)]
        starts_s = [COSTS.start_s(s, degree) for s in sorted(services)]
        ready_s = max(starts_s) + sum(loads_s) - sum(starts_s)
        groups.append(ForecastGroup(services=services, tensor_parallel=degree, ready_s=ready_s))
        gpus = tuple(GpuId(i) for i in range(gpu, gpu + degree))
        deployed.append(Group(GroupId(f"g{number}"), services, gpus))
        gpu += degree
    return groups, Deployment(tuple(deployed))


@pytest.mark.parametrize("key", PLACED_KEYS)
@given(
    dispatch=st.sampled_from(sorted(DISPATCH)),
    load=loads(most=30),
    shapes=st.sampled_from([APART, TOGETHER]),
    displaces=st.sampled_from([None, Displaced.PAUSE, Displaced.RECOMPUTE]),
    prompts_first=st.booleans(),
    starves_after_s=st.sampled_from([None, {"m0": 0.1, "m1": 0.3}.__getitem__]),
)
@settings(max_examples=8, deadline=None)
def test_a_forecast_of_a_placement_is_the_engines_run(
    key: str,
    dispatch: str,
    load: Load,
    shapes: Sequence[tuple[str, int]],
    displaces: Displaced | None,
    prompts_first: bool,
    starves_after_s: Callable[[ServiceId], float] | None,
) -> None:
    """Groups of one service and of two, on one GPU and on two, loading while requests come."""
    requests = workload(*load, services=2)
    groups, deployment = _placement(shapes)
    batches = replace(rule(max_num_seqs=3), prompts_first=prompts_first)
    order = PriorityOrder(PLACED_KEYS[key], batches, displaces, starves_after_s=starves_after_s)
    policy = DISPATCH[dispatch]
    ran = serve(
        requests,
        Ordered(order),
        Unchanged(deployment),
        costs=COSTS,
        gpus=5,
        predictor=Foretold(),
        dispatch=policy,
        tokens=TOKENS,
    ).requests
    forecaster = GroupForecaster(costs=COSTS, order=order, max_num_batched_tokens=TOKENS)
    by = policy.order if isinstance(policy, ByLoad) else TurnOrder()
    for _ in range(2):
        found_s = forecaster.forecast_placement(groups, _window(requests), by)
        np.testing.assert_allclose(found_s, ran["finished_s"], rtol=1e-9)


def _placed(
    groups: Sequence[ForecastGroup], order: PriorityOrder | None = None, blocks: int = 64
) -> list[float]:
    """When r0 (m0) and r1 (m1), of 3 and 2 tokens, end in a placement."""
    order = order or PriorityOrder(None, rule())
    forecaster = GroupForecaster(
        costs=FlatCosts(blocks=blocks), order=order, max_num_batched_tokens=TOKENS
    )
    window = _window(workload([8, 8], [3, 2], services=2))
    ends_s: list[float] = forecaster.forecast_placement(groups, window, LoadOrder()).tolist()
    return ends_s


M0, M1 = ServiceId("m0"), ServiceId("m1")
BOTH = ForecastGroup(services=frozenset({M0, M1}))


def test_services_without_a_group_stay_unfinished() -> None:
    """r0 ends a half and two quarters of a second after its group has loaded, r1 never."""
    of_m0 = ForecastGroup(services=frozenset({M0}), ready_s=1.0)
    of_m2 = ForecastGroup(services=frozenset({ServiceId("m2")}))
    for groups in ([of_m0], [of_m0, of_m2], [of_m2, of_m0]):
        assert np.array_equal(_placed(groups), [2.0, np.nan], equal_nan=True)
    assert np.isnan(_placed([])).all()


def test_placements_that_cannot_be_are_refused() -> None:
    chunks = PriorityOrder(None, rule(chunked_prefill=True))
    with pytest.raises(ValueError, match=r"^group 0 has no services$"):
        _placed([ForecastGroup(services=frozenset())])
    with pytest.raises(ValueError, match=r"with rule\.chunked_prefill in group 1 \(m0, m1\)"):
        _placed([ForecastGroup(services=frozenset({M0})), BOTH], chunks)
    with pytest.raises(ValueError, match=r"^m0 does not fit 1 GPUs$"):
        _placed([BOTH], blocks=0)
    for field, swaps in (
        ("displaces", PriorityOrder(None, rule(), Displaced.SWAP)),
        ("gives_way", PriorityOrder(None, rule(), gives_way=PreemptionMode.SWAP)),
    ):
        with pytest.raises(ValueError, match=f"^{field}=swap in group 0: a forecast has no host"):
            _placed([ForecastGroup(services=frozenset({M0}))], swaps)


class Unlike(FlatCosts):
    """Blocks of m1 are twice as large."""

    def block_tokens(self, service: ServiceId) -> int:
        """16 or 32."""
        return 32 if service == M1 else 16


class Tight(FlatCosts):
    """The weights of two services leave no KV."""

    def kv_bytes(self, services: Collection[ServiceId], tensor_parallel: int) -> int:
        """None beside those of another service."""
        return 0 if len(services) > 1 else super().kv_bytes(services, tensor_parallel)


@pytest.mark.parametrize(
    ("costs", "sentence"),
    [
        (Unlike(), r"^a group would have KV blocks of different tokens: {'m0': 16, 'm1': 32}$"),
        (Tight(), r"^m0, m1 do not fit 1 GPUs together$"),
    ],
)
def test_services_that_cannot_share_a_group_are_refused(costs: FlatCosts, sentence: str) -> None:
    order = PriorityOrder(None, rule())
    forecaster = GroupForecaster(costs=costs, order=order, max_num_batched_tokens=TOKENS)
    with pytest.raises(ValueError, match=sentence):
        forecaster.forecast_placement([BOTH], _window(workload([8], [3])), TurnOrder())


def test_bad_windows_are_refused() -> None:
    window = _window(workload([8, 8], [3, 2], [0.0, 1.0]))
    with pytest.raises(ValueError, match=r"^1 answers of 2 requests$"):
        replace(window, output_tokens=window.output_tokens[:1])
    with pytest.raises(ValueError, match=r"^r1 has 0 output tokens$"):
        replace(window, output_tokens=np.array([3, 0]))
    late = replace(window.table, arrival_s=np.array([1.0, 0.5]))
    with pytest.raises(ValueError, match=r"^r1 arrives before the request ahead of it$"):
        Window(late, window.output_tokens)


def test_what_never_fits_is_refused() -> None:
    window = _window(workload([40], [2]))
    with pytest.raises(ValueError, match=r"^m does not fit 1 GPUs$"):
        _alone_s(_forecaster(blocks=0), window)
    with pytest.raises(ValueError, match=r"^r0 can never be admitted: 2 KV blocks of 16 tokens"):
        _alone_s(_forecaster(blocks=2), window)
