"""Seconds of an iteration and of a load, from measured profiles or else a roofline.

A profile gives, per phase, component and coefficient, values at knots of the number of requests
(arXiv 2503.16893 eq. 5: linear functions with constants of their own per number of requests).
`ProfileCosts` adds the components up into one `IterationTable`, which compiled code reads.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from harness.costs.compiled import compiled
from harness.costs.gpus import GpuFacts, gpu_facts
from harness.costs.models import PROFILES, model_facts, model_of
from harness.costs.profiles import MEASURED_MEMORY_SHARE, Phase, Profile, read_profiles
from harness.costs.roofline import (
    Calibration,
    read_calibration,
    roofline_kv_blocks,
    roofline_load_s,
    roofline_profile,
)
from harness.interface.entities import ServiceId, Work
from harness.interface.policies import CostModel

Floats = NDArray[np.float64]

MAX_REQUESTS = 1024
PARTS = ("forward", "prepare", "sample", "other")


class IterationTable(NamedTuple):
    """Coefficients of an iteration, indexed by its number of requests (0 is unused).

    `shared_s` (length 1) is the fixed cost counted once when prefill and decode share an
    iteration; our choice, never measured. `prefill_step_s` is indexed by padded prompt tokens:
    what they cost beyond the linear terms (reading the weights hides a short prompt, and matrix
    multiplications go by tiles of 64 to 256 tokens); its last entry holds for more tokens.
    """

    prefill_base_s: Floats
    prefill_per_padded_token_s: Floats
    prefill_per_attended_s: Floats
    prefill_per_token_s: Floats
    decode_base_s: Floats
    decode_per_context_s: Floats
    decode_per_padded_s: Floats
    shared_s: Floats
    prefill_step_s: Floats = np.zeros(1)


class TableCosts(CostModel, Protocol):
    """Costs that compiled code can read."""

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Coefficients of an iteration by its number of requests."""


@compiled
def iteration_seconds(
    table: IterationTable,
    prefill_requests: int,
    prefill_tokens: int,
    prefill_padded_tokens: int,
    prefill_attended: float,
    decode_requests: int,
    context_tokens: int,
    longest_tokens: int,
) -> float:
    """Seconds of one iteration; the arguments are the fields of `Work`."""
    seconds = 0.0
    if prefill_requests > 0:
        step = min(int(prefill_padded_tokens), table.prefill_step_s.size - 1)
        seconds += (
            table.prefill_base_s[prefill_requests]
            + table.prefill_per_padded_token_s[prefill_requests] * prefill_padded_tokens
            + table.prefill_per_attended_s[prefill_requests] * prefill_attended
            + table.prefill_per_token_s[prefill_requests] * prefill_tokens
            + table.prefill_step_s[step]
        )
    if decode_requests > 0:
        seconds += (
            table.decode_base_s[decode_requests]
            + table.decode_per_context_s[decode_requests] * context_tokens
            + table.decode_per_padded_s[decode_requests] * (decode_requests * longest_tokens)
        )
        if prefill_requests > 0:
            seconds -= table.shared_s[0]
    return seconds


@compiled
def decode_run_seconds(
    table: IterationTable, requests: int, context_tokens: int, longest_tokens: int, iterations: int
) -> float:
    """Seconds of a run of decode iterations with the same requests.

    `context_tokens` and `longest_tokens` are those of the first; every iteration adds a token to
    each request, so the seconds are an arithmetic series.
    """
    first = (
        table.decode_base_s[requests]
        + table.decode_per_context_s[requests] * context_tokens
        + table.decode_per_padded_s[requests] * (requests * longest_tokens)
    )
    growth = requests * (table.decode_per_context_s[requests] + table.decode_per_padded_s[requests])
    return float(iterations * first + growth * (iterations * (iterations - 1.0) / 2.0))


@compiled
def decode_iterations_within(
    table: IterationTable,
    requests: int,
    context_tokens: int,
    longest_tokens: int,
    seconds: float,
    most: int,
) -> int:
    """Fewest decode iterations (1..most) that take at least `seconds`; `most` if none do."""
    first = decode_run_seconds(table, requests, context_tokens, longest_tokens, 1)
    half_growth = (
        decode_run_seconds(table, requests, context_tokens, longest_tokens, 2) / 2.0 - first
    )
    # half_growth n^2 + linear n = seconds, solved in the form that does not cancel
    linear = first - half_growth
    root = math.sqrt(max(0.0, linear * linear + 4.0 * half_growth * seconds))
    guess = 2.0 * seconds / (linear + root) if linear + root > 0.0 else float(most)
    count = max(1, min(most, math.ceil(min(guess, float(most)))))
    # the guess is off by rounding only; what counts is agreement with decode_run_seconds
    while (
        count > 1
        and decode_run_seconds(table, requests, context_tokens, longest_tokens, count - 1)
        >= seconds
    ):
        count -= 1
    while (
        count < most
        and decode_run_seconds(table, requests, context_tokens, longest_tokens, count) < seconds
    ):
        count += 1
    return count


def work_seconds(table: IterationTable, work: Work) -> float:
    """Seconds of one iteration."""
    return float(
        iteration_seconds(
            table,
            work.prefill_requests,
            work.prefill_tokens,
            work.prefill_padded_tokens,
            work.prefill_attended,
            work.decode_requests,
            work.context_tokens,
            work.longest_tokens,
        )
    )


def expand(profile: Profile, parts: tuple[str, ...]) -> IterationTable:
    """The table of a profile: chosen components added up, linear between and beyond its knots."""

    def total(phase: Phase, coefficient: str) -> Floats:
        at_knots = np.zeros(len(profile.knots_requests))
        for part in parts:
            at_knots += np.asarray(phase[part].get(coefficient, (0.0,)))
        return _along_requests(profile.knots_requests, at_knots)

    prefill_base_s = total(profile.prefill, "base_s")
    decode_base_s = total(profile.decode, "base_s")
    tokens = np.arange(profile.step_knots_tokens[-1] + 1)
    step_s = np.interp(tokens, profile.step_knots_tokens, profile.step_s)
    return IterationTable(
        prefill_base_s=prefill_base_s,
        prefill_per_padded_token_s=total(profile.prefill, "per_padded_token_s"),
        prefill_per_attended_s=total(profile.prefill, "per_attended_s"),
        prefill_per_token_s=total(profile.prefill, "per_token_s"),
        decode_base_s=decode_base_s,
        decode_per_context_s=total(profile.decode, "per_context_s"),
        decode_per_padded_s=total(profile.decode, "per_padded_s"),
        shared_s=np.minimum(prefill_base_s[1:2], decode_base_s[1:2]),
        prefill_step_s=step_s if "forward" in parts else np.zeros(1),
    )


def _along_requests(knots: tuple[int, ...], values: Floats) -> Floats:
    """Values at 0..MAX_REQUESTS requests; index 0 is 0, and nothing is extrapolated below 0."""
    requests = np.arange(MAX_REQUESTS + 1)
    line = np.interp(requests, knots, values)
    beyond = requests > knots[-1]
    slope = (values[-1] - values[-2]) / (knots[-1] - knots[-2])
    line[beyond] += slope * (requests[beyond] - knots[-1])
    line[0] = 0.0
    bounded: Floats = np.maximum(line, 0.0)
    return bounded


class ProfileCosts:
    """`CostModel` from the profiles of one folder under `harness/profiles`.

    What was not measured for a model and tensor-parallel size on `gpu` (iterations, load, KV
    blocks, each for itself) is taken from a model of the same architecture, else from the
    roofline; `label` says which. `memory_share` (0..1) of the GPU memory holds weights,
    activations and KV. `parts` are the components an iteration consists of; a planner may
    leave out "other" (arXiv 2503.16893 sec. 5.5). Raises ValueError for unknown names.
    """

    def __init__(
        self, *, gpu: str, profile_dir: str, memory_share: float, parts: tuple[str, ...]
    ) -> None:
        if not 0.0 < memory_share <= 1.0:
            raise ValueError(f"A memory share lies between 0 and 1, not {memory_share}.")
        self.gpu = gpu
        self.profile_dir = profile_dir
        self.memory_share = memory_share
        self.parts = tuple(parts)
        self._facts: GpuFacts = gpu_facts(gpu)
        self._tables: dict[tuple[str, int], IterationTable] = {}
        self._profiles = read_profiles(self._folder)
        unknown = [part for part in self.parts if part not in PARTS]
        if unknown:
            raise ValueError(f"An iteration has the parts {PARTS}, not {unknown[0]!r}.")

    def __reduce__(self) -> tuple[Callable[..., "ProfileCosts"], tuple[object, ...]]:
        """Pickle the four settings only; tables are built again where they are needed."""
        return _costs, (self.gpu, self.profile_dir, self.memory_share, self.parts)

    def with_parts(self, parts: tuple[str, ...]) -> "ProfileCosts":
        """The same profiles with other components in an iteration."""
        return _costs(self.gpu, self.profile_dir, self.memory_share, parts)

    def table(self, service: str, tensor_parallel: int) -> IterationTable:
        """Coefficients of an iteration of up to `MAX_REQUESTS` requests. Built once."""
        key = (service, tensor_parallel)
        if key not in self._tables:
            self._tables[key] = expand(self._iteration(service, tensor_parallel), self.parts)
        return self._tables[key]

    def iteration_s(
        self, service: ServiceId, tensor_parallel: int, work: Work, *, gpu_share: float = 1.0
    ) -> float:
        """Seconds of one iteration.

        On a share of the SMs, what exceeds the fixed cost of an iteration takes 1/share as long;
        our choice, never measured. Raises ValueError for more than `MAX_REQUESTS` requests.
        """
        if max(work.prefill_requests, work.decode_requests) > MAX_REQUESTS:
            raise ValueError(f"Costs go up to {MAX_REQUESTS} requests per iteration, not {work}.")
        table = self.table(service, tensor_parallel)
        seconds = work_seconds(table, work)
        fixed_s = min(seconds, float(table.shared_s[0]))
        return fixed_s + (seconds - fixed_s) / gpu_share

    def load_s(self, service: ServiceId, tensor_parallel: int) -> float:
        """Seconds to load the weights and set up communication."""
        for profile in self._measured(service, tensor_parallel):
            if profile.load_s is not None:
                return profile.load_s
        return roofline_load_s(model_facts(service), tensor_parallel, self._calibration)

    def kv_blocks(self, service: ServiceId, tensor_parallel: int) -> int:
        """KV blocks beside the weights; 0 if they do not fit or the heads cannot be split."""
        facts = model_facts(service)
        if facts.attention_heads % tensor_parallel:
            return 0
        for profile in self._measured(service, tensor_parallel):
            if profile.kv_blocks is not None:
                # only the share of the memory differs from the measured configuration
                share = self.memory_share - MEASURED_MEMORY_SHARE
                block_bytes = facts.kv_bytes_per_gpu(tensor_parallel) * profile.block_tokens
                more = math.floor(round(share * self._facts.memory_bytes / block_bytes, 6))
                return max(0, profile.kv_blocks + more)
        return roofline_kv_blocks(
            facts, self._facts, tensor_parallel, self._calibration, self.memory_share
        )

    def block_tokens(self, service: ServiceId) -> int:
        """Tokens of one KV block."""
        model_facts(service)
        return self._calibration.block_tokens

    def label(self, service: str, tensor_parallel: int) -> str:
        """Where the iteration costs come from: measured, measured on another model, or roofline."""
        profile = self._iteration(service, tensor_parallel)
        if profile.kind != "measured" or profile.model == model_of(service):
            return profile.kind
        return f"measured on {profile.model}"

    def error(self, service: str, tensor_parallel: int) -> Mapping[str, float]:
        """Relative errors of whole iterations on what the fit had not seen, by phase."""
        return self._iteration(service, tensor_parallel).error

    def outside_validity(self, service: str, tensor_parallel: int, work: Work) -> str | None:
        """Sentence on the first quantity outside the measured range; None if all are inside."""
        valid = self._iteration(service, tensor_parallel).valid
        context = work.context_tokens if work.decode_requests else 0
        asked = {
            "requests": max(work.prefill_requests, work.decode_requests),
            "prefill_tokens": work.prefill_tokens if work.prefill_requests else 0,
            "context_tokens": context,
            "longest": work.longest_tokens if work.decode_requests else 0,
        }
        for name, value in asked.items():
            low, high = valid.get(name, (0, value))
            if value and not low <= value <= high:
                return (
                    f"{service} at tensor parallel {tensor_parallel} was measured at {low:,} to "
                    f"{high:,} {name}, not at {value:,}."
                )
        return None

    @property
    def _folder(self) -> Path:
        return PROFILES / self.profile_dir

    @property
    def _calibration(self) -> Calibration:
        return read_calibration(self._folder)

    def _measured(self, service: str, tensor_parallel: int) -> Iterator[Profile]:
        """Profiles of this GPU that may stand for the service, its own first."""
        for name in (model_of(service), model_facts(service).same_architecture_as):
            profile = self._profiles.get((name, tensor_parallel))
            if profile is not None and profile.gpu == self.gpu:
                yield profile

    def _iteration(self, service: str, tensor_parallel: int) -> Profile:
        for profile in self._measured(service, tensor_parallel):
            if profile.decode:
                return profile
        return roofline_profile(
            model_facts(service), self._facts, tensor_parallel, self._calibration
        )


def _costs(gpu: str, profile_dir: str, memory_share: float, parts: tuple[str, ...]) -> ProfileCosts:
    return ProfileCosts(gpu=gpu, profile_dir=profile_dir, memory_share=memory_share, parts=parts)
