"""SamuLLM's greedy search: which models run together, each on how many GPUs, stage by stage.

Paper      Fang et al., Improving the End-to-End Efficiency of Offline Inference for Multi-LLM
           Applications Based on Sampling and Simulation, arXiv 2503.16893; its sections below.
Idea       Fill a stage by giving GPUs, again and again, to the model whose throughput they raise
           most per GPU. A stage lasts until its first model ends; then plan the next one.
Map        2, 4.1 sampler, simulator      -> harness.planning: estimate, preview (the engine's core)
           4.1 eq. 5, what it leaves out  -> planner costs: the parts forward, prepare, sample
           3 throughput of a stage        -> StagePreview.throughput, FLOPs (eq. 1-2) over duration
           Algorithm 1 lines 4-23         -> best_stage; line 5 is StagePreview.startable
           Algorithm 1 lines 2-26         -> GreedyStages.plan
           4.3 dynamic scheduler          -> harness.planning.plan_tracking.StageFollower
           4.3 least reloading, NVLink    -> harness.planning.gpu_assignment.assign
           5.5 no preemption             -> StagePreview.held
Constants  none
Differs    FLOPs are summed over tensor-parallel shards, so that the same work counts the same
           under every plan (eq. 1-2 count those of one GPU). A model that keeps its plan goes on
           with its KV; the paper only says that workloads are updated
Checked    systems/tests/test_samullm.py::test_greedy_stage_by_hand
"""

from harness.interface.entities import ServiceId
from harness.planning.plans import Plan, Stage
from harness.planning.preview import StagePreview


class GreedyStages:
    """Stage planner: Algorithm 1."""

    def plan(self, preview: StagePreview, gpus: int) -> list[Stage]:
        """Stages until every service has ended."""
        stages: list[Stage] = []
        while preview.unfinished:
            stage = best_stage(preview, gpus, preview.held)
            stages.append(stage)
            preview.pass_stage(stage)
        return stages


def best_stage(preview: StagePreview, gpus: int, begin: Stage) -> Stage:
    """The next stage: greatest gain in throughput per added GPU, until none (lines 3-23).

    It grows from `begin`, which for Algorithm 1 is empty, or what may not be stopped.
    """
    best: dict[ServiceId, Plan] = dict(begin)
    throughput = preview.throughput(best)
    while True:
        used = sum(plan.gpus for plan in best.values())
        gain_per_gpu, choice, reached = float("-inf"), None, 0.0
        for service in preview.startable(best):
            if service in preview.held:
                continue
            freed = best[service].gpus if service in best else 0
            for plan in preview.plans(service):
                added = plan.gpus - freed
                if added <= 0 or used + added > gpus:
                    continue
                tried = preview.throughput({**best, service: plan})
                if (tried - throughput) / added > gain_per_gpu:
                    gain_per_gpu, choice, reached = (
                        (tried - throughput) / added,
                        (service, plan),
                        tried,
                    )
        if choice is None or reached < throughput:
            return best
        best[choice[0]] = choice[1]
        throughput = reached
