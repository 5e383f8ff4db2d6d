"""Requests drawn from stated distributions: one model, a rate, its burstiness, two lengths."""

from harness.costs.model_facts import model_facts
from harness.workloads.arrivals import Arrivals, AtOnce, Gamma
from harness.workloads.chats import Chats
from harness.workloads.lengths import Lognormal
from harness.workloads.settings import (
    BURSTINESS,
    SIGMA,
    require_between,
    require_positive,
)


class Synthetic(Chats):
    """`requests` requests to one model, at `rate_per_s` or all at once; lengths within limits.

    Gaps are gamma with `burstiness` as coefficient of variation; `arrivals`, if given, come in the
    place of rate and burstiness. Lengths are lognormal with a median and the sigma of the
    logarithm, cut to 1..max.
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
        arrivals: Arrivals | None = None,
    ) -> None:
        context = model_facts(model).max_context_tokens
        medians = {"prompt_median_tokens": prompt_median_tokens}
        medians |= {"output_median_tokens": output_median_tokens}
        limits = {"max_prompt_tokens": max_prompt_tokens, "max_output_tokens": max_output_tokens}
        rate = 1.0 if rate_per_s is None else rate_per_s
        counts = {"requests": requests, "rate_per_s": rate, "burstiness": burstiness}
        require_positive("workload", **counts, **medians, **limits)
        require_between("workload", *BURSTINESS, burstiness=burstiness)
        sigmas = {"prompt_sigma": prompt_sigma, "output_sigma": output_sigma}
        require_between("workload", *SIGMA, **sigmas)
        if max_prompt_tokens + max_output_tokens > context:
            raise ValueError(
                f"prompts of {max_prompt_tokens} and answers of {max_output_tokens} tokens exceed "
                f"the context of {model_facts(model).name}, {context}"
            )
        gaps = Gamma(rate_per_s=rate, burstiness=burstiness, sorted_gaps=False)
        super().__init__(
            model=model,
            requests=requests,
            arrivals=arrivals or (AtOnce() if rate_per_s is None else gaps),
            lengths=Lognormal(**medians, **sigmas, max_prompt_tokens=max_prompt_tokens),
            max_output_tokens=max_output_tokens,
            starts_s=starts_s,
        )
