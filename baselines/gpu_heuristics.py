"""Max- and Min-heuristic: all GPUs to one model, or as many models as possible at once.

Paper      Fang et al., arXiv 2503.16893, section 5 "Competitors"; Min after Nagrecha and Kumar,
           Saturn (its reference 28).
Idea       Max runs the models one by one, each on all GPUs under the fastest parallelism. Min runs
           as many as fit and splits the GPUs as evenly as possible.
Map        5 Max-heuristic                -> MaxStages.plan
           5 Min-heuristic                -> MinStages.plan
           5.4 "estimate the inference time for all of them and select the one with the highest
           throughput"                    -> the maximum over _even_stages
           5.5 no preemption              -> StagePreview.held: Min splits the GPUs that are free
Constants  none
Differs    Max takes the models in the order of the application (the paper gives none); where a
           model cannot use all GPUs under any valid plan, it gets the most it can
Checked    baselines/tests/test_gpu_heuristics.py
"""

from collections.abc import Iterator
from itertools import combinations, product

from harness.planning.plans import Plan, Stage
from harness.planning.preview import StagePreview


class MaxStages:
    """Stage planner: one model at a time on all GPUs."""

    def plan(self, preview: StagePreview, gpus: int) -> list[Stage]:
        """One stage per service."""
        stages: list[Stage] = []
        while preview.unfinished:
            service = preview.startable({})[0]
            valid = preview.plans(service)
            most = max(plan.gpus for plan in valid)
            plans = [plan for plan in valid if plan.gpus == most]
            fastest = min(plans, key=lambda plan: preview.finish_s(service, plan, {}))
            stages.append({service: fastest})
            preview.pass_stage(stages[-1])
        return stages


class MinStages:
    """Stage planner: as many models as possible, GPUs split evenly."""

    def plan(self, preview: StagePreview, gpus: int) -> list[Stage]:
        """Stages until every service has ended."""
        stages: list[Stage] = []
        while preview.unfinished:
            stages.append(max(_even_stages(preview, gpus), key=preview.throughput))
            preview.pass_stage(stages[-1])
        return stages


def _even_stages(preview: StagePreview, gpus: int) -> Iterator[Stage]:
    """Every stage with the most models, each using its even share of the GPUs most fully."""
    held = preview.held
    free = gpus - sum(plan.gpus for plan in held.values())
    services = [service for service in preview.unfinished if service not in held]
    valid = {service: preview.plans(service) for service in services}
    for count in range(min(len(services), free), 0, -1):
        share, extra = divmod(free, count)
        found = False
        for chosen in combinations(services, count):
            if not set(chosen) <= set(preview.startable([*held, *chosen])):
                continue
            for lucky in combinations(chosen, extra):
                shares = {service: share + (service in lucky) for service in chosen}
                fitting = [_fullest(valid[service], shares[service]) for service in chosen]
                for plans in product(*fitting):
                    found = True
                    yield held | dict(zip(chosen, plans, strict=True))
        if found:
            return
    yield held


def _fullest(plans: list[Plan], share: int) -> list[Plan]:
    """The valid plans that use most of a share of GPUs."""
    most = max((plan.gpus for plan in plans if plan.gpus <= share), default=0)
    return [plan for plan in plans if plan.gpus == most]
