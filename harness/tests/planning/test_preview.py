"""A planner's preview: what goes on, what loads again, what fits."""

import numpy as np
import pytest

from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import model_facts
from harness.interface.entities import ServiceId
from harness.planning.estimate import Forecaster
from harness.planning.plans import Load, Plan, ready_load
from harness.planning.preview import StagePreview
from harness.tests.support.serving import LinearCosts, rule

BIG, SMALL = ServiceId("Llama-2-70b-chat-hf"), ServiceId("chatglm3-6b")
A, B = ServiceId("vicuna-13b-v1.5"), ServiceId("chatglm3-6b")
ONE, TWO = Plan(1, 1), Plan(2, 1)
LOAD_S = 1.5


def _load(count: int, output: int) -> Load:
    ones = np.ones(count, np.int64)
    return ready_load(20 * ones, 0 * ones, output * ones + np.arange(count) % 7)


def _preview(gpus: int = 4, degrees: tuple[int, ...] = (1, 2)) -> StagePreview:
    """A has more to do than B; a load takes 1.5 s."""
    costs = LinearCosts(blocks=1000, load=LOAD_S)
    forecaster = Forecaster(costs=costs, rule=rule(max_num_seqs=16))
    return StagePreview(forecaster, {A: _load(60, 80), B: _load(30, 20)}, gpus, degrees)


def _forecaster() -> Forecaster:
    return Forecaster(costs=LinearCosts(blocks=1000, load=LOAD_S), rule=rule(max_num_seqs=16))


def test_a_fresh_service_loads_and_then_does_as_forecast() -> None:
    preview = _preview()
    forecast = _forecaster().forecast(A, model_facts(A), TWO, _load(60, 80))
    assert preview.finish_s(A, TWO, {}) == LOAD_S + forecast.finish_s
    assert preview.flops_by(A, TWO, {}, LOAD_S) == 0
    assert preview.flops_by(A, TWO, {}, LOAD_S + 1) == forecast.flops_by(1.0) > 0
    assert preview.flops_by(A, TWO, {}, 1e9) == forecast.flops


def test_a_stage_lasts_until_its_first_service_ends() -> None:
    preview = _preview()
    ends_s = [preview.finish_s(A, TWO, {}), preview.finish_s(B, ONE, {})]
    stage = {A: TWO, B: ONE}
    assert preview.duration_s(stage) == min(ends_s) == ends_s[1]
    assert preview.pass_stage(stage) == ends_s[1]
    assert preview.unfinished == (A,)
    assert preview.passed_s == ends_s[1]


def test_throughput_is_operations_over_duration() -> None:
    preview = _preview()
    duration_s = preview.finish_s(B, ONE, {})
    done = preview.flops_by(A, TWO, {}, duration_s) + preview.flops_by(B, ONE, {}, duration_s)
    assert preview.throughput({A: TWO, B: ONE}) == pytest.approx(done / duration_s)
    assert preview.throughput({}) == 0


def test_a_kept_plan_goes_on_without_a_load() -> None:
    """A ends when it would have, and its operations go on from where they were."""
    preview = _preview()
    ends_s, total = preview.finish_s(A, TWO, {}), preview.flops_by(A, TWO, {}, 1e9)
    passed_s = preview.duration_s({A: TWO, B: ONE})
    done = preview.flops_by(A, TWO, {}, passed_s)
    preview.pass_stage({A: TWO, B: ONE})
    assert preview.running(A) == TWO
    assert preview.finish_s(A, TWO, {}) == pytest.approx(ends_s - passed_s, rel=1e-12)
    assert preview.flops_by(A, TWO, {}, 0.0) == 0
    assert preview.flops_by(A, TWO, {}, 1e9) == pytest.approx(total - done)
    assert preview.pass_stage({A: TWO}) == pytest.approx(ends_s - passed_s)
    assert preview.unfinished == ()
    assert preview.passed_s == pytest.approx(ends_s)


def test_a_changed_plan_loads_again_and_recomputes() -> None:
    """What is left of A after the stage is forecast anew, behind a load."""
    preview = _preview()
    passed_s = preview.pass_stage({A: ONE, B: ONE})
    before = _forecaster().forecast(A, model_facts(A), ONE, _load(60, 80))
    rest = before.load_after(passed_s - LOAD_S)
    assert 0 < len(rest) <= 60
    assert rest.generated_tokens.sum() > 0
    anew = _forecaster().forecast(A, model_facts(A), TWO, rest)
    assert preview.finish_s(A, TWO, {}) == LOAD_S + anew.finish_s
    assert preview.flops_by(A, TWO, {}, 1e9) == anew.flops


def test_a_service_left_out_of_a_stage_must_load_again() -> None:
    """A runs, pauses while B runs, and comes back: under any plan it loads first."""
    preview = _preview()
    preview = StagePreview(
        _forecaster(), {A: _load(60, 80), B: _load(30, 60), BIG: _load(9, 20)}, 4, (1, 2)
    )
    preview.pass_stage({A: ONE, BIG: ONE})
    assert preview.running(A) == ONE
    goes_on_s = preview.finish_s(A, ONE, {})
    preview.pass_stage({B: ONE})
    assert preview.running(A) is None
    assert preview.unfinished == (A,)
    assert preview.finish_s(A, ONE, {}) > goes_on_s + 0.9 * LOAD_S


def test_kept_twice_is_kept_once() -> None:
    """Two stages under one plan: elapsed time adds up."""
    loads = {A: _load(60, 80), B: _load(10, 20), BIG: _load(20, 40)}
    preview = StagePreview(_forecaster(), loads, 4, (1, 2))
    ends_s = preview.finish_s(A, ONE, {})
    passed_s = preview.pass_stage({A: ONE, B: ONE, BIG: ONE})
    passed_s += preview.pass_stage({A: ONE, BIG: ONE})
    assert preview.unfinished == (A,)
    assert preview.finish_s(A, ONE, {}) == pytest.approx(ends_s - passed_s, rel=1e-12)


def test_services_without_requests_are_not_there() -> None:
    preview = StagePreview(_forecaster(), {A: _load(0, 1), B: _load(3, 5)}, 2, (1,))
    assert preview.unfinished == (B,)


def test_a_copy_goes_its_own_way() -> None:
    preview = _preview()
    twin = preview.copy()
    first_s = twin.pass_stage({A: TWO, B: ONE})
    assert preview.unfinished == (A, B)
    assert preview.passed_s == 0
    assert preview.running(A) is None
    assert preview.copy().pass_stage({A: TWO, B: ONE}) == first_s
    twin.copy().pass_stage({A: TWO})
    assert twin.unfinished == (A,)


def _measured() -> Forecaster:
    costs = ProfileCosts(
        gpu="A100-80G", profile_dir="a100_80g_vllm_0_3", memory_share=0.9, parts=PARTS
    )
    return Forecaster(costs=costs, rule=rule())


def test_valid_plans_fit_the_memory_and_the_cluster() -> None:
    """140 GB of weights do not fit one GPU of 80 GB; 12 GB do, up to four times."""
    preview = StagePreview(_measured(), {BIG: _load(3, 5), SMALL: _load(3, 5)}, 4, (1, 2, 4))
    assert {plan.tensor_parallel for plan in preview.plans(BIG)} <= {2, 4}
    assert Plan(1, 4) in preview.plans(BIG)
    wanted = [*(Plan(n, 1) for n in (1, 2, 3, 4)), Plan(1, 2), Plan(2, 2), Plan(1, 4)]
    assert sorted(preview.plans(SMALL), key=str) == sorted(wanted, key=str)
    assert all(plan.gpus <= 4 for plan in preview.plans(BIG))


def test_a_model_without_a_valid_plan_is_named() -> None:
    preview = StagePreview(_measured(), {BIG: _load(3, 5)}, 1, (1, 2, 4))
    with pytest.raises(ValueError, match=r"Llama-2-70b-chat-hf fits no plan: 1 GPUs"):
        preview.plans(BIG)


def test_the_longest_sequence_must_fit() -> None:
    """chatglm3-6b goes up to 8,192 tokens: 512 blocks of 16 hold one such sequence, 511 do not."""
    assert model_facts(SMALL).max_context_tokens == 8192
    for blocks, fits in ((512, True), (511, False)):
        forecaster = Forecaster(costs=LinearCosts(blocks=blocks), rule=rule())
        preview = StagePreview(forecaster, {SMALL: _load(3, 5)}, 1, (1,))
        if fits:
            assert preview.plans(SMALL) == [ONE]
        else:
            with pytest.raises(ValueError, match="chatglm3-6b fits no plan"):
                preview.plans(SMALL)
