"""What services need of a group's SMs and KV when they run side by side on shares of the SMs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, log2
from typing import NamedTuple

import numpy as np

from harness.interface.entities import Service, ServiceId, Work
from harness.interface.policies import CostModel
from harness.planning.forecast import Window

SHARES = tuple(tenths / 10 for tenths in range(3, 10))
"""Shares that a decode may get: the measured ones, but for all SMs."""
_DECODES = 32
"""Requests of a decode when groups are compared by how busy they are."""
_SPANS_S = tuple(2.0**power for power in range(-4, 9))
"""Seconds of a round of prefills and decodes."""
MOST_REQUESTS = 256
"""Requests of the largest decode that is looked at."""
_WITHIN_PER_S, _WITHIN = 0.5, 0.1
"""Requests a second, and share of them, by which decodes may fall short of a rate."""


@dataclass(frozen=True, slots=True)
class ServiceDemand:
    """Requests a second of a service, and the mean tokens of their prompts and answers."""

    rate_per_s: float
    prompt_tokens: int
    output_tokens: int


class Reached(NamedTuple):
    """Requests of a decode, how many a second they make, and whether these are enough."""

    requests: int
    rate_per_s: float
    is_enough: bool


def fewest_requests(
    wanted_per_s: float, most: float, rate_per_s: Callable[[float], float]
) -> Reached:
    """The smallest decode of 1 to `most` requests that makes `wanted_per_s`; else nearly the most.

    The interval is halved until its ends differ by less than a request; the middle looked at last
    counts, cut to a whole number.
    """
    low, high = 1.0, max(2.0, most)
    while high - low >= 1.0:
        middle = (low + high) / 2
        found_per_s = rate_per_s(middle)
        low, high = (low, middle) if found_per_s >= wanted_per_s else (middle, high)
    within_per_s = min(_WITHIN_PER_S, _WITHIN * found_per_s)
    return Reached(int(middle), found_per_s, found_per_s + within_per_s > wanted_per_s)


def _power_of_two(number: float) -> int:
    """The next one that is not smaller."""
    return 1 << max(0, ceil(log2(max(number, 1.0))))


def demands(history: Window) -> dict[ServiceId, ServiceDemand]:
    """Of every service with requests in a history, over the seconds that this spans."""
    table, found = history.table, {}
    span_s = max(float(table.arrival_s[-1] - table.arrival_s[0]), 1e-9) if len(table.id) else 1.0
    for index, service in enumerate(table.services):
        rows = np.flatnonzero(table.service == index)
        if len(rows):
            found[service] = ServiceDemand(
                len(rows) / span_s,
                max(1, int(table.prompt_tokens[rows].mean())),
                max(1, int(history.output_tokens[rows].mean())),
            )
    return found


@dataclass(frozen=True, slots=True)
class ShareEstimates:
    """Seconds and throughputs of services on shares of the SMs, each worked out once."""

    costs: CostModel
    demands: Mapping[ServiceId, ServiceDemand]
    _known: dict[tuple[object, ...], float] = field(default_factory=dict)

    def prefill_s(self, service: ServiceId, tensor_parallel: int, requests: int) -> float:
        """Seconds of a prefill of mean prompts on all SMs."""
        tokens = requests * self.demands[service].prompt_tokens
        attended = float(tokens * self.demands[service].prompt_tokens)
        work = Work(requests, tokens, tokens, attended)
        return self._once(
            (service, tensor_parallel, requests),
            partial(self.costs.iteration_s, service, tensor_parallel, work),
        )

    def decode_s(
        self, service: ServiceId, tensor_parallel: int, requests: int, share: float
    ) -> float:
        """Seconds of a decode of requests whose answers are half there, on a share of the SMs."""
        context = self._held_tokens(service)
        work = Work(
            decode_requests=requests, context_tokens=requests * context, longest_tokens=context
        )
        return self._once(
            (service, tensor_parallel, requests, share),
            partial(self.costs.iteration_s, service, tensor_parallel, work, gpu_share=share),
        )

    def rate_per_s(
        self, service: ServiceId, tensor_parallel: int, requests: float, share: float
    ) -> float:
        """Requests a second of batches of so many: one prefill each, and all decodes of answers.

        The seconds are those of the nearest whole number of requests.
        """
        prefill_s = self.prefill_s(service, tensor_parallel, round(requests))
        decode_s = self.decode_s(service, tensor_parallel, round(requests), share)
        return requests / (self.demands[service].output_tokens * decode_s + prefill_s)

    def decode_share(self, service: ServiceId, tensor_parallel: int) -> float:
        """The least share on which decodes nearly keep up with the requests; else the fastest one.

        A service without requests gets the least.
        """
        return self._once(
            ("decode share", service, tensor_parallel),
            partial(self._decode_share, service, tensor_parallel),
        )

    def _decode_share(self, service: ServiceId, tensor_parallel: int) -> float:
        demand = self.demands.get(service)
        if demand is None:
            return SHARES[0]
        found = {}
        for share in SHARES:
            found[share] = fewest_requests(
                demand.rate_per_s,
                MOST_REQUESTS,
                partial(self.rate_per_s, service, tensor_parallel, share=share),
            )
            if found[share].is_enough:
                return share
        return max(SHARES, key=lambda share: found[share].rate_per_s)

    def busy_share(self, services: Sequence[ServiceId], tensor_parallel: int) -> float:
        """Share of its time that a group on all SMs computes requests, in batches of 32 decodes."""
        busy = 0.0
        for service in services:
            if demand := self.demands.get(service):
                decode_s = self.decode_s(service, tensor_parallel, _DECODES, 1.0) / _DECODES
                prefill_s = self.prefill_s(service, tensor_parallel, 1)
                busy += demand.rate_per_s * (prefill_s + demand.output_tokens * decode_s)
        return busy

    def throughput_per_s(
        self, services: Sequence[Service], tensor_parallel: int, kv_bytes: int
    ) -> float:
        """Requests a second of services that share a group, at most their rates.

        Prefills of all services follow one another, decodes run side by side, each service's on its
        share of the SMs. In the best of many rounds every service takes the requests of as many
        seconds, to the next power of two and at most 256, while their KV fits.
        """
        token_bytes = {it.id: it.kv_bytes_per_token for it in services}
        asked = [service for service in token_bytes if service in self.demands]
        shares = {s: self.decode_share(s, tensor_parallel) for s in asked}
        best = 0.0
        for span_s in _SPANS_S:
            wanted = {s: _power_of_two(self.demands[s].rate_per_s * span_s) for s in asked}
            batches = {s: min(MOST_REQUESTS, many) for s, many in wanted.items()}
            tokens = {s: many * self._held_tokens(s) for s, many in batches.items()}
            if sum(tokens[s] * token_bytes[s] for s in asked) > kv_bytes:
                break
            prefills_s = sum(self.prefill_s(s, tensor_parallel, b) for s, b in batches.items())
            rates = 0.0
            for service, many in batches.items():
                decode_s = self.decode_s(service, tensor_parallel, many, shares[service])
                round_s = prefills_s + self.demands[service].output_tokens * decode_s
                rates += min(self.demands[service].rate_per_s, many / round_s)
            best = max(best, rates)
        return best

    def _held_tokens(self, service: ServiceId) -> int:
        """Mean context of a decode: its answer is half there."""
        demand = self.demands[service]
        return demand.prompt_tokens + demand.output_tokens // 2

    def _once(self, key: tuple[object, ...], value: "partial[float]") -> float:
        if key not in self._known:
            self._known[key] = value()
        return self._known[key]
