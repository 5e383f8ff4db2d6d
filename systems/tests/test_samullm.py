"""Algorithm 1 by hand, and its stages against the best there are."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from harness.costs.model import ProfileCosts
from harness.costs.model_facts import model_facts
from harness.interface.decisions import ContinuousBatching
from harness.interface.entities import ServiceId
from harness.planning.estimate import Forecaster
from harness.planning.plans import Plan, Stage, ready_load
from harness.planning.preview import StagePreview
from harness.tests.support.rate_preview import RatePreview, rate_preview
from harness.workloads.ecdf import load_lengths, output_lengths
from systems.samullm.depth_first_stages import DepthFirstStages
from systems.samullm.greedy_stages import GreedyStages, best_stage

A, B = ServiceId("A"), ServiceId("B")
RATES = {
    "A": {Plan(1, 1): 10.0, Plan(2, 1): 17.0, Plan(3, 1): 23.0, Plan(4, 1): 28.0},
    "B": {Plan(1, 1): 8.0, Plan(2, 1): 14.5, Plan(3, 1): 18.0, Plan(4, 1): 20.0},
}


def test_greedy_stage_by_hand() -> None:
    """Work per second on 1, 2, 3, 4 GPUs: A 10, 17, 23, 28; B 8, 14.5, 18, 20.

    Two GPUs: first the gains per GPU are 10, 8.5, ... for A and 8, 7.25 for B: A gets one. Then A
    on two would gain 7, B on one 8: B gets one. No GPU is left.

    Four GPUs go on: A on two gains 7, on three 13 for two (6.5 each), B on two 6.5: A gets its
    second. Then one GPU is left: A on three gains 6, B on two 6.5: B gets its second.
    """
    preview = rate_preview({"A": 100.0, "B": 40.0}, RATES)
    assert best_stage(preview, 2, {}) == {A: Plan(1, 1), B: Plan(1, 1)}
    assert best_stage(preview, 3, {}) == {A: Plan(2, 1), B: Plan(1, 1)}
    assert best_stage(preview, 4, {}) == {A: Plan(2, 1), B: Plan(2, 1)}


def test_greedy_stages_by_hand() -> None:
    """On two GPUs B (40 at 8 per second) ends at 5 s; A has 100 - 50 left.

    Then A gets both GPUs: one gains 10 per GPU, the second 7 more. 50 / 17 s later all is done.
    """
    preview = RatePreview({"A": 100.0, "B": 40.0}, RATES)
    stages = GreedyStages().plan(preview, 2)  # type: ignore[arg-type]
    assert stages == [{A: Plan(1, 1), B: Plan(1, 1)}, {A: Plan(2, 1)}]
    assert preview.passed_s == pytest.approx(5 + 50 / 17)


def test_a_plan_is_replaced_by_a_larger_one_of_the_same_model() -> None:
    """A gains 10 with one GPU; then only its plan of three gains, 20 for two more: it is replaced.

    A smaller plan or one of as many GPUs never replaces it: tensor parallel 3 gains less, and of
    the plans of three GPUs the first best stays.
    """
    rates = {"A": {Plan(1, 1): 10.0, Plan(3, 1): 30.0, Plan(1, 3): 29.0, Plan(2, 1): 9.0}}
    assert best_stage(rate_preview({"A": 1.0}, rates), 3, {}) == {A: Plan(3, 1)}
    assert best_stage(rate_preview({"A": 1.0}, rates), 2, {}) == {A: Plan(1, 1)}


def test_gain_counts_per_gpu_not_in_all() -> None:
    """A gains 30 on four GPUs (7.5 each), B 9 on one: B first; then three for A gain 6 each."""
    rates = {"A": {Plan(4, 1): 30.0, Plan(3, 1): 18.0}, "B": {Plan(1, 1): 9.0}}
    preview = rate_preview({"A": 1.0, "B": 1.0}, rates)
    assert best_stage(preview, 4, {}) == {B: Plan(1, 1), A: Plan(3, 1)}


def test_the_stage_is_full_when_throughput_would_fall() -> None:
    """A alone does 10 per second; with B beside it (it ends at once and cuts the stage) 9.

    B is not added though a GPU is free. At an equal throughput it is (line 19: below 0 stops).
    """

    class Table(RatePreview):
        def __init__(self, together: float) -> None:
            super().__init__({"A": 1.0, "B": 1.0}, {s: {Plan(1, 1): 10.0} for s in ("A", "B")})
            self.together = together

        def throughput(self, stage: Stage) -> float:
            """Given by the test."""
            return {0: 0.0, 1: 10.0 if A in stage else 4.0, 2: self.together}[len(stage)]

    assert best_stage(Table(9.0), 2, {}) == {A: Plan(1, 1)}  # type: ignore[arg-type]
    both = {A: Plan(1, 1), B: Plan(1, 1)}
    assert best_stage(Table(10.0), 2, {}) == both  # type: ignore[arg-type]


def test_without_preemption_a_model_keeps_its_plan() -> None:
    """As above, but A may not take the GPU that B leaves: it ends at 10 s on one."""
    preview = RatePreview({"A": 100.0, "B": 40.0}, RATES, preemption=False)
    stages = GreedyStages().plan(preview, 2)  # type: ignore[arg-type]
    assert stages == [{A: Plan(1, 1), B: Plan(1, 1)}, {A: Plan(1, 1)}]
    assert preview.passed_s == pytest.approx(10.0)


def test_depth_first_is_never_worse_than_greedy() -> None:
    """One sequence is the greedy one; more of them are as good or better."""
    better = 0
    for number in range(12):
        preview, gpus = _instance(number)
        greedy, one, many = preview.copy(), preview.copy(), preview.copy()
        stages = GreedyStages().plan(greedy, gpus)
        assert DepthFirstStages(top_k=4, sequences=1).plan(one, gpus) == stages
        found = DepthFirstStages(top_k=4, sequences=20).plan(many, gpus)
        assert many.passed_s <= greedy.passed_s
        assert {s for stage in found for s in stage} == set(preview.unfinished)
        better += many.passed_s < greedy.passed_s
    assert better


@pytest.mark.parametrize("name", ["top_k", "sequences"])
def test_depth_first_refuses_a_search_of_nothing(name: str) -> None:
    with pytest.raises(ValueError, match=f"planner.{name} is 0"):
        DepthFirstStages(**{"top_k": 1, "sequences": 1} | {name: 0})


# Greedy against the best of all sequences of stages

MODELS = (
    "vicuna-13b-v1.5",
    "oasst-sft-4-pythia-12b-epoch-3.5",
    "dolly-v2-12b",
    "mpt-7b-chat",
    "chatglm3-6b",
    "stablelm-tuned-alpha-7b",
    "Llama-2-70b-chat-hf",
)
INSTANCES = 16
SHAPES = ((2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (3, 4), (4, 2), (4, 3))
"""Models and GPUs of the instances, in turn."""


@cache
def _forecaster() -> Forecaster:
    """SamuLLM's own cost model and vLLM's batch rule."""
    costs = ProfileCosts(
        gpu="A100-80G",
        profile_dir="a100_80g_vllm_0_3",
        memory_share=0.9,
        parts=("forward", "prepare", "sample"),
    )
    rule = ContinuousBatching(
        chunked_prefill=False,
        pads_prompts=True,
        max_num_seqs=256,
        max_num_batched_tokens=4096,
        max_padding_tokens=256,
        watermark=0.01,
    )
    return Forecaster(costs=costs, rule=rule)


def _instance(number: int) -> tuple[StagePreview, int]:
    """Random models, each with 50 to 1,500 requests and a limit of 32 to 512 tokens."""
    rng = np.random.default_rng(number)
    count, gpus = SHAPES[number % len(SHAPES)]
    loads = {}
    for name in rng.choice(MODELS, count, replace=False).tolist():
        requests, limit = int(rng.integers(50, 1500)), int(rng.choice([32, 64, 128, 256, 512]))
        prompts = load_lengths("mixinstruct_prompts").sample(requests, rng)
        outputs = output_lengths(
            load_lengths(name),
            prompts,
            max_output_tokens=limit,
            max_context_tokens=model_facts(name).max_context_tokens,
            rng=rng,
        )
        loads[ServiceId(name)] = ready_load(prompts, np.zeros(requests, np.int64), outputs)
    return StagePreview(_forecaster(), loads, gpus, (1, 2, 4)), gpus


def _stages(preview: StagePreview, gpus: int) -> Iterator[Stage]:
    """Every stage: any services under any valid plans within the GPUs."""

    def extend(stage: dict[ServiceId, Plan], rest: tuple[ServiceId, ...]) -> Iterator[Stage]:
        if not rest:
            if stage:
                yield stage
            return
        yield from extend(stage, rest[1:])
        free = gpus - sum(plan.gpus for plan in stage.values())
        for plan in preview.plans(rest[0]):
            if plan.gpus <= free:
                yield from extend({**stage, rest[0]: plan}, rest[1:])

    return extend({}, preview.unfinished)


def _at_least_s(preview: StagePreview, gpus: int) -> float:
    """No sequence of stages is shorter: each service alone, and all GPU seconds spread evenly.

    A service ends under the plan it starts with (or goes on with) now, or loads once more.
    """
    longest_s = area_s = 0.0
    costs = _forecaster().costs
    for service in preview.unfinished:
        plans = preview.plans(service)
        load_s = min(costs.load_s(service, plan.tensor_parallel) for plan in plans)
        fewest = min(plan.gpus for plan in plans)
        again_s = load_s if preview.running(service) else 2 * load_s
        ends_s = {plan: preview.finish_s(service, plan, {}) for plan in plans}
        longest_s = max(longest_s, min(again_s, *ends_s.values()))
        area_s += min(again_s * fewest, *(p.gpus * end_s for p, end_s in ends_s.items()))
    return max(longest_s, area_s / gpus)


@dataclass
class Search:
    """Branch and bound over all sequences of stages; `best_s` starts at a known solution."""

    gpus: int
    best_s: float
    nodes: int = 0

    def run(self, preview: StagePreview) -> float:
        """The shortest total duration."""
        if not preview.unfinished:
            self.best_s = min(self.best_s, preview.passed_s)
            return self.best_s
        children: list[tuple[float, int, StagePreview]] = []
        for stage in _stages(preview, self.gpus):
            duration_s = preview.duration_s(stage)
            if preview.passed_s + duration_s < self.best_s:
                child = preview.copy()
                child.pass_stage(stage)
                self.nodes += 1
                bound_s = child.passed_s + _at_least_s(child, self.gpus)
                children.append((bound_s, len(children), child))
        for bound_s, _, child in sorted(children, key=lambda c: c[:2]):
            if bound_s < self.best_s:
                self.run(child)
        return self.best_s


def _ratio(number: int) -> tuple[float, int]:
    """Greedy over optimum, and the nodes it took to know."""
    preview, gpus = _instance(number)
    greedy = preview.copy()
    stages = GreedyStages().plan(greedy, gpus)
    assert all(sum(plan.gpus for plan in stage.values()) <= gpus for stage in stages)
    assert len(stages) <= len(preview.unfinished)
    search = Search(gpus, greedy.passed_s)
    assert _at_least_s(preview, gpus) <= greedy.passed_s
    return greedy.passed_s / search.run(preview), search.nodes


@pytest.mark.slow
def test_greedy_against_every_sequence_of_stages() -> None:
    """Random small instances: total stage duration of the greedy plan over that of the best.

    The best is over all sequences of valid stages (Definition 1), on the same forecasts.
    """
    found = [_ratio(number) for number in range(INSTANCES)]
    ratios = np.array([ratio for ratio, _ in found])
    low, median, p95, most = np.quantile(ratios, [0.0, 0.5, 0.95, 1.0])
    print(
        f"\ngreedy over optimum, {len(ratios)} instances: min {low:.3f}, median {median:.3f}, "
        f"mean {ratios.mean():.3f}, p95 {p95:.3f}, max {most:.3f}; equal in "
        f"{(ratios < 1 + 1e-9).sum()}; {sum(nodes for _, nodes in found)} stages tried"
    )
    assert low >= 1.0
    # Measured: 1.24 and 1.86. Requests are few here, so a load (11 to 60 s) weighs much.
    assert median < 1.4
    assert most < 2.2
