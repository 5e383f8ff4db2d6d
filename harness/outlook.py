"""What a planner believes is left of every service, moved from one execution stage to the next."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from harness.entities import ServiceId
from harness.forecast import Forecast, Forecaster, Load, Plan
from harness.models import model_facts
from harness.predictors.ecdf import Ecdf, output_lengths
from harness.stages import Stage
from harness.views import ClusterView


def believed_loads(
    view: ClusterView, lengths: Mapping[ServiceId, Ecdf], rng: np.random.Generator
) -> dict[ServiceId, Load]:
    """Every unfinished request with a sampled output length, per service."""
    loads = {}
    for service, facts in view.services.items():
        table = view.unfinished(service)
        sampled = output_lengths(
            lengths[service],
            table.prompt_tokens,
            max_output_tokens=table.max_output_tokens,
            max_context_tokens=facts.max_context_tokens,
            rng=rng,
        )
        output = np.maximum(sampled, table.generated_tokens + 1)
        loads[service] = Load(table.prompt_tokens, table.generated_tokens, output)
    return loads


@dataclass(slots=True)
class _Outstanding:
    """One service: its plan and since when it runs, and forecasts for every plan asked about."""

    load: Load
    running: Plan | None = None
    elapsed_s: float = 0.0
    forecasts: dict[Plan, Forecast] = field(default_factory=dict)


class Outlook:
    """Unfinished services and what any plan would make of them, from the start of the stage.

    `passed_s` adds up the stages passed.

    A service that keeps its plan goes on as forecast; any other plan loads first and recomputes.
    """

    def __init__(
        self,
        forecaster: Forecaster,
        loads: Mapping[ServiceId, Load],
        gpus: int,
        tensor_parallel: tuple[int, ...],
    ) -> None:
        """Nothing runs. `tensor_parallel` lists the degrees that plans may use.

        Raises ValueError for a degree below 1.
        """
        if not tensor_parallel or min(tensor_parallel) < 1:
            raise ValueError(f"tensor_parallel={list(tensor_parallel)} must list degrees from 1 up")
        self._forecaster = forecaster
        self._gpus = gpus
        self._degrees = tensor_parallel
        self._left = {service: _Outstanding(load) for service, load in loads.items() if len(load)}
        self._plans: dict[ServiceId, list[Plan]] = {}
        self.passed_s = 0.0

    def copy(self) -> "Outlook":
        """An equal one that may go another way; forecasts already made are shared."""
        twin = copy(self)
        twin._left = {service: replace(left) for service, left in self._left.items()}
        return twin

    @property
    def unfinished(self) -> tuple[ServiceId, ...]:
        """Services with requests left."""
        return tuple(self._left)

    def running(self, service: ServiceId) -> Plan | None:
        """The plan it ran under in the stage before."""
        return self._left[service].running

    def plans(self, service: ServiceId) -> list[Plan]:
        """Valid plans: weights and the KV of one longest sequence fit, and there are the GPUs.

        ValueError if there is none.
        """
        if service not in self._plans:
            self._plans[service] = self._valid_plans(service)
        return self._plans[service]

    def _valid_plans(self, service: ServiceId) -> list[Plan]:
        longest = model_facts(service).max_context_tokens
        costs = self._forecaster.costs
        found = [
            Plan(dp, tp)
            for tp in self._degrees
            if tp <= self._gpus
            and costs.kv_blocks(service, tp) * costs.block_tokens(service) >= longest
            for dp in range(1, self._gpus // tp + 1)
        ]
        if not found:
            degrees = list(self._degrees)
            raise ValueError(
                f"{service} fits no plan: {self._gpus} GPUs, tensor parallel {degrees}"
            )
        return found

    def finish_s(self, service: ServiceId, plan: Plan) -> float:
        """When it would have answered everything, loading included."""
        left = self._left[service]
        if plan == left.running:
            return left.forecasts[plan].finish_s - left.elapsed_s
        return self._load_s(service, plan) + self._forecast(service, plan).finish_s

    def flops_by(self, service: ServiceId, plan: Plan, time_s: float) -> float:
        """Operations it would have done by then."""
        left = self._left[service]
        if plan == left.running:
            done = left.forecasts[plan]
            return done.flops_by(left.elapsed_s + time_s) - done.flops_by(left.elapsed_s)
        return self._forecast(service, plan).flops_by(time_s - self._load_s(service, plan))

    def duration_s(self, stage: Stage) -> float:
        """Until the first service of the stage has ended."""
        return min(self.finish_s(service, plan) for service, plan in stage.items())

    def throughput(self, stage: Stage) -> float:
        """Operations per second over the stage; 0 for an empty one."""
        if not stage:
            return 0.0
        duration_s = self.duration_s(stage)
        return sum(self.flops_by(s, p, duration_s) for s, p in stage.items()) / duration_s

    def pass_stage(self, stage: Stage) -> float:
        """Move to the end of a stage; returns its duration in seconds."""
        duration_s = self.duration_s(stage)
        self.passed_s += duration_s
        for service in list(self._left):
            left, plan = self._left[service], stage.get(service)
            if plan is not None and self.finish_s(service, plan) <= duration_s:
                del self._left[service]
            elif plan is not None and plan == left.running:
                left.elapsed_s += duration_s
                left.load = left.forecasts[plan].load_after(left.elapsed_s)
                left.forecasts = {plan: left.forecasts[plan]}
            elif plan is not None:
                running = self._forecast(service, plan)
                elapsed_s = duration_s - self._load_s(service, plan)
                self._left[service] = _Outstanding(
                    running.load_after(elapsed_s), plan, elapsed_s, {plan: running}
                )
            elif left.running is not None:
                self._left[service] = _Outstanding(left.load)
        return duration_s

    def _load_s(self, service: ServiceId, plan: Plan) -> float:
        return self._forecaster.costs.load_s(service, plan.tensor_parallel)

    def _forecast(self, service: ServiceId, plan: Plan) -> Forecast:
        left = self._left[service]
        if plan not in left.forecasts:
            facts = model_facts(service)
            left.forecasts[plan] = self._forecaster.forecast(service, facts, plan, left.load)
        return left.forecasts[plan]
