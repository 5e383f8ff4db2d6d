"""Deadlines on a workload that has none, as far from arrival as a typical answer takes alone."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from harness.interface.entities import ServiceId, Work
from harness.interface.policies import CostModel
from harness.workloads.settings import require_positive
from harness.workloads.together import Part
from harness.workloads.workload import Workload


class WithDeadlines:
    """The requests of another recipe, each with a deadline that policies see.

    It lies `scale` times the seconds after arrival that the request's prompt and the mean answer of
    its service take alone, on `tensor_parallel` GPUs. The request's own answer has no part in it: a
    deadline by that would tell a policy the true length. Whether a request met a multiple of its
    own solo time is a question for after the run.
    """

    def __init__(
        self, *, workload: Part, costs: CostModel, scale: float, tensor_parallel: int
    ) -> None:
        require_positive("workload", scale=scale, tensor_parallel=tensor_parallel)
        self._workload, self._costs = workload, costs
        self._scale, self._tensor_parallel = scale, tensor_parallel
        self.models = tuple(workload.models)
        self.files: Mapping[str, str] = workload.files

    def build(self, seed: int) -> Workload:
        """Same seed, same workload. ValueError where requests come when others are answered."""
        load = self._workload.build(seed)
        if load.answers_release:
            raise ValueError("deadlines go by arrivals; calls that wait for others have none yet")
        within_s = np.zeros(len(load))
        for index, service in enumerate(load.services):
            rows = load.service == index
            if rows.any():
                answer = int(np.rint(load.output_tokens[rows].mean()))
                kinds, which = np.unique(load.prompt_tokens[rows], return_inverse=True)
                each_s = [self._alone_s(service.id, prompt, answer) for prompt in kinds.tolist()]
                within_s[rows] = np.array(each_s)[which]
        return replace(load, deadline_s=load.arrival_s + self._scale * within_s)

    def _alone_s(self, service: ServiceId, prompt: int, answer: int) -> float:
        """Seconds of a prompt and its answer; those of a decode are linear in its context."""
        whole = Work(1, prompt, prompt, float(prompt) ** 2)
        context = prompt + answer // 2
        decode = Work(decode_requests=1, context_tokens=context, longest_tokens=context)
        prefill_s, decode_s = (
            self._costs.iteration_s(service, self._tensor_parallel, work)
            for work in (whole, decode)
        )
        return prefill_s + (answer - 1) * decode_s
