"""Services that share a cluster: requests partitioned by their lengths, each part with a model.

Requests of several sources are partitioned by K-means on the logarithms of their lengths; each
part is the requests of one service, which a model serves.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from scipy.cluster.vq import kmeans2

from harness.costs.model_facts import ModelFacts, model_facts
from harness.interface.entities import Service, ServiceId
from harness.workloads.lengths import Lengths
from harness.workloads.service_arrivals import ServiceArrivals
from harness.workloads.settings import require_between, require_positive
from harness.workloads.workload import Ints, Workload

MOST_SERVICES = 64
"""Bits of a number in which compiled code notes services of a group."""


class SharedServices:
    """Recipe of a workload; `build` makes it for a seed, `history` the time before it."""

    def __init__(
        self,
        *,
        models: Mapping[str, int],
        lengths: Sequence[Lengths],
        points: int,
        max_prompt_tokens: int,
        max_output_tokens: int,
        arrivals: ServiceArrivals,
        consecutive: int,
        length_error: float,
    ) -> None:
        """`models` gives the number of services of each model; a seed says which is which.

        So many `points` are drawn of each of `lengths`. Of every `consecutive` requests all ask the
        service of the first. An answer is longer or shorter by a normal number of `length_error`
        times its length, in the run and not in its history.
        """
        require_positive(
            "workload",
            points=points,
            max_prompt_tokens=max_prompt_tokens,
            max_output_tokens=max_output_tokens,
            consecutive=consecutive,
        )
        require_between("workload", 0, 100, length_error=length_error)
        self.models = tuple(model for model, count in models.items() if count)
        self._facts = _services(models, max_output_tokens)
        self._pools = _clusters(lengths, points, len(self._facts))
        self._limits, self._arrivals = (max_prompt_tokens, max_output_tokens), arrivals
        self._consecutive, self._length_error = consecutive, length_error
        self.files = dict(arrivals.files)
        for source in lengths:
            self.files |= source.files

    def build(self, seed: int) -> Workload:
        """Same seed, same workload; another rate has the same services."""
        return self._build(seed, is_past=False)

    def history(self, seed: int) -> Workload:
        """The requests of the time before the workload of a seed, from time 0."""
        return self._build(seed, is_past=True)

    def _build(self, seed: int, *, is_past: bool) -> Workload:
        count = len(self._facts)
        facts = [self._facts[i] for i in np.random.default_rng([seed, 20]).permutation(count)]
        arrival_s, asked = self._arrivals.draw(count, seed, is_past=is_past)
        service = asked[np.arange(len(asked)) // self._consecutive * self._consecutive]
        rng = np.random.default_rng([seed, 21, int(is_past)])
        most_prompt, most_output = self._limits
        context = np.array([one.max_context_tokens for one in facts])[service]
        prompt, output = np.zeros_like(service), np.zeros_like(service)
        for index, pool in enumerate(self._pools):
            rows = np.flatnonzero(service == index)
            prompt[rows], output[rows] = pool[rng.integers(len(pool), size=len(rows))].T
        if not is_past:
            off = output * self._length_error * rng.standard_normal(len(output))
            output = np.rint(output + off).astype(np.int64)
        return Workload(
            services=tuple(
                Service(
                    ServiceId(f"{one.name}~{index}"), one.kv_bytes_per_token, one.max_context_tokens
                )
                for index, one in enumerate(facts)
            ),
            service=service,
            arrival_s=arrival_s,
            prompt_tokens=prompt.clip(1, np.minimum(most_prompt, context - most_output)),
            output_tokens=output.clip(1, most_output),
            max_output_tokens=np.full_like(prompt, most_output),
            app=np.arange(len(prompt)),
            deadline_s=np.full(len(prompt), np.nan),
        )


def _services(models: Mapping[str, int], max_output_tokens: int) -> list[ModelFacts]:
    """The model of every service. ValueError for counts and contexts that no service has."""
    if min(models.values(), default=0) < 0 or not 1 <= sum(models.values()) <= MOST_SERVICES:
        raise ValueError(
            f"workload.models={dict(models)} must give each model 0 or more services, "
            f"1 to {MOST_SERVICES} in all"
        )
    found = [model_facts(model) for model, count in models.items() for _ in range(count)]
    for facts in found:
        if facts.max_context_tokens <= max_output_tokens:
            raise ValueError(
                f"workload.max_output_tokens is {max_output_tokens}, and {facts.name} has a "
                f"context of {facts.max_context_tokens}"
            )
    return found


def _clusters(lengths: Sequence[Lengths], points: int, count: int) -> tuple[Ints, ...]:
    """Points of all sources in `count` clusters, of shape (points of it, 2): prompts, answers."""
    drawn = [
        np.stack(
            source.draw(points, *(np.random.default_rng([number, i]) for i in (24, 25))), axis=1
        )
        for number, source in enumerate(lengths)
    ]
    found = np.concatenate(drawn)
    if (distinct := len(np.unique(found, axis=0))) < count:
        raise ValueError(
            f"workload.points gives {distinct} different pairs of lengths for {count} services"
        )
    label = _labels(found.tobytes(), count)
    parts = tuple(found[label == index] for index in range(count))
    if not all(map(len, parts)):
        raise ValueError(f"workload.points {points} leaves a service without requests")
    return parts


@lru_cache(maxsize=8)
def _labels(points: bytes, count: int) -> Ints:
    """The cluster of every point. Kept: the cells of a scenario have the same points."""
    pairs = np.frombuffer(points, np.int64).reshape(-1, 2)
    # Lengths span three orders of magnitude: distances are between their logarithms.
    _, label = kmeans2(np.log(pairs), count, iter=50, minit="++", rng=np.random.default_rng(26))
    return np.asarray(label, np.int64)
