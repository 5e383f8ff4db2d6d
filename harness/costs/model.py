"""Seconds of an iteration and of a load: of a measured profile, of kernels, or of a roofline.

A profile gives, per phase, component and coefficient, values at knots of the number of requests.
`ProfileCosts` adds the components up into one `IterationTable`, which compiled code reads.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from harness.config import inputs
from harness.config.paths import PROFILES
from harness.costs.engine_kinds import ENGINES, PROFILE_ENGINE, EngineKind, engine_kind
from harness.costs.forward import BLOCK_TOKENS, kernel_profile
from harness.costs.gpu_facts import GPUS, OWN_FACTS, gpu_facts, load_gpus
from harness.costs.iteration import (
    MAX_REQUESTS,
    IterationTable,
    expand,
    share_seconds,
    work_seconds,
)
from harness.costs.kernels import FORMULA, Kernels, table_path
from harness.costs.kv_room import KvRoom, Limits, kv_sentence, server_room
from harness.costs.loading import Loading
from harness.costs.machine_settings import refuse_gpu, refuse_settings
from harness.costs.model_facts import (
    MODELS,
    WINDOW_AT_TOKENS,
    ModelFacts,
    load_models,
    matrices_of,
    model_facts,
)
from harness.costs.model_names import is_config, model_of
from harness.costs.profiles import (
    CALIBRATION,
    MEASURED_MEMORY_SHARE,
    Profile,
    Received,
    SmShares,
    calibration_path,
    profile_paths,
    read_profiles,
    shares_of_shape,
)
from harness.costs.roofline import (
    Calibration,
    read_calibration,
    roofline_kv_blocks,
    roofline_load_s,
    roofline_profile,
)
from harness.costs.served_errors import SERVED_ERRORS, served_error
from harness.costs.splitting import DEGREES, remedy, unfit_because, unsplit_because
from harness.costs.states import block_tokens, most_running, state_blocks
from harness.interface.entities import ServiceId, Work
from harness.interface.policies import CostModel
from harness.interface.tables import Floats, Ints

ENGINE = "engine "
"""How the label of seconds of kernels begins."""
PARTS = ("forward", "prepare", "sample", "other")


class TableCosts(CostModel, Protocol):
    """Costs that compiled code can read."""

    def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
        """Coefficients of an iteration by its number of requests."""

    def received_s(self, service: ServiceId, tensor_parallel: int) -> Received:
        """Seconds to take requests in, between two iterations: nothing is computed meanwhile."""


class ProfileCosts:
    """`CostModel` of a kind of `engine` on one GPU.

    A kind whose costs are a profile's takes those of one folder under `harness/profiles`. What was
    not measured for a model and tensor-parallel size on `gpu` (iterations, load, KV blocks, each
    for itself) is taken from a model of the same architecture, else from the roofline. Any other
    kind takes what the folder has of this kind of engine, else the kernels of the GPU with the
    terms of the kind; where there is no table of kernels and `roofline`, formulas of kernels.
    `label` says which. `expert_parallel` puts whole experts on each GPU of a group.
    `kv_number_bytes`, if given, are those of a number in KV. `memory_share` (0..1) of the GPU
    memory holds weights, activations and KV. `parts` are the components an iteration consists of; a
    planner may leave out "other" (arXiv 2503.16893 sec. 5.5). Replicas of a service that start
    loading at the same time share the host's disk and buses: each takes `replica_start_s` longer
    for every other one. `engine_start_s` and `weights_bytes_per_s`, if given, are what an engine
    takes before it reads weights and the rate at which it reads them, in the place of the measured
    ones. `kv_bytes` of each GPU for KV, if given, come in the place of what `memory_share` leaves,
    and `block_tokens` in the place of the measured engine's. Sliding windows count as in requests
    of `window_at_tokens`, and `state_requests` running requests have their states of layers without
    KV set aside. A server has the `limits`: tokens of an iteration, running requests (None: vLLM's
    defaults on the GPU). Iterations, and taking requests in between them, are `scale_seconds` times
    as long as all of that says; loads and what comes before the scheduler are not. What prompts add
    to iterations is `scale_prompt_seconds` times longer still. What shares of the SMs cost is
    measured in `sm_share_profile`, a folder like `profile_dir` and for the same GPU, where that has
    nothing of it. Raises ValueError for unknown names and for negative seconds.
    """

    def __init__(
        self,
        *,
        gpu: str,
        profile_dir: str,
        memory_share: float,
        parts: tuple[str, ...],
        replica_start_s: float = 0.0,
        engine_start_s: float | None = None,
        weights_bytes_per_s: float | None = None,
        kv_bytes: int | None = None,
        block_tokens: int | None = None,
        window_at_tokens: int = WINDOW_AT_TOKENS,
        sm_share_profile: str | None = None,
        engine: str | EngineKind = PROFILE_ENGINE,
        roofline: bool = False,
        expert_parallel: bool = False,
        kv_number_bytes: int | None = None,
        limits: Limits = (None, None),
        state_requests: int = 0,
        scale_seconds: float = 1.0,
        scale_prompt_seconds: float = 1.0,
    ) -> None:
        engine = engine_kind(engine) if isinstance(engine, str) else engine
        self._machine = {k: v for k, v in locals().items() if k not in ("self", "parts")}
        self.gpu, self.profile_dir, self.memory_share = gpu, profile_dir, memory_share
        self.parts, self.replica_start_s, self.limits = tuple(parts), replica_start_s, limits
        self.given_start_s, self.given_weights_bytes_per_s = engine_start_s, weights_bytes_per_s
        self.given_kv_bytes, self.given_block_tokens = kv_bytes, block_tokens
        self.window_at_tokens, self.sm_share_profile = window_at_tokens, sm_share_profile
        self.engine, self.roofline, self.expert_parallel = engine, roofline, expert_parallel
        self.kv_number_bytes, self.state_requests = kv_number_bytes, state_requests
        self.scale_seconds, self.scale_prompt_seconds = scale_seconds, scale_prompt_seconds
        refuse_settings(self._machine)
        self._facts, self._profiles = gpu_facts(gpu, self._folder), read_profiles(self._folder)
        self._iterations: dict[tuple[str, int], Profile] = {}
        self._tables: dict[tuple[str, int], IterationTable] = {}  # services of a model share them
        self._shares: dict[tuple[str, int], SmShares | None] = {}
        self._calibration: Calibration = read_calibration(self._folder)
        self._refuse_names()

    def _refuse_names(self) -> None:
        """Raise ValueError for a GPU that was not measured, and for unknown parts."""
        profiles = self._profiles.values()
        is_known = table_path(self._facts) is not None or self.roofline or self._is_calibrated
        has_kernels = is_known or any(map(self._is_of_engine, profiles))
        measured_on = {profile.gpu for profile in profiles}
        refuse_gpu(self._machine, measured_on, has_kernels=has_kernels)
        unknown = [part for part in self.parts if part not in PARTS]
        if unknown:
            raise ValueError(f"An iteration has the parts {PARTS}, not {unknown[0]!r}.")

    def __reduce__(self) -> tuple[Callable[..., "ProfileCosts"], tuple[object, ...]]:
        """Pickle the settings alone, `_machine`; tables are built again where they are needed."""
        return partial(ProfileCosts, **self._machine, parts=self.parts), ()

    def files(self, models: Iterable[str]) -> dict[str, str]:
        """What the costs of these models follow from, by name, with its sha256.

        Profiles of the models and of those that stand in for them, roofline, kernels, and of the
        lists of models and GPUs the entries of these.
        """
        names = {name for model in models for name in self._stand_ins(model)}
        paths = profile_paths(self._folder)
        files = [calibration_path(self._folder), *(paths[it] for it in names if it in paths)]
        if (own_facts := self._folder / OWN_FACTS).is_file():
            files.append(own_facts)
        if self.sm_share_profile is not None:
            shares = profile_paths(PROFILES / self.sm_share_profile)
            files += shares.values()
            names |= shares.keys()
        return {
            **inputs.digests([*files, *self._engine_files()]),
            **inputs.rows(MODELS, names & load_models().keys()),
            **inputs.rows(GPUS, {self.gpu} & load_gpus().keys()),
        }

    def _engine_files(self) -> list[Path]:
        """What the kind of engine reads."""
        files = [ENGINES / f"{self.engine.name}.json"]
        if self.engine.costs == "kernels":
            table = table_path(self._facts)
            files += [SERVED_ERRORS, FORMULA, *([] if table is None else [table])]
        return files

    def with_parts(self, parts: tuple[str, ...]) -> "ProfileCosts":
        """The same profiles with other components in an iteration."""
        return ProfileCosts(**self._machine, parts=parts)

    def table(self, service: str, tensor_parallel: int) -> IterationTable:
        """Coefficients of an iteration of up to `MAX_REQUESTS` requests. Built once."""
        key = model_of(service), tensor_parallel
        if key not in self._tables:
            table = expand(self._iteration(*key), self.parts)
            self._tables[key] = table.scaled(self.scale_seconds, self.scale_prompt_seconds)
        return self._tables[key]

    def iteration_s(
        self, service: ServiceId, tensor_parallel: int, work: Work, *, gpu_share: float = 1.0
    ) -> float:
        """Seconds of one iteration.

        On a share of the SMs, prefill and decode each take so much longer as was measured; where
        it was not, what exceeds the fixed cost of an iteration takes 1/share as long: our choice.
        Raises ValueError for more than `MAX_REQUESTS` requests.
        """
        if max(work.prefill_requests, work.decode_requests) > MAX_REQUESTS:
            raise ValueError(f"Costs go up to {MAX_REQUESTS} requests per iteration, not {work}.")
        table = self.table(service, tensor_parallel)
        seconds = work_seconds(table, work)
        if gpu_share == 1.0:
            return seconds
        if (measured := self.sm_shares(service, tensor_parallel)) is not None:
            return share_seconds(measured, table, work, gpu_share)
        fixed_s = min(seconds, float(table.shared_s[0]))
        return fixed_s + (seconds - fixed_s) / gpu_share

    def sm_shares(self, service: str, tensor_parallel: int) -> SmShares | None:
        """What shares of the SMs cost, as measured on the model or one of its shape; else None."""
        key = model_of(service), tensor_parallel
        if key not in self._shares:
            found, folder = self._iteration(*key).sm_shares, self.sm_share_profile
            if found is None and folder is not None:
                found = shares_of_shape(PROFILES / folder, self.gpu, *key)
            self._shares[key] = found
        return self._shares[key]

    def intake_s(self, service: ServiceId, prompt_tokens: Ints) -> Floats:
        """Seconds of an engine's front end before its scheduler has each request."""
        term = self.engine.value
        seconds = term("intake_s") + term("intake_token_s") * prompt_tokens
        return np.asarray(seconds, np.float64)

    def received_s(self, service: ServiceId, tensor_parallel: int) -> Received:
        """As the profile of the iterations has it; 0 where that has none, and of a roofline."""
        first_s, more_s = self._iteration(service, tensor_parallel).received_s
        return Received(first_s * self.scale_seconds, more_s * self.scale_seconds)

    def load_s(self, service: ServiceId, tensor_parallel: int, *, replicas: int = 1) -> float:
        """Seconds to load the weights and set up communication, of each of so many replicas."""
        measured_s = self._measured_load_s(service, tensor_parallel)
        return self._loading.load_s(self._model(service).weight_bytes, measured_s, replicas)

    def start_s(self, service: ServiceId, tensor_parallel: int) -> float:
        """Seconds of a load beside reading weights, as given, or else of the measured load."""
        measured_s = self._measured_load_s(service, tensor_parallel)
        return self._loading.before_reading_s(self._model(service).weight_bytes, measured_s)

    @property
    def _loading(self) -> Loading:
        return Loading(
            replica_start_s=self.replica_start_s,
            start_s=self.given_start_s,
            bytes_per_s=self.given_weights_bytes_per_s,
            read_bytes_per_s=self._calibration.load_bytes_per_s,
        )

    def _measured_load_s(self, service: ServiceId, tensor_parallel: int) -> float:
        """Seconds of a load as measured, or estimated."""
        for profile in self._measured(service, tensor_parallel):
            if profile.load_s is not None:
                return profile.load_s
        return roofline_load_s(self._model(service), tensor_parallel, self._calibration)

    def kv_blocks(self, service: ServiceId, tensor_parallel: int) -> int:
        """KV blocks beside weights and states; 0 if they do not fit or cannot be split."""
        facts = self._model(service)
        if self._unsplit_because(facts, tensor_parallel):
            return 0
        block_tokens = self.block_tokens(service)
        if self.given_kv_bytes is not None:
            block_bytes = facts.kv_bytes_per_gpu(tensor_parallel) * block_tokens
            found = self._given_kv([service], tensor_parallel) // block_bytes
        else:
            blocks, of_tokens = self._blocks_beside_weights(facts, service, tensor_parallel)
            found = blocks * of_tokens // block_tokens
        held = self.state_requests * state_blocks(facts, block_tokens)
        return max(0, found - math.ceil(held))

    def _unsplit_because(self, facts: ModelFacts, tensor_parallel: int) -> str:
        return unsplit_because(facts, tensor_parallel, expert_parallel=self.expert_parallel)

    def unfit_because(self, service: ServiceId, tensor_parallel: int) -> str:
        """Why a model has no KV on so many GPUs, and on how many it has some."""
        facts = self._model(service)
        if why := self._unsplit_because(facts, tensor_parallel):
            return why
        more = next(
            (it for it in DEGREES if it > tensor_parallel and self.kv_blocks(service, it)), 0
        )
        tokens = self.kv_blocks(service, more) * self.block_tokens(service) if more else 0
        return unfit_because(
            facts.weight_bytes / tensor_parallel,
            memory_bytes=self._facts.memory_bytes,
            memory_share=self.memory_share,
            given_kv_bytes=self.given_kv_bytes,
            remedy=remedy(more, tokens),
        )

    def kv_bytes(self, services: Collection[ServiceId], tensor_parallel: int) -> int:
        """Bytes of KV of a whole group beside the weights of all these; 0 where they do not fit.

        What each would leave beside its own weights, less the weights of the others; the least of
        these counts.
        """
        blocks = {service: self.kv_blocks(service, tensor_parallel) for service in services}
        if not all(blocks.values()):
            return 0
        if self.given_kv_bytes is not None and len(blocks) > 1:
            return self._given_kv(services, tensor_parallel) * tensor_parallel
        facts = {service: self._model(service) for service in services}
        weight_bytes = sum(one.weight_bytes for one in facts.values())
        tokens = {service: count * self.block_tokens(service) for service, count in blocks.items()}
        least_bytes = min(
            tensor_parallel * one.kv_bytes_per_gpu(tensor_parallel) * tokens[it] + one.weight_bytes
            for it, one in facts.items()
        )
        return max(0, least_bytes - weight_bytes)

    def _given_kv(self, services: Collection[ServiceId], tensor_parallel: int) -> int:
        """Bytes of each GPU that are given for KV; 0 where the weights leave less."""
        assert self.given_kv_bytes is not None
        weight_bytes = sum(self._model(service).weight_bytes for service in services)
        left = self._facts.memory_bytes - weight_bytes / tensor_parallel
        return self.given_kv_bytes if self.given_kv_bytes <= left else 0

    def _blocks_beside_weights(
        self, facts: ModelFacts, service: ServiceId, tensor_parallel: int
    ) -> tuple[int, int]:
        """KV blocks that `memory_share` leaves, and the tokens of each."""
        token_bytes = facts.kv_bytes_per_gpu(tensor_parallel)
        for profile in self._measured(service, tensor_parallel):
            if profile.kv_blocks is not None and self._is_of_engine(profile):
                # only the share of the memory differs from the measured configuration
                share = self.memory_share - MEASURED_MEMORY_SHARE
                block_bytes = token_bytes * profile.block_tokens
                more = math.floor(round(share * self._facts.memory_bytes / block_bytes, 6))
                return max(0, profile.kv_blocks + more), profile.block_tokens
        if self.engine.costs == "kernels":
            left_bytes = self.memory(service, tensor_parallel).kv_bytes
            return left_bytes // (token_bytes * BLOCK_TOKENS), BLOCK_TOKENS
        known = self._facts, tensor_parallel, self._calibration, self.memory_share
        return roofline_kv_blocks(facts, *known), self._calibration.block_tokens

    def memory(self, service: ServiceId, tensor_parallel: int) -> KvRoom:
        """What takes the memory of each GPU of a group, as vLLM counts it, and the KV left."""
        model, version = self._model(service), self.engine.version
        return server_room(
            model, self._facts, tensor_parallel, self.memory_share, version, self.limits
        )

    def block_tokens(self, service: ServiceId) -> int:
        """Tokens of one KV block; of a model with states, so many that a page holds one."""
        holds_state = block_tokens(self._model(service))
        return self.given_block_tokens or holds_state or self._calibration.block_tokens

    def most_running(
        self, service: ServiceId, tensor_parallel: int, context_tokens: int, longest_tokens: int
    ) -> int | None:
        """Requests at once that have room for states and KV; see `states.most_running`."""
        facts, tokens = self._model(service), self.block_tokens(service)
        blocks = self.kv_blocks(service, tensor_parallel)
        return most_running(facts, blocks, tokens, context_tokens, longest_tokens)

    def label(self, service: str, tensor_parallel: int) -> str:
        """Where the iteration costs come from, with what the facts of the model assume."""
        label = self._profile_label(service, tensor_parallel)
        for what, factor in (("", self.scale_seconds), (" for prompts", self.scale_prompt_seconds)):
            if factor != 1.0:
                label += f"; seconds of iterations{what} x {factor:g}"
        return label

    def _profile_label(self, service: str, tensor_parallel: int) -> str:
        profile = self._iteration(service, tensor_parallel)
        if profile.basis:
            said = [profile.basis, *self._model(service).assumptions]
            if self.given_kv_bytes is None:
                blocks = self.kv_blocks(ServiceId(service), tensor_parallel)
                tokens = blocks * self.block_tokens(ServiceId(service))
                said.append(kv_sentence(tokens, self.engine.version, self.limits))
            return "; ".join(said)
        if profile.kind != "measured" or profile.model == model_of(service):
            return "; ".join([profile.kind, *self._model(service).assumptions])
        return f"measured on {profile.model}"

    def error(self, service: str, tensor_parallel: int) -> Mapping[str, float]:
        """Relative errors of whole iterations on what the fit had not seen, by phase."""
        return self._iteration(service, tensor_parallel).error

    def measured_ranges(self, service: str, tensor_parallel: int) -> Mapping[str, tuple[int, int]]:
        """Smallest and largest measured value of each quantity; none of a roofline."""
        return self._iteration(service, tensor_parallel).valid

    @property
    def _folder(self) -> Path:
        return PROFILES / self.profile_dir

    def _model(self, service: str) -> ModelFacts:
        """Facts of a service's model, its windows as these costs count them."""
        facts = model_facts(service)
        if self.kv_number_bytes is not None:
            facts = replace(facts, kv_number_bytes=self.kv_number_bytes)
        if not facts.kinds:
            return facts
        return replace(
            facts, window_at_tokens=self.window_at_tokens, state_requests=self.state_requests
        )

    def _measured(self, service: str, tensor_parallel: int) -> Iterator[Profile]:
        """Profiles of this GPU that may stand for the service, its own first.

        For a model that is known by its config alone, those of models with equal matrices.
        """
        for name in self._stand_ins(service):
            profile = self._profiles.get((name, tensor_parallel))
            if profile is not None and profile.gpu == self.gpu:
                yield profile

    def _stand_ins(self, service: str) -> list[str]:
        """Models whose profiles may stand for the service, its own first."""
        own, facts = model_of(service), self._model(service)
        names = [own, facts.same_architecture_as]
        if is_config(own):
            matrices, known = matrices_of(facts), sorted({name for name, _ in self._profiles})
            names += [name for name in known if matrices_of(self._model(name)) == matrices]
        return names

    def _iteration(self, service: str, tensor_parallel: int) -> Profile:
        key = model_of(service), tensor_parallel
        if key not in self._iterations:
            self._iterations[key] = self._find_iteration(*key)
        return self._iterations[key]

    def _find_iteration(self, service: str, tensor_parallel: int) -> Profile:
        model = self._model(service)
        for profile in self._measured(service, tensor_parallel):
            if profile.decode and self._is_of_engine(profile):
                return profile
        if self.engine.costs == "profile" or self._is_calibrated:
            return roofline_profile(model, self._facts, tensor_parallel, self._calibration)
        kernels = self.kernels(tensor_parallel)
        profile = kernel_profile(model, kernels, self.engine)
        said, error = self.engine.checked, self.engine.error
        if not said:
            said, error = served_error(
                model,
                self.gpu,
                tensor_parallel,
                expert_parallel=self.expert_parallel,
                is_roofline=kernels.lacks_kernels,
            )
        basis = f"{ENGINE}{self.engine.name} on {kernels.basis}: {said.replace('; ', ', ')}"
        return replace(profile, basis="; ".join([basis, *kernels.notes]), error=error)

    @property
    def _is_calibrated(self) -> bool:
        """Whether the folder has a roofline of its own machine, of which there are no kernels."""
        own = bool(self._profiles) and (self._folder / CALIBRATION).is_file()
        return own and table_path(self._facts) is None

    def _is_of_engine(self, profile: Profile) -> bool:
        """Whether a profile was measured on the kind of engine that is asked for."""
        return self.engine.costs == "profile" or profile.engine_kind == self.engine.name

    def require(self, model: str) -> None:
        """Raise ValueError for a model of which the GPU lacks kernels, or that has no experts."""
        if self.expert_parallel and self._model(model).experts == 1:
            raise ValueError(f"hardware.expert_parallel=true: {model} has no experts")
        self._iteration(model_of(model), 1)

    def kernels(self, tensor_parallel: int) -> Kernels:
        """Kernels of a group of so many GPUs."""
        return Kernels(self._facts, tensor_parallel, self.expert_parallel, roofline=self.roofline)
