"""A cost profile as it is stored: coefficients at knots, source, error, range of validity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from harness.config.schema import Count, NotNegative, Schema, Seconds, Tokens, one_of, read_json
from harness.costs.gpu_facts import OWN_FACTS
from harness.costs.model_facts import load_models, unknown_name
from harness.costs.sm_shares import SmShares, sm_shares_from

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

CALIBRATION = "roofline.json"  # beside the profiles of a folder; what is in no profile follows it

# Loads were measured on two machines; 2503.16893 sec. 5 ran on the later one.
LATER_MACHINE = "second machine (8 x A100-80G)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Costs of one model at one tensor-parallel size.

    `prefill` and `decode` map a component (forward, prepare, sample, other) to coefficients
    (`base_s`, `per_context_s`, ...), each a tuple along `knots_requests`; both are empty where
    iterations were not measured, as `load_s` and `kv_blocks` are None. `step_s` along
    `step_knots_tokens` is `IterationTable.prefill_step_s`, part of the forward pass. `valid` holds
    the smallest and largest measured value of each quantity, `error` the relative errors.
    `sm_shares` is None where iterations were measured on all SMs only. `experts_s`, along
    `step_knots_tokens`, is what so many tokens read of experts beyond those of one token: prefill
    and decode of one iteration read them once; empty where there are none or it was not measured.
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
    step_knots_tokens: tuple[int, ...]
    step_s: tuple[float, ...]
    load_s: float | None
    load_source: str
    kv_blocks: int | None
    block_tokens: int
    valid: Mapping[str, tuple[int, int]]
    error: Mapping[str, float]
    sm_shares: SmShares | None = None
    experts_s: tuple[float, ...] = ()


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
def read_profiles(folder: Path) -> Mapping[tuple[str, int], Profile]:
    """All profiles of a folder by model and tensor-parallel size.

    Raises ValueError if the folder does not exist, and for a file that says what none may.
    """
    if not folder.is_dir():
        raise ValueError(f"There is no folder of cost profiles {str(folder)!r}.")
    found: dict[tuple[str, int], Profile] = {}
    for path in sorted(folder.glob("*.json")):
        if path.name not in (CALIBRATION, OWN_FACTS):
            raw = read_json(path, _File).model_dump(exclude_unset=True)
            if raw["model"] not in load_models():
                raise ValueError(f"{path}: {unknown_name('model', raw['model'], load_models())}")
            for size, entry in raw.pop("tensor_parallel").items():
                if (raw["model"], size) in found:
                    raise ValueError(f"{path}: model={raw['model']} is in another file too")
                found[raw["model"], size] = profile_from(raw, size, entry)
    return found


def require_roofline(folder: Path, name: str) -> None:
    """Raise ValueError for a folder, which a configuration calls so, without its calibration.

    One that is not there is refused when it is read.
    """
    if folder.is_dir() and not (folder / CALIBRATION).is_file():
        raise ValueError(
            f"hardware.profile={name} is no folder of cost profiles: it holds no {CALIBRATION}"
        )


def profile_from(
    shared: Mapping[str, Any], tensor_parallel: int, entry: Mapping[str, Any]
) -> Profile:
    """Profile of one size from what a file says of all sizes (`shared`) and of this one.

    The knots are those of the size where it has its own.
    """
    knots = entry["knots_requests"] if "knots_requests" in entry else shared["knots_requests"]
    return Profile(
        model=shared["model"],
        gpu=shared["gpu"],
        engine=shared["engine"],
        kind=shared["kind"],
        source=shared["source"],
        tensor_parallel=tensor_parallel,
        knots_requests=tuple(knots),
        prefill=_phase(entry.get("prefill", {})),
        decode=_phase(entry.get("decode", {})),
        step_knots_tokens=tuple(entry.get("step_knots_tokens", (0,))),
        step_s=tuple(entry.get("step_s", (0.0,))),
        load_s=entry.get("load_s"),
        load_source=entry.get("load_source", ""),
        kv_blocks=entry.get("kv_blocks"),
        block_tokens=shared["block_tokens"],
        valid={name: (low, high) for name, (low, high) in entry.get("valid", {}).items()},
        error=entry.get("error", {}),
        sm_shares=sm_shares_from(shared["model"], entry.get("sm_share", {})),
    )


def _phase(raw: Mapping[str, Mapping[str, list[float]]]) -> Phase:
    return {
        component: {name: tuple(values) for name, values in coefficients.items()}
        for component, coefficients in raw.items()
    }
