"""What SamuLLM's program does in place of its greedy search: depth first over several stages.

Paper      Fang et al., arXiv 2503.16893; its program's benchmarks/search_exec_plans.py
Idea       After every stage several next ones are tried, best first, and so on until nothing is
           left; a branch that is already slower than the best whole sequence is cut off. The
           search ends after so many sequences, cut off or not.
Map        max_group_seq_num              -> sequences; 1 is the greedy search
           top_k                          -> stages tried after each
           bound on the total time        -> the comparison with the best in _search
           candidates of a stage          -> best_stage of Algorithm 1, begun with each of the
                                             pairs that alone have the highest throughput
Constants  top_k and sequences are 20 in its program
Differs    The program lists candidates by exhausting groups of plans; ours are those of
           Algorithm 1 from different beginnings, so that a search of one sequence is Algorithm 1
Checked    systems/tests/test_samullm.py::test_depth_first_is_never_worse_than_greedy
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.planning.plans import Stage
from harness.planning.preview import StagePreview
from systems.samullm.greedy_stages import best_stage


class DepthFirstStages:
    """Stage planner: bounded depth-first search."""

    def __init__(self, *, top_k: int, sequences: int) -> None:
        """Raises ValueError for a number below 1."""
        for name, value in (("top_k", top_k), ("sequences", sequences)):
            if value < 1:
                raise ValueError(f"planner.{name} is {value}, it must be at least 1")
        self._top_k, self._sequences = top_k, sequences

    def plan(self, preview: StagePreview, gpus: int) -> list[Stage]:
        """The fastest of the sequences found."""
        search = _Search(gpus, self._top_k, self._sequences)
        search.follow(preview, [])
        for stage in search.best:
            preview.pass_stage(stage)
        return search.best


@dataclass(slots=True)
class _Search:
    """How many sequences may still be found, and the best so far."""

    gpus: int
    top_k: int
    left: int
    best: list[Stage] = field(default_factory=list)
    best_s: float = float("inf")

    def follow(self, preview: StagePreview, stages: list[Stage]) -> None:
        """Every way on from here, as far as it may be the best."""
        if not preview.unfinished:
            self.best, self.best_s = stages, preview.passed_s
            self.left -= 1
            return
        for stage in _candidates(preview, self.gpus, self.top_k):
            after = preview.copy()
            after.pass_stage(stage)
            if after.passed_s < self.best_s:
                self.follow(after, [*stages, stage])
            else:
                self.left -= 1
            if self.left <= 0:
                return


def _candidates(preview: StagePreview, gpus: int, top_k: int) -> Iterator[Stage]:
    """Different stages, those first that begin with the most throughput per GPU added."""
    held = preview.held
    free = gpus - sum(plan.gpus for plan in held.values())
    before = preview.throughput(held)
    begun = [
        {**held, service: plan}
        for service in preview.startable(held)
        if service not in held
        for plan in preview.plans(service)
        if plan.gpus <= free
    ]
    used = gpus - free

    def gain_per_gpu(stage: Stage) -> float:
        added = sum(plan.gpus for plan in stage.values()) - used
        return (preview.throughput(stage) - before) / added

    tried: list[Stage] = []
    for begin in sorted(begun, key=gain_per_gpu, reverse=True)[:top_k] or [held]:
        stage = best_stage(preview, gpus, begin)
        if stage not in tried:
            tried.append(stage)
            yield stage
