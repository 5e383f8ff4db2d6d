"""LLM routing: every prompt goes to the one model that answers it best, all at time 0."""

from collections.abc import Mapping

import numpy as np
from scipy.optimize import brentq

from harness.costs.model_facts import ModelFacts, model_facts
from harness.workloads.ecdf import length_files, load_lengths, output_lengths
from harness.workloads.settings import require_positive, require_start
from harness.workloads.workload import Floats, Ints, Workload, services_of

ANSWERS = ("own", "published")


class Routing:
    """Recipe of a workload; `build` makes it for a seed."""

    def __init__(
        self,
        *,
        requests: Mapping[str, int],
        max_output_tokens: int,
        answers: str,
        prompt_tokens: Mapping[str, float],
        answer_tokens: Mapping[str, float],
        output_scale: float,
        starts_s: float,
    ) -> None:
        """`requests` gives the number of requests of each model.

        Prompts have the `least`, `mean` and `most` tokens of `prompt_tokens`, spread between them
        like a beta distribution of this `concentration`. Answers are each model's `own` measured
        lengths times `output_scale`, or as `published`: lognormal between `least` and `most` with
        this `mean` and this `sigma` of the logarithm.
        """
        self._starts_s = require_start(starts_s)
        if not requests or min(requests.values()) < 1:
            raise ValueError(f"workload.requests={dict(requests)} must give each model at least 1")
        scales = {"max_output_tokens": max_output_tokens, "output_scale": output_scale}
        require_positive("workload", **scales)
        if answers not in ANSWERS:
            raise ValueError(f"workload.answers={answers} is not one of {', '.join(ANSWERS)}")
        self._facts = [model_facts(model) for model in requests]
        self._counts = list(requests.values())
        self.models = tuple(requests)
        self._limit, self._scale, self._answers = max_output_tokens, output_scale, answers
        self._prompts = _numbers("prompt_tokens", prompt_tokens, "concentration")
        self._published = _numbers("answer_tokens", answer_tokens, "sigma")
        self.files = length_files(requests) if answers == "own" else {}

    def build(self, seed: int) -> Workload:
        """Same seed, same workload; the models' requests come in mixed order."""
        rng = np.random.default_rng([seed, 4])
        service = rng.permutation(np.repeat(np.arange(len(self._facts)), self._counts))
        prompt = _between(self._prompts, len(service), rng)
        output, limit = np.zeros_like(prompt), np.zeros_like(prompt)
        for index, facts in enumerate(self._facts):
            mine = service == index
            limit[mine] = np.minimum(self._limit, facts.max_context_tokens - prompt[mine])
            output[mine] = self._true_lengths(facts, prompt[mine], rng)
        if (limit < 1).any():
            raise ValueError(f"a prompt of {prompt.max()} tokens fills the context of a model")
        return Workload(
            services=services_of(self._facts),
            service=service,
            arrival_s=np.zeros(len(service)),
            prompt_tokens=prompt,
            output_tokens=np.clip(output, 1, limit),
            max_output_tokens=limit,
            app=np.arange(len(service), dtype=np.int64),
            deadline_s=np.full(len(service), np.nan),
        ).later(self._starts_s)

    def _true_lengths(self, facts: ModelFacts, prompt: Ints, rng: np.random.Generator) -> Ints:
        if self._answers == "published":
            return _lognormal(self._published, len(prompt), rng)
        drawn = output_lengths(
            load_lengths(facts.name),
            prompt,
            max_output_tokens=facts.max_context_tokens,
            max_context_tokens=facts.max_context_tokens,
            rng=rng,
        )
        return np.asarray(np.rint(drawn * self._scale), np.int64)


def _numbers(name: str, given: Mapping[str, float], shape: str) -> dict[str, float]:
    """Least, mean, most and a shape. Raises ValueError where one is missing or out of order."""
    wanted = ("least", "mean", "most", shape)
    if set(given) != set(wanted):
        raise ValueError(f"workload.{name} has {sorted(given)}, it needs {', '.join(wanted)}")
    if not 1 <= given["least"] < given["mean"] < given["most"] or not given[shape] > 0:
        raise ValueError(f"workload.{name}={dict(given)} is no distribution")
    return dict(given)


def _between(of: Mapping[str, float], count: int, rng: np.random.Generator) -> Ints:
    """Beta lengths from least to most with the mean asked for."""
    span = of["most"] - of["least"]
    place = (of["mean"] - of["least"]) / span
    drawn = rng.beta(place * of["concentration"], (1 - place) * of["concentration"], count)
    return np.asarray(np.rint(of["least"] + span * drawn), np.int64)


def _lognormal(of: Mapping[str, float], count: int, rng: np.random.Generator) -> Ints:
    """Lognormal lengths cut to least and most; the median is such that the mean is met."""
    normal = np.linspace(-4.0, 4.0, 4001)
    weight = np.exp(-(normal**2) / 2)

    def cut(log_median: float, at: Floats) -> Floats:
        return np.asarray(np.exp(log_median + of["sigma"] * at).clip(of["least"], of["most"]))

    def excess(log_median: float) -> float:
        return float(np.average(cut(log_median, normal), weights=weight)) - of["mean"]

    log_median = brentq(excess, np.log(of["least"]), np.log(of["most"]))
    return np.asarray(np.rint(cut(log_median, rng.standard_normal(count))), np.int64)
