"""Requests drawn from stated distributions: one model, a rate, its burstiness, two lengths."""

from collections.abc import Mapping

import numpy as np

from harness.costs.model_facts import ModelFacts, model_facts
from harness.interface.entities import Service, ServiceId
from harness.workloads.arrivals import Arrivals, AtOnce, Gamma
from harness.workloads.lengths import lognormal_tokens
from harness.workloads.settings import (
    BURSTINESS,
    SIGMA,
    require_between,
    require_positive,
    require_start,
)
from harness.workloads.workload import Workload


class Synthetic:
    """`requests` requests to one model, at `rate_per_s` or all at once; lengths within limits.

    Gaps are gamma with `burstiness` as coefficient of variation. Lengths are lognormal with a
    median and the sigma of the logarithm, cut to 1..max.
    """

    def __init__(
        self,
        *,
        model: str,
        requests: int,
        rate_per_s: float | None,
        burstiness: float,
        prompt_median_tokens: float,
        prompt_sigma: float,
        output_median_tokens: float,
        output_sigma: float,
        max_prompt_tokens: int,
        max_output_tokens: int,
        starts_s: float,
    ) -> None:
        """Raises ValueError for an unknown model, a bad number, lengths beyond its context."""
        self._starts_s = require_start(starts_s)
        self._facts = model_facts(model)
        require_positive(
            "workload",
            requests=requests,
            rate_per_s=1.0 if rate_per_s is None else rate_per_s,
            burstiness=burstiness,
            prompt_median_tokens=prompt_median_tokens,
            output_median_tokens=output_median_tokens,
            max_prompt_tokens=max_prompt_tokens,
            max_output_tokens=max_output_tokens,
        )
        require_between("workload", *BURSTINESS, burstiness=burstiness)
        require_between("workload", *SIGMA, prompt_sigma=prompt_sigma, output_sigma=output_sigma)
        _require_room(self._facts, max_prompt_tokens, max_output_tokens)
        self._requests = requests
        self._arrivals = _arrivals(rate_per_s, burstiness)
        self._prompt = (prompt_median_tokens, prompt_sigma, max_prompt_tokens)
        self._output = (output_median_tokens, output_sigma, max_output_tokens)
        self.models = (model,)
        self.files: Mapping[str, str] = {}

    def build(self, seed: int) -> Workload:
        """Same seed, same workload; lengths do not depend on the rate."""
        count = self._requests
        prompts, outputs, gaps = (np.random.default_rng([seed, 6, part]) for part in range(3))
        return Workload(
            services=(
                Service(
                    ServiceId(self._facts.name),
                    self._facts.kv_bytes_per_token,
                    self._facts.max_context_tokens,
                ),
            ),
            service=np.zeros(count, np.int64),
            arrival_s=self._arrivals.draw(count, gaps),
            prompt_tokens=lognormal_tokens(*self._prompt[:2], count, prompts).clip(
                1, self._prompt[2]
            ),
            output_tokens=lognormal_tokens(*self._output[:2], count, outputs).clip(
                1, self._output[2]
            ),
            max_output_tokens=np.full(count, self._output[2]),
            app=np.arange(count),
            deadline_s=np.full(count, np.nan),
        ).later(self._starts_s)


def _require_room(model: ModelFacts, prompt_tokens: int, output_tokens: int) -> None:
    """Raise ValueError where the longest prompt and answer exceed the model's context."""
    context = model.max_context_tokens
    if prompt_tokens + output_tokens > context:
        raise ValueError(
            f"prompts of {prompt_tokens} and answers of {output_tokens} tokens exceed "
            f"the context of {model.name}, {context}"
        )


def _arrivals(rate_per_s: float | None, burstiness: float) -> Arrivals:
    if rate_per_s is None:
        return AtOnce()
    return Gamma(rate_per_s=rate_per_s, burstiness=burstiness, sorted_gaps=False)
