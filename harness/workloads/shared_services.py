"""Services that share a cluster: their requests by length, and their arrivals function by function.

Requests of several sources are partitioned by K-means on the logarithms of their lengths; each
part is the requests of one service, which a model serves. Functions of a trace are dealt out to
the services in turn.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from scipy.cluster.vq import kmeans2

from harness.costs.model_facts import ModelFacts, model_facts
from harness.interface.entities import Service, ServiceId
from harness.workloads.arrivals import RATE_PER_S, arrival_table, table_file
from harness.workloads.lengths import Lengths
from harness.workloads.settings import require_between, require_positive
from harness.workloads.workload import Floats, Ints, Workload

MOST_SERVICES = 64
"""Bits of a number in which compiled code notes services of a group."""


class FunctionArrivals:
    """Functions of a trace dealt out to services in turn: Poisson arrivals at the rates of minutes.

    Kept of the measurement: how many requests each function has in each minute.
    """

    def __init__(
        self, *, table: str, rate_per_s: float, duration_s: float, history_s: float
    ) -> None:
        """`rate_per_s` is of all services, the mean over `duration_s`; `history_s` come before."""
        require_between("workload.arrivals", *RATE_PER_S, rate_per_s=rate_per_s)
        require_positive("workload.arrivals", duration_s=duration_s, history_s=history_s)
        content = arrival_table(table, "stream_counts")
        self._counts = np.array(content["stream_counts"], np.float64)
        self._minute_s = float(content["window_s"])
        self._lasts_s = (duration_s, history_s)
        self._minutes = [int(np.ceil(seconds / self._minute_s)) for seconds in self._lasts_s]
        if sum(self._minutes) > self._counts.shape[1]:
            raise ValueError(
                f"workload.arrivals.duration_s {duration_s:g} and history_s {history_s:g} take "
                f"{sum(self._minutes)} minutes, table {table} has {self._counts.shape[1]}"
            )
        self._rate_per_s, self._table = rate_per_s, table
        self.files = table_file(table)

    def draw(self, services: int, seed: int, *, is_past: bool) -> tuple[Floats, Ints]:
        """Seconds and services of arrivals, in order, from 0: of the run or of its history."""
        if services > len(self._counts):
            raise ValueError(
                f"workload.models has {services} services, table {self._table} "
                f"{len(self._counts)} streams of arrivals"
            )
        rng = np.random.default_rng([seed, 22])
        streams = self._counts[rng.permutation(len(self._counts))]
        per_minute = np.stack([streams[index::services].sum(0) for index in range(services)])
        own, past = self._minutes
        start = past + int(rng.integers(per_minute.shape[1] - past - own + 1))
        mean = per_minute[:, start : start + own].sum(axis=0).mean()
        first, minutes = (start - past, past) if is_past else (start, own)
        rng = np.random.default_rng([seed, 23, int(is_past)])
        rates = per_minute[:, first : first + minutes] * (self._rate_per_s * self._minute_s / mean)
        drawn = rng.poisson(rates)
        service, minute = np.nonzero(drawn)
        of = drawn[service, minute]
        arrival_s = (np.repeat(minute, of) + rng.random(of.sum())) * self._minute_s
        order = np.argsort(arrival_s, kind="stable")
        order = order[arrival_s[order] < self._lasts_s[int(is_past)]]
        if not len(order):
            raise ValueError(
                f"workload.arrivals.rate_per_s={self._rate_per_s:g} gives no request in "
                f"{self._lasts_s[int(is_past)]:g} s of {'history' if is_past else 'the run'}, "
                f"seed {seed}"
            )
        return arrival_s[order], np.repeat(service, of)[order].astype(np.int64)


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
        arrivals: FunctionArrivals,
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
