"""What a group would make of a window of requests is what the engine makes of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.benchmarks.speed import kinds
from harness.interface.decisions import PriorityOrder
from harness.interface.entities import LengthPrediction, Request
from harness.interface.policies import Capability, SchedulingPolicy
from harness.interface.tables import RequestTable
from harness.planning.forecast import GroupForecaster, Window
from harness.tests.support.fakes import FakeScene, as_group_view
from harness.tests.support.loads import Load, loads
from harness.tests.support.predictors import Guess
from harness.tests.support.serving import SERVICE, FlatCosts, LinearCosts, rule, serve, workload
from harness.workloads.workload import Workload

TOKENS = 65536
FOLLOWED = {
    name: (kind, policy)
    for kind, members in kinds().items()
    if kind != "draft"
    for name, policy in members.items()
    if Capability.SWAP not in policy.requires
}
"""Policies that are a priority order and need no host memory: of the tree, and of benchmarks."""
BLOCKS = {"allocation": [600]}
"""Of KV; who sets aside as much as a context may have never fits less."""


class Foretold(Guess):
    """Predictions that are there at arrival."""

    def predict(self, request: Request) -> tuple[LengthPrediction, float]:
        """As wrong as they were."""
        return super().predict(request)[0], 0.0


def _window(load: Workload) -> Window:
    """All that a policy would know of these requests at arrival, and their answers."""
    predicted = [Foretold().predict(load.facts(i))[0].mean_tokens for i in range(len(load))]
    nothing = np.zeros(len(load), np.int64)
    table = RequestTable(
        id=np.arange(len(load)),
        arrival_s=load.arrival_s,
        prompt_tokens=load.prompt_tokens,
        generated_tokens=nothing,
        kv_tokens=nothing,
        gpu_s=np.zeros(len(load)),
        max_output_tokens=load.max_output_tokens,
        deadline_s=load.deadline_s,
        predicted_mean_tokens=np.array(predicted),
        service=nothing,
        services=(SERVICE,),
    )
    return Window(table, load.output_tokens)


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
@settings(max_examples=20, deadline=None)
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
    whole = forecaster.forecast(SERVICE, 1, window, ready_s=load_s)
    np.testing.assert_allclose(whole.finished_s, ran["finished_s"], rtol=1e-9)
    np.testing.assert_allclose(whole.first_token_s, ran["first_token_s"], rtol=1e-9)
    until_s = share * float(whole.finished_s.max())
    # Seconds are added up in other pieces, so that nobody can say who ends within rounding of it.
    assume(np.abs(whole.finished_s - until_s).min() > 1e-9)
    part = forecaster.forecast(SERVICE, 1, window, ready_s=load_s, until_s=until_s)
    ended = whole.finished_s <= until_s
    np.testing.assert_allclose(part.finished_s[ended], whole.finished_s[ended], rtol=1e-9)
    assert part.unfinished == (~ended).sum()


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
    found = _forecaster().forecast(SERVICE, 1, window, ready_s=2.0)
    assert found.first_token_s.tolist() == [2.5, 3.5, 4.25]
    assert found.finished_s.tolist() == [3.0, 3.75, 4.25]
    assert found.normalized_s.tolist() == [1.0, 1.375, 3.25]
    assert found.unfinished == 0
    cut = _forecaster().forecast(SERVICE, 1, window, ready_s=2.0, until_s=3.6)
    assert cut.unfinished == 2
    assert np.isnan(cut.normalized_s).tolist() == [False, True, True]


def test_columns_may_be_read_only_and_every_other_row() -> None:
    whole = _window(workload([8, 9] * 4, [3, 4] * 4, [0.5 * i for i in range(8)]))
    table = whole.table
    names = [name for name in table.__slots__ if name != "services"]
    columns = {name: getattr(table, name)[::2] for name in names}
    for column in columns.values():
        column.flags.writeable = False
    half = Window(replace(table, **columns), whole.output_tokens[::2])
    copies = {name: column.copy() for name, column in columns.items()}
    copied = Window(replace(table, **copies), half.output_tokens)
    ends = [_forecaster().forecast(SERVICE, 1, w).finished_s.tolist() for w in (half, copied)]
    assert ends[0] == ends[1]
    assert len(ends[0]) == 4


def test_an_empty_window_is_served() -> None:
    none = _window(workload([8], [1])).table
    table = RequestTable(**{name: getattr(none, name)[:0] for name in none.__slots__})
    found = _forecaster().forecast(SERVICE, 1, Window(table, np.zeros(0, np.int64)))
    assert found.unfinished == len(found.finished_s) == 0


def test_a_rule_that_is_not_compiled_is_refused() -> None:
    order = PriorityOrder(None, replace(rule(), prompts_first=False))
    forecaster = GroupForecaster(costs=FlatCosts(), order=order, max_num_batched_tokens=256)
    with pytest.raises(ValueError, match=r"rule\.prompts_first off is stepped, not compiled"):
        forecaster.forecast(SERVICE, 1, _window(workload([8], [3])))


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
        _forecaster(blocks=0).forecast(SERVICE, 1, window)
    with pytest.raises(ValueError, match=r"^r0 can never be admitted: 2 KV blocks of 16 tokens"):
        _forecaster(blocks=2).forecast(SERVICE, 1, window)
