"""A planner's preview: what goes on, what loads again, what fits."""

from dataclasses import replace

import numpy as np
import pytest

from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import model_facts
from harness.interface.entities import ServiceId
from harness.planning.estimate import Counted, Forecaster
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


def _measured() -> Forecaster:
    costs = ProfileCosts(
        gpu="A100-80G", profile_dir="a100_80g_vllm_0_3", memory_share=0.9, parts=PARTS
    )
    return Forecaster(costs=costs, rule=rule())


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


def test_replicas_that_start_together_are_forecast_to_load_longer() -> None:
    """1.5 s alone, 2 s more beside each other one."""
    costs = LinearCosts(blocks=1000, load=LOAD_S, replica_start_s=2.0)
    crowded = Forecaster(costs=costs, rule=rule(max_num_seqs=16))
    preview = StagePreview(crowded, {A: _load(60, 80)}, 4, (1,))
    for replicas, load_s in ((1, 1.5), (2, 3.5), (3, 5.5)):
        plan = Plan(replicas, 1)
        served_s = crowded.forecast(A, model_facts(A), plan, _load(60, 80)).finish_s
        assert preview.finish_s(A, plan, {}) == pytest.approx(load_s + served_s)


def test_operations_can_be_scaled_by_service() -> None:
    """The throughput of what is scaled moves with it, the duration does not."""
    scaled = replace(_forecaster(), counted=Counted(scale={A: 1.25}))
    loads = {A: _load(60, 80), B: _load(30, 20)}
    plain = StagePreview(_forecaster(), loads, 4, (1, 2))
    more = StagePreview(scaled, loads, 4, (1, 2))
    assert more.throughput({A: TWO}) == pytest.approx(1.25 * plain.throughput({A: TWO}))
    assert more.throughput({B: TWO}) == plain.throughput({B: TWO})
    assert more.duration_s({A: TWO}) == plain.duration_s({A: TWO})


def test_every_expert_counts_or_those_that_a_token_is_sent_to() -> None:
    """Of Mixtral 8 experts of 3 x 4096 x 14336 count, or 2 of them; attention and router always."""
    facts, expert = model_facts("Mixtral-8x7B-Instruct-v0.1"), 3 * 4096 * 14336
    assert Counted(every_expert=True).per_token(facts) == 1_451_261_952
    less = Counted(every_expert=False).per_token(facts)
    assert Counted(every_expert=True).per_token(facts) - less == 6 * expert
    assert Counted().per_token(model_facts(A)) == model_facts(A).layer_matmul_parameters


def _fed(*, fed_goes_on: bool) -> StagePreview:
    """B waits for A, request by request; a third service ends first."""
    a, b, third = _load(60, 80), _load(60, 40), _load(10, 5)
    b, third = replace(b, id=b.id + 60), replace(third, id=third.id + 120)
    edges = np.stack([a.id, b.id], axis=1)
    loads = {A: a, B: b, BIG: third}
    return StagePreview(_forecaster(), loads, 4, (1,), edges, fed_goes_on=fed_goes_on)


def test_a_fed_service_may_go_on_as_forecast() -> None:
    preview = _fed(fed_goes_on=True)
    stage = {A: ONE, B: ONE, BIG: ONE}
    ends_s = {service: preview.finish_s(service, ONE, stage) for service in (A, B)}
    passed_s = preview.pass_stage(stage)
    assert preview.unfinished == (A, B)
    for service in (A, B):
        goes_on_s = preview.finish_s(service, ONE, {A: ONE, B: ONE})
        assert goes_on_s == pytest.approx(ends_s[service] - passed_s)
    anew = _fed(fed_goes_on=False)
    assert anew.pass_stage(stage) == passed_s
    assert anew.finish_s(A, ONE, {A: ONE, B: ONE}) == pytest.approx(ends_s[A] - passed_s)


def test_what_waits_is_forecast_anew_when_those_it_waits_for_have_moved_on() -> None:
    """B did not run in the first stage: in the second, A's answers come that much sooner."""
    preview = _fed(fed_goes_on=False)
    before_s = preview.finish_s(B, ONE, {A: ONE, B: ONE})
    passed_s = preview.pass_stage({A: ONE, BIG: ONE})
    assert preview.unfinished == (A, B)
    after_s = preview.finish_s(B, ONE, {A: ONE, B: ONE})
    assert after_s == pytest.approx(before_s - passed_s, abs=2 * LOAD_S)
    assert after_s < before_s
