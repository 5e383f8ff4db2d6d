"""LLM ensembling: every prompt goes to every model, all at time 0."""

from collections.abc import Sequence

import numpy as np

from harness.costs.model_facts import model_facts
from harness.workloads.ecdf import length_files, load_lengths, output_lengths
from harness.workloads.prompts import PromptSource
from harness.workloads.settings import require_positive, require_start
from harness.workloads.workload import Workload, services_of


class Ensemble:
    """Recipe of a workload; `build` makes it for a seed."""

    def __init__(
        self,
        *,
        models: Sequence[str],
        requests: int,
        max_output_tokens: int,
        output_scale: float,
        source: str,
        profile: str,
        hub_dataset: str,
        hub_split: str,
        starts_s: float,
    ) -> None:
        """`requests` prompts for each of `models`, answers of at most `max_output_tokens`.

        True output lengths are drawn per model from its measured distribution, times
        `output_scale` (1 is what a planner believes too). The last four are of `PromptSource`.
        """
        self._starts_s = require_start(starts_s)
        numbers = {"requests": requests, "max_output_tokens": max_output_tokens}
        require_positive("workload", **numbers, output_scale=output_scale)
        if not models or len(set(models)) < len(models):
            raise ValueError(f"workload.models must name each model once: {list(models)}")
        self._facts = [model_facts(model) for model in models]
        self.models = tuple(models)
        self._requests, self._limit, self._scale = requests, max_output_tokens, output_scale
        self._prompts = PromptSource(
            source=source, profile=profile, hub_dataset=hub_dataset, hub_split=hub_split
        )
        self._prompts.refuse_fewer(requests)
        self.files = {**self._prompts.files, **length_files(models)}

    def build(self, seed: int) -> Workload:
        """Same seed, same workload; prompts are the same for every model."""
        rng = np.random.default_rng([seed, 1])
        prompts = self._prompts.draw(self._requests, rng)
        count, models = self._requests, len(self._facts)
        limit, output = [], []
        for facts in self._facts:
            room = facts.max_context_tokens - prompts.tokens
            if (room < 1).any():
                raise ValueError(
                    f"a prompt of {prompts.tokens.max()} tokens fills the context of {facts.name}"
                )
            drawn = output_lengths(
                load_lengths(facts.name),
                prompts.tokens,
                max_output_tokens=facts.max_context_tokens,
                max_context_tokens=facts.max_context_tokens,
                rng=rng,
            )
            limit.append(np.minimum(self._limit, room))
            output.append(np.clip(np.rint(drawn * self._scale).astype(np.int64), 1, limit[-1]))
        return Workload(
            services=services_of(self._facts),
            service=np.tile(np.arange(models, dtype=np.int64), count),
            arrival_s=np.zeros(count * models),
            prompt_tokens=np.repeat(prompts.tokens, models),
            output_tokens=np.stack(output, axis=1).ravel(),
            max_output_tokens=np.stack(limit, axis=1).ravel(),
            app=np.repeat(np.arange(count, dtype=np.int64), models),
            deadline_s=np.full(count * models, np.nan),
            datasets={**prompts.datasets, **self.files},
        ).later(self._starts_s)
