"""A cost profile as it is stored: coefficients at knots, source, error, range of validity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from harness.config import inputs
from harness.config.names import unknown_name
from harness.config.paths import PROFILES
from harness.config.schema import Count, NotNegative, Schema, Seconds, Tokens, one_of, read_json
from harness.costs.gpu_facts import OWN_FACTS
from harness.costs.model_facts import load_models, model_facts, shape_of

Floats = NDArray[np.float64]
Coefficients = Mapping[str, tuple[float, ...]]
Phase = Mapping[str, Coefficients]

COMPONENTS = ("forward", "prepare", "sample", "other")
COEFFICIENTS = (
    "base_s",
    "per_context_s",
    "per_padded_s",
    "per_token_s",
    "per_padded_token_s",
    "per_attended_s",
)
Component = Annotated[str, one_of(*COMPONENTS)]
Coefficient = Annotated[str, one_of(*COEFFICIENTS)]
PhaseName = Annotated[str, one_of("prefill", "decode")]
Quantity = Annotated[str, one_of("requests", "prefill_tokens", "context_tokens", "longest")]
Percent = Annotated[int, Field(ge=1, le=99)]
Factor = Annotated[float, Field(gt=0.0, le=1e3)]
StoredPhase = Mapping[Component, Mapping[Coefficient, tuple[Seconds, ...]]]

MEASURED_MEMORY_SHARE = 0.9  # of GPU memory, at which the KV blocks of a profile were counted

CALIBRATION = "roofline.json"  # what is in no profile follows it

# Loads were measured on two machines; 2503.16893 sec. 5 ran on the later one.
LATER_MACHINE = "second machine (8 x A100-80G)"


COUNTED = {"prefill": "tokens", "decode": "requests"}
"""What the slowdown of each phase goes by."""


@dataclass(frozen=True, slots=True)
class SmShares:
    """Seconds over those on all SMs, by phase: a row per share, a column per count.

    `counts` are prompt tokens of a prefill and requests of a decode. They and the `shares` (0..1)
    ascend; the last share is 1, whose row is of ones. `model` is the one that was measured.
    """

    model: str
    shares: Floats
    counts: Mapping[str, Floats]
    slowdown: Mapping[str, Floats]

    def at(self, phase: str, count: int, share: float) -> float:
        """Of prefill or decode, linear between what was measured, in the log of the count.

        Below the least share measured, so much longer as there are fewer SMs: our choice.
        """
        measured = np.log(self.counts[phase])
        of_share = [np.interp(np.log(count), measured, row) for row in self.slowdown[phase]]
        least = float(self.shares[0])
        return float(np.interp(share, self.shares, of_share)) * max(1.0, least / share)


def sm_shares_from(model: str, raw: Mapping[str, Any]) -> SmShares | None:
    """What a profile stores under `sm_share`, by percent of the SMs; None where it has nothing."""
    if not raw:
        return None
    percents = sorted(raw, key=int)
    counts, slowdown = {}, {}
    for phase, counted in COUNTED.items():
        # Not every count was measured on every share.
        common = sorted(set.intersection(*(set(raw[percent][counted]) for percent in percents)))
        rows = [_at(raw[percent][counted], raw[percent][phase], common) for percent in percents]
        counts[phase] = np.array(common, np.float64)
        slowdown[phase] = np.array([*rows, [1.0] * len(common)])
    shares = np.array([*(int(percent) / 100 for percent in percents), 1.0])
    return SmShares(model, shares, counts, slowdown)


def _at(counts: list[int], row: list[float], wanted: list[int]) -> list[float]:
    """The entries of a row at some of its counts."""
    by_count = dict(zip(counts, row, strict=True))
    return [by_count[count] for count in wanted]


class Received(NamedTuple):
    """Seconds to take a request in: the first between two iterations, and each further one."""

    first_s: float
    more_s: float


NOTHING_RECEIVED = Received(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Costs of one model at one tensor-parallel size.

    `prefill` and `decode` map a component (forward, prepare, sample, other) to coefficients
    (`base_s`, `per_context_s`, ...), each a tuple along `knots_requests`; both are empty where
    iterations were not measured, as `load_s` and `kv_blocks` are None. `step_s` along
    `step_knots_tokens` is `IterationTable.prefill_step_s`, part of the forward pass. `valid` holds
    the smallest and largest measured value of each quantity, `error` the relative errors.
    `basis` is a sentence on how far the seconds are from measured servers, where these are known.
    `engine_kind` names the kind of engine that was measured, where it is one of today's.
    `sm_shares` is None where iterations were measured on all SMs only. `experts_s`, along
    `step_knots_tokens`, is what so many tokens read of experts beyond those of one token: prefill
    and decode of one iteration read them once; empty where there are none or it was not measured.
    `shared_s`, along the same knots, is all that prompts and so many decodes of one iteration have
    in common (`IterationTable.shared_s`), in the place of the cost of one and of `experts_s`.
    `received_s` is what taking requests in takes between two iterations, in which nothing is
    computed; nothing where that was not measured.
    """

    model: str
    gpu: str
    engine: str
    kind: str
    source: str
    tensor_parallel: int
    knots_requests: tuple[int, ...]
    prefill: Phase
    decode: Phase
    block_tokens: int
    step_knots_tokens: tuple[int, ...] = (0,)
    step_s: tuple[float, ...] = (0.0,)
    load_s: float | None = None
    load_source: str = ""
    received_s: Received = NOTHING_RECEIVED
    kv_blocks: int | None = None
    valid: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    error: Mapping[str, float] = field(default_factory=dict)
    sm_shares: SmShares | None = None
    experts_s: tuple[float, ...] = ()
    shared_s: tuple[float, ...] = ()
    engine_kind: str = ""
    basis: str = ""


class _Share(Schema):
    """How much longer a share of the SMs takes: prefills along tokens, decodes along requests."""

    tokens: tuple[Count, ...]
    prefill: tuple[Factor, ...]
    requests: tuple[Count, ...]
    decode: tuple[Factor, ...]


class _Size(Schema):
    """One tensor-parallel size in a file."""

    knots_requests: tuple[Count, ...] = ()
    prefill: StoredPhase = Field(default_factory=dict)
    decode: StoredPhase = Field(default_factory=dict)
    step_knots_tokens: tuple[Tokens, ...] = (0,)
    step_s: tuple[Annotated[float, Field(ge=-1e6, le=1e6)], ...] = (0.0,)
    load_s: Seconds | None = None
    load_source: str = ""
    received_s: tuple[Seconds, Seconds] = NOTHING_RECEIVED
    kv_blocks: Tokens | None = None
    valid: Mapping[Quantity, tuple[Tokens, Tokens]] = Field(default_factory=dict)
    error: Mapping[str, NotNegative] = Field(default_factory=dict)
    rows: int = 0
    sm_share: Mapping[Percent, _Share] = Field(default_factory=dict)


class _File(Schema):
    """A file of a folder of profiles."""

    model: str
    gpu: str
    engine: str
    kind: str
    source: str
    block_tokens: Count
    knots_requests: tuple[Count, ...] = ()
    tensor_parallel: Mapping[Count, _Size]
    engine_kind: str = ""
    note: str = ""
    measured: Any = None
    sha256: str = ""

    @model_validator(mode="after")
    def _is_one_table(self) -> "_File":
        """Knots ascend, and every row is along them."""
        for size, entry in self.tensor_parallel.items():
            place = f"tensor_parallel.{size}"
            knots = entry.knots_requests or self.knots_requests
            if entry.decode or entry.prefill:
                require_ascending(f"{place}.knots_requests", knots, least=2)
            require_ascending(f"{place}.step_knots_tokens", entry.step_knots_tokens, least=1)
            require_length(f"{place}.step_s", entry.step_s, len(entry.step_knots_tokens))
            for phase in ("prefill", "decode"):
                _require_rows(f"{place}.{phase}", getattr(entry, phase), len(knots))
            if bool(entry.prefill) != bool(entry.decode):
                raise ValueError(f"{place} has only one of prefill and decode")
            for name, (low, high) in entry.valid.items():
                if low > high:
                    raise ValueError(f"{place}.valid.{name}=[{low}, {high}] does not ascend")
            _require_no_time_back(place, entry)
            for percent, share in entry.sm_share.items():
                place = f"tensor_parallel.{size}.sm_share.{percent}"
                require_ascending(f"{place}.tokens", share.tokens, least=1)
                require_ascending(f"{place}.requests", share.requests, least=1)
                require_length(f"{place}.prefill", share.prefill, len(share.tokens))
                require_length(f"{place}.decode", share.decode, len(share.requests))
        return self


def _require_rows(place: str, phase: Phase, knots: int) -> None:
    if phase and (missing := sorted(set(COMPONENTS) - set(phase))):
        raise ValueError(f"{place} has no {missing[0]}")
    for component, coefficients in phase.items():
        for name, values in coefficients.items():
            require_length(f"{place}.{component}.{name}", values, knots)


def require_length(place: str, values: Sequence[float], wanted: int) -> None:
    """Raise ValueError, naming the place, for a row that is not as long as its knots."""
    if len(values) != wanted:
        raise ValueError(f"{place} has {len(values)} values for {wanted} knots")


def require_ascending(place: str, knots: Sequence[int], *, least: int) -> None:
    """Raise ValueError, naming the place, for too few knots and for such as do not ascend."""
    if len(knots) < least or any(one >= other for one, other in pairwise(knots)):
        raise ValueError(f"{place}={list(knots)!s:.60} must be at least {least}, ascending")


def _require_no_time_back(place: str, entry: _Size) -> None:
    """The step may be negative, since it corrects a line; a whole prompt may not."""
    if not entry.prefill:
        return
    first = {
        name: sum(part[name][0] for part in entry.prefill.values() if name in part)
        for name in ("base_s", "per_padded_token_s", "per_token_s", "per_attended_s")
    }
    for tokens, step_s in zip(entry.step_knots_tokens, entry.step_s, strict=True):
        line_s = first["base_s"] + tokens * (first["per_padded_token_s"] + first["per_token_s"])
        if line_s + first["per_attended_s"] * tokens**2 + step_s < 0:
            raise ValueError(
                f"{place}.step_s={step_s}: a prompt of {tokens} tokens takes below 0 s"
            )


@cache
def profile_paths(folder: Path) -> Mapping[str, Path]:
    """The file of each model that a folder has a profile of."""
    paths = (path for path in sorted(folder.glob("*.json")) if path.name != CALIBRATION)
    read = {path: read_json(path, dict[str, Any]) for path in paths if path.name != OWN_FACTS}
    return {str(raw["model"]): path for path, raw in read.items()}


@cache
def read_profiles(folder: Path) -> Mapping[tuple[str, int], Profile]:
    """All profiles of a folder by model and tensor-parallel size. ValueError if it is missing."""
    if not folder.is_dir():
        raise ValueError(f"There is no folder of cost profiles {str(folder)!r}.")
    found: dict[tuple[str, int], Profile] = {}
    for path in sorted(folder.glob("*.json")):
        if path.name not in (CALIBRATION, OWN_FACTS):
            raw = read_json(path, _File).model_dump(exclude_unset=True)
            inputs.parted(path)
            if raw["model"] not in load_models():
                raise ValueError(f"{path}: {unknown_name('model', raw['model'], load_models())}")
            for size, entry in raw.pop("tensor_parallel").items():
                if (raw["model"], size) in found:
                    raise ValueError(f"{path}: model={raw['model']} is in another file too")
                found[raw["model"], size] = profile_from(raw, size, entry)
    return found


def shares_of_shape(folder: Path, gpu: str, model: str, tensor_parallel: int) -> SmShares | None:
    """What shares of the SMs cost in a folder, of any model of the same shape; None without one."""
    shape = shape_of(model_facts(model))
    for (name, size), profile in read_profiles(folder).items():
        is_like = size == tensor_parallel and profile.gpu == gpu
        if profile.sm_shares is not None and is_like and shape_of(model_facts(name)) == shape:
            return profile.sm_shares
    return None


def calibration_path(folder: Path) -> Path:
    """The roofline of a folder: its own, or else the one that is corrected for all engines."""
    own = folder / CALIBRATION
    return own if own.is_file() else PROFILES / "roofline" / CALIBRATION


@cache
def holds_profiles(folder: Path) -> bool:
    """Whether a folder has a roofline of its own, or a file like a profile."""
    files = sorted(folder.glob("*.json"))
    return (folder / CALIBRATION) in files or any(
        "tensor_parallel" in read_json(path, dict[str, Any]) for path in files
    )


def require_roofline(folder: Path, name: str) -> None:
    """Raise ValueError for a folder of something else than profiles; one that is missing passes."""
    if folder.is_dir() and not holds_profiles(folder):
        raise ValueError(
            f"hardware.profile={name} is no folder of cost profiles: it holds no {CALIBRATION} and "
            "no file with costs by tensor_parallel"
        )


def profile_from(
    shared: Mapping[str, Any], tensor_parallel: int, entry: Mapping[str, Any]
) -> Profile:
    """Profile of one size from what a file says of all sizes (`shared`) and of this one."""
    named = ("model", "gpu", "engine", "kind", "source", "block_tokens")
    found: dict[str, Any] = {name: shared[name] for name in named}
    found["engine_kind"] = shared.get("engine_kind", "")
    steps, loads = ("step_knots_tokens", "step_s"), ("load_s", "load_source")
    optional = (*steps, *loads, "kv_blocks", "error")
    found |= {name: entry[name] for name in optional if name in entry}
    found = {name: tuple(it) if isinstance(it, list) else it for name, it in found.items()}
    knots = entry["knots_requests"] if "knots_requests" in entry else shared["knots_requests"]
    return Profile(
        **found,
        tensor_parallel=tensor_parallel,
        knots_requests=tuple(knots),
        prefill=_phase(entry.get("prefill", {})),
        decode=_phase(entry.get("decode", {})),
        valid={name: (low, high) for name, (low, high) in entry.get("valid", {}).items()},
        received_s=Received(*entry.get("received_s", NOTHING_RECEIVED)),
        sm_shares=sm_shares_from(shared["model"], entry.get("sm_share", {})),
    )


def _phase(raw: Mapping[str, Mapping[str, list[float]]]) -> Phase:
    return {
        component: {name: tuple(values) for name, values in coefficients.items()}
        for component, coefficients in raw.items()
    }
