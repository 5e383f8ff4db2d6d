"""Seconds of an iteration and of a load, from measured profiles or else a roofline.

A profile gives, per phase, component and coefficient, values at knots of the number of requests.
`ProfileCosts` adds the components up into one `IterationTable`, which compiled code reads.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from harness import inputs
from harness.costs.gpu_facts import GpuFacts, gpu_facts
from harness.costs.iteration import MAX_REQUESTS, IterationTable, expand, work_seconds
from harness.costs.model_facts import model_facts, model_of
from harness.costs.profiles import MEASURED_MEMORY_SHARE, Profile, read_profiles
from harness.costs.roofline import (
    Calibration,
    read_calibration,
    roofline_kv_blocks,
    roofline_load_s,
    roofline_profile,
)
from harness.interface.entities import ServiceId, Work
from harness.interface.policies import CostModel
from harness.paths import PROFILES

PARTS = ("forward", "prepare", "sample", "other")


class TableCosts(CostModel, Protocol):
    """Costs that compiled code can read."""

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Coefficients of an iteration by its number of requests."""


class ProfileCosts:
    """`CostModel` from the profiles of one folder under `harness/profiles`.

    What was not measured for a model and tensor-parallel size on `gpu` (iterations, load, KV
    blocks, each for itself) is taken from a model of the same architecture, else from the
    roofline; `label` says which. `memory_share` (0..1) of the GPU memory holds weights,
    activations and KV. `parts` are the components an iteration consists of; a planner may
    leave out "other" (arXiv 2503.16893 sec. 5.5). Replicas of a service that start loading at the
    same time share the host's disk and buses: each takes `replica_start_s` longer for every other
    one. Raises ValueError for unknown names and for negative seconds.
    """

    def __init__(
        self,
        *,
        gpu: str,
        profile_dir: str,
        memory_share: float,
        parts: tuple[str, ...],
        replica_start_s: float = 0.0,
    ) -> None:
        if not replica_start_s >= 0.0:
            raise ValueError(f"hardware.replica_start_s is {replica_start_s}, it must be 0 or more")
        if not 0.0 < memory_share <= 1.0:
            raise ValueError(f"A memory share lies between 0 and 1, not {memory_share}.")
        self.gpu = gpu
        self.profile_dir = profile_dir
        self.memory_share = memory_share
        self.parts = tuple(parts)
        self.replica_start_s = replica_start_s
        self._facts: GpuFacts = gpu_facts(gpu, self._folder)
        self._tables: dict[tuple[str, int], IterationTable] = {}
        self._profiles = read_profiles(self._folder)
        measured_on = {profile.gpu for profile in self._profiles.values()}
        if measured_on and gpu not in measured_on:
            raise ValueError(
                f"hardware.profile={profile_dir} holds costs of {', '.join(sorted(measured_on))}, "
                f"not of hardware.gpu={gpu}; hardware.profile=roofline has estimates for any GPU"
            )
        unknown = [part for part in self.parts if part not in PARTS]
        if unknown:
            raise ValueError(f"An iteration has the parts {PARTS}, not {unknown[0]!r}.")

    def __reduce__(self) -> tuple[Callable[..., "ProfileCosts"], tuple[object, ...]]:
        """Pickle the settings only; tables are built again where they are needed."""
        return _costs, (*self._machine, self.parts)

    @property
    def memory_bytes(self) -> int:
        """Memory of one GPU, by the facts that the folder keeps or the list has."""
        return self._facts.memory_bytes

    @property
    def files(self) -> dict[str, str]:
        """The folder's files by name, with their sha256."""
        return inputs.digests(self._folder.glob("*.json"))

    def with_parts(self, parts: tuple[str, ...]) -> "ProfileCosts":
        """The same profiles with other components in an iteration."""
        return _costs(*self._machine, parts)

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

    def load_s(self, service: ServiceId, tensor_parallel: int, *, replicas: int = 1) -> float:
        """Seconds to load the weights and set up communication, of each of so many replicas."""
        further_s = self.replica_start_s * (replicas - 1)
        for profile in self._measured(service, tensor_parallel):
            if profile.load_s is not None:
                return profile.load_s + further_s
        alone_s = roofline_load_s(model_facts(service), tensor_parallel, self._calibration)
        return alone_s + further_s

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

    def measured_ranges(self, service: str, tensor_parallel: int) -> Mapping[str, tuple[int, int]]:
        """Smallest and largest measured value of each quantity; none of a roofline."""
        return self._iteration(service, tensor_parallel).valid

    def outside_validity(self, service: str, tensor_parallel: int, work: Work) -> str | None:
        """Sentence on the first quantity outside the measured range; None if all are inside."""
        valid = self.measured_ranges(service, tensor_parallel)
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
    def _machine(self) -> tuple[str, str, float, float]:
        """Everything but the parts of an iteration."""
        return self.gpu, self.profile_dir, self.memory_share, self.replica_start_s

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


def _costs(
    gpu: str, profile_dir: str, memory_share: float, replica_start_s: float, parts: tuple[str, ...]
) -> ProfileCosts:
    return ProfileCosts(
        gpu=gpu,
        profile_dir=profile_dir,
        memory_share=memory_share,
        parts=parts,
        replica_start_s=replica_start_s,
    )
