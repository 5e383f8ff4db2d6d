"""A configuration: plain models of what a run may be told, whoever composes it.

What groups hold (`engine`, `workload`, `policy`, `predictor`, `system`, `cluster`) is checked by
the constructors that they name. No field has a default here: values live in the YAML files.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from harness.config.inputs import TOPS
from harness.config.names import unknown_name
from harness.config.paths import ROOT
from harness.config.schema import sentence_of
from harness.runs.matrix import CASES, axes_of, settings_of

VARIANTS = ("paper", "code")
MODES = ("wandb", "none")
"""Where runs are mirrored."""
TAKEN = (
    *("bench", "claims", "conditions", "figures", "fidelity", "fidelity_runs", "fidelity_vllm"),
    *("league", "local", "measured", "pages", "plans", "predictors", "starting", "verify"),
    "wandb",
)
"""Folders below results/ that hold no runs."""
OWN = (*TOPS, "scenarios", "plots", "requirements", ".git", ".venv")
"""Folders of the project that are read: what was written there would be another program."""
DETERMINES = (
    *("engine", "hardware", "workload", "policy", "predictor", "system", "variant", "seed"),
    *("record", "slo", "warm_up_s"),
)
"""Keys that a result depends on."""
HOW = ("compare", "shows", "expected_minutes", "tracking", "results", "workers", "variations")
"""Keys that say how a sweep is run and shown, and not which cells it has."""
NO_AXES = ("name", "matrix", "vary", "vary_at", "uncertainty_draws", "chosen", *HOW)
"""Keys that say nothing of a cell."""

KNOWN = {
    "system": (
        *("name", "dispatch", "placement", "prewarm", "planner_parts", "withheld_lengths"),
        "by_variant",
    ),
    "compare": ("axis", "reference"),
}
"""Keys that may stand where no constructor would refuse one."""

GpuCount = Annotated[int, Field(le=65_536)]
"""A machine with more would never end."""


def _positive(limit: float | None) -> float | None:
    if limit is not None and not limit > 0:
        raise ValueError("it must be positive, or null for none")
    return limit


def _as_text(value: object) -> object:
    """A number that is given for a text, as in name=2024."""
    return str(value) if type(value) is int else value


Text = Annotated[str, BeforeValidator(_as_text)]
Limit = Annotated[float | None, AfterValidator(_positive)]


class Plain(BaseModel):
    """No unknown key, no number that is none, no guessing of types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class HardwareConfig(Plain):
    """A machine."""

    gpu: str
    """GPU name in harness/profiles/gpus.json."""
    gpu_count: GpuCount
    """Number of GPUs."""
    nvlink_island: GpuCount
    """Consecutive GPUs joined by NVLink."""
    memory_share: float
    """Share of GPU memory for weights and KV, 0..1."""
    profile: str
    """Folder of fitted cost profiles under harness/profiles."""
    engine: str
    """Kind of engine: a file of harness/profiles/engines."""
    roofline: bool
    """Whether formulas stand in for the kernels of a GPU without a table."""
    expert_parallel: bool
    """Whether a GPU of a group holds whole experts, or a part of each."""
    kv_number_bytes: int | None
    """Bytes of a number in KV; null: as the model's config has it."""
    cost_draw: Annotated[int, Field(ge=0, le=2**31)]
    """Which possible true costs of its seed a run has, 1 and up; 0: those of the profile."""
    scale_seconds: Annotated[float, Field(le=1e6)]
    """What the seconds of iterations are multiplied by, above 0; 1: as the profile has them."""
    scale_prompt_seconds: Annotated[float, Field(le=1e6)]
    """What seconds of prompts in iterations are multiplied by beside it, above 0."""
    replica_start_s: Annotated[float, Field(le=1e6)]
    """Seconds longer that a replica loads for every other of its service that starts with it."""
    engine_start_s: Annotated[float, Field(le=1e6)] | None
    """Seconds of a load before weights are read; null: as the profile has it."""
    weights_bytes_per_s: Annotated[float, Field(ge=1)] | None
    """Rate at which an engine reads weights; null: as the profile has it."""
    kv_bytes: int | None
    """Bytes of each GPU for KV; null: what `memory_share` leaves beside the weights."""
    block_tokens: int | None
    """Tokens of a KV block; null: as on the engine that the profile was measured on."""
    window_at_tokens: Annotated[int, Field(le=2**31)] | None
    """Context at which sliding windows count, in KV and seconds; null: that of the requests."""
    sm_share_profile: str | None
    """Folder of profiles whose shares of the SMs stand in where `profile` has none; null: none."""
    host_kv_bytes: int
    """Bytes of host memory for the KV of preempted requests, of each GPU."""
    pcie_bytes_per_s: float | None
    """Rate of a GPU's copies to host memory or back; null: as its data sheet has it."""


class RecordConfig(Plain):
    """What to keep that is large."""

    iterations: bool
    """Whether to write iterations.parquet."""
    trace: bool
    """Whether to write trace.json for Perfetto; keeps iterations as well."""


class SloConfig(Plain):
    """Objectives that every request is held against, beside a deadline it may have; null: none."""

    ttft_s: Limit
    """Seconds to the first token."""
    tpot_s: Limit
    """Seconds per further token."""
    itl_s: Limit
    """Seconds between any two tokens that follow each other."""
    jct_s: Limit
    """Seconds to the last token."""
    scale: Limit
    """Of the seconds to the last token, as a multiple of what the request takes alone.

    Alone is on the fewest GPUs that hold its model.
    """


class RunConfig(Plain):
    """One cell, or with `matrix` many."""

    engine: dict[str, Any]
    """The engine: `_target_` and its options."""
    hardware: HardwareConfig
    """The machine."""
    workload: dict[str, Any]
    """Workload recipe: `_target_` and its options."""
    policy: dict[str, Any]
    """Scheduling policy: `_target_` and its constants."""
    predictor: dict[str, Any]
    """The predictor of output lengths: a name, with `_target_` and options."""
    record: RecordConfig
    """What to keep that is large."""
    system: dict[str, Any]
    """Name, dispatch and placement policy."""
    variant: str
    """paper | code: what its paper says of a system, or what its authors' program does instead."""
    name: Text
    """Folder of the results, and name of the run."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)]
    """Of the workload and of the planner."""
    matrix: dict[str, Any]
    """Axis -> values; an axis is a config group or a dotted key. Cells are the product.

    Under `cases` several axes together: a list of axis -> value or values.
    """
    vary: dict[str, Any]
    """What a paper leaves open: key -> further values, each on its own with all else as it is."""
    vary_at: list[Any]
    """Cells at which `vary` is run, all if none is named: axis -> values, of which a cell has one.

    What names a varied key restricts this key alone.
    """
    variations: bool
    """Whether the cells of `vary` run, too; without it those of the matrix alone."""
    compare: dict[str, Any]
    """`axis` and the `reference` value on it that the printed table normalises by."""
    shows: list[str]
    """Figures of a run that the printed table has."""
    expected_minutes: Annotated[float, Field(le=1e6)]
    """On 2 cores."""
    tracking: str
    """wandb | none."""
    results: Text
    """Folder for run folders; relative to the project, not to where the command is given."""
    workers: Annotated[int, Field(ge=1, le=1024)] | None
    """Cells that run at the same time on this machine; null: one per usable core, at most 8."""
    cluster: dict[str, Any]
    """Where cells run: `_target_` and its options."""
    uncertainty_draws: Annotated[int, Field(ge=0, le=10_000)]
    """Runs more with costs drawn from the error of their profile, for intervals; 0 for none."""
    warm_up_s: Annotated[float, Field(ge=0, le=1e9)]
    """Seconds from the first arrival whose requests are served and not counted in latencies."""
    slo: SloConfig
    """Service-level objectives; they change what is counted, not what is done."""
    chosen: dict[str, str]
    """The file that each group was taken from, for whoever reads the run."""

    @property
    def determines(self) -> dict[str, Any]:
        """All that a result depends on, plain."""
        return self.model_dump(include=set(DETERMINES))

    @property
    def folder(self) -> Path:
        """Where the runs of this name lie."""
        return ROOT / self.results / self.name

    @model_validator(mode="after")
    def _fits_together(self) -> "RunConfig":
        for path, name in (("compare", "axis"), ("predictor", "name")):
            value = getattr(self, path).get(name, "")
            if not isinstance(value, str):
                raise ValueError(f"{path}.{name} is {value!r:.60}, it must be a text")
        check_variant(self.variant)
        for path, known in KNOWN.items():
            names = dict.fromkeys(f"{path}.{key}" for key in known)
            for key in getattr(self, path):
                if f"{path}.{key}" not in names:
                    raise ValueError(unknown_name("configuration key", f"{path}.{key}", names))
        _check_system(self.system)
        if self.tracking not in MODES:
            raise ValueError(f"tracking={self.tracking} is not one of {', '.join(MODES)}")
        _check_place(self.results, self.name)
        if self.matrix or self.vary or self.vary_at or self.compare:
            _check_cells(self.matrix, self.vary, self.vary_at, self.compare)
        return self


def configuration(plain: Mapping[str, Any]) -> RunConfig:
    """A resolved configuration as a model. Raises ValueError, a sentence with key and value."""
    try:
        return RunConfig.model_validate(plain)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "extra_forbidden":
            raise ValueError(_unknown_key([*map(str, first["loc"])])) from None
        raise ValueError(sentence_of(error)) from None


def stored_configuration(
    content: Mapping[str, Any], *, results: str = "results", name: str = "stored"
) -> RunConfig:
    """The configuration of a run, from what its folder has of it, to be run below `results/name`.

    Raises ValueError as `configuration` does.
    """
    own = {key: value for key, value in content.items() if key != "varied"}
    no_sweep: dict[str, Any] = {
        **{"matrix": {}, "vary": {}, "vary_at": [], "variations": False, "uncertainty_draws": 0},
        **{"compare": {}, "shows": [], "expected_minutes": 0.0, "tracking": "none"},
        **{"workers": None, "cluster": {}, "results": results, "name": name},
    }
    return configuration({**own, **no_sweep})


def _unknown_key(place: list[str]) -> str:
    """There is no such key; what is closest."""
    model: Any = RunConfig
    for part in place[:-1]:
        model = model.model_fields[part].annotation
    path = ".".join(place[:-1])
    known = dict.fromkeys(f"{path}.{name}".lstrip(".") for name in model.model_fields)
    return unknown_name("configuration key", ".".join(place), known)


def check_variant(variant: object) -> None:
    """Raise ValueError for one that is not known; other values refer to it."""
    if variant not in VARIANTS:
        raise ValueError(f"variant={variant} is not one of {', '.join(VARIANTS)}")


def _check_system(system: Mapping[str, Any]) -> None:
    for key in ("name", "dispatch", "placement"):
        if key not in system:
            raise ValueError(f"system.{key} is missing")
    if not isinstance(system["name"], str) or not system["name"]:
        raise ValueError(f"system.name={system['name']!r:.60} is not a text")
    if not isinstance(system.get("planner_parts", []), list):
        raise ValueError(f"system.planner_parts={system['planner_parts']} is not a list")


def _check_place(folder: str, name: str) -> None:
    """Folders that can be, of which none is the project itself or holds other things."""
    if not re.fullmatch(r"\w[\w.-]{0,99}", name):
        raise ValueError(f"name={name:.120} cannot be the name of a folder of results")
    if name in TAKEN:
        raise ValueError(f"name={name} is a folder of results that holds other things")
    if not folder.strip():
        raise ValueError(f"results={folder!r} cannot be the name of a folder")
    place = Path(os.path.realpath(ROOT / folder))  # of a circle of links too
    if place in (ROOT, *ROOT.parents) or any(place.is_relative_to(ROOT / top) for top in OWN):
        raise ValueError(f"results={folder} is where the project is; results=results is below it")


def _check_cells(
    matrix: Mapping[str, Any],
    vary: Mapping[str, Any],
    vary_at: Sequence[object],
    compare: Mapping[str, Any],
) -> None:
    _check_matrix(matrix)
    axes = axes_of(matrix)
    _check_axes(axes, vary)
    _check_compare(compare, axes)
    _check_vary(vary, axes)
    _check_patterns(vary_at, {**axes, **vary})


def _check_axes(axes: Mapping[str, object], vary: Mapping[str, object]) -> None:
    """No axis is a key that no result depends on."""
    for axis in (*axes, *vary):
        if str(axis).partition(".")[0] in NO_AXES:
            raise ValueError(f"{axis} cannot differ from cell to cell: no result depends on it")


def _check_matrix(matrix: Mapping[str, Any]) -> None:
    for axis, values in matrix.items():
        if not isinstance(values, list) or not values:
            raise ValueError(
                f"matrix.{axis}={values} is not a list of values{_axis_as(axis, values)}"
            )
    if CASES in matrix:
        _check_cases(matrix[CASES], matrix)


def _check_cases(cases: Sequence[object], matrix: Mapping[str, Any]) -> None:
    """Every cell has a value on the same axes, and none is there twice."""
    named: dict[str, int] = {}
    for case in cases:
        if not isinstance(case, Mapping) or not case or [] in case.values():
            raise ValueError(
                f"matrix.{CASES} holds {case}, which is not axes with a value or a list of values"
            )
        for axis in case:
            named[axis] = named.get(axis, 0) + 1
    for axis, count in named.items():
        if count < len(cases) and axis not in matrix:
            raise ValueError(f"matrix.{CASES}: not every case has {axis}, and the matrix has none")
        if count == len(cases) and axis in matrix:
            raise ValueError(f"matrix.{axis}={matrix[axis]}: every case has its own {axis}")
    seen = set()
    for setting in settings_of(matrix):
        cell = ", ".join(sorted(f"{axis}={value}" for axis, value in setting.items()))
        if cell in seen:
            raise ValueError(f"matrix.{CASES}: {cell} is there twice")
        seen.add(cell)


def _check_compare(compare: Mapping[str, Any], axes: Mapping[str, Any]) -> None:
    if compare and "reference" not in compare:
        raise ValueError("compare.reference is missing")
    if compare and compare.get("axis") not in axes:
        raise ValueError(f"compare.axis={compare.get('axis')} is no axis of the matrix")
    if compare and compare["reference"] not in axes[compare["axis"]]:
        axis, reference = compare["axis"], compare["reference"]
        raise ValueError(f"compare.reference={reference} is not one of {axis}={axes[axis]}")


def _axis_as(axis: str, values: object) -> str:
    """How a command line gives an axis that it has given in another way."""
    while isinstance(values, Mapping) and len(values) == 1:
        ((name, values),) = values.items()
        axis = f"{axis}.{name}"
    if isinstance(values, Mapping) or values == []:
        return ""
    listed = values if isinstance(values, list) else [values]
    text = ",".join(map(str, listed))
    return f"; it is given as '+matrix={{{axis}:[{text}]}}', several axes with commas between them"


def _check_patterns(patterns: Sequence[object], axes: Mapping[str, Any]) -> None:
    for pattern in patterns:
        if not isinstance(pattern, Mapping) or not pattern:
            raise ValueError(
                f"vary_at holds {pattern}, which is not axes of the matrix with lists of values"
            )
        for axis, values in pattern.items():
            if axis not in axes:
                raise ValueError(unknown_name("axis of the matrix", str(axis), axes))
            if not isinstance(values, list) or not values:
                raise ValueError(f"vary_at.{axis}={values} is not a list of values")
            lost = [one for one in values if one not in axes[axis]]
            # A matrix may be given fewer seeds or loads than its scenario has patterns for.
            if lost and (len(lost) == len(values) or any(isinstance(one, str) for one in lost)):
                raise ValueError(f"vary_at.{axis}={values}: no cell has {axis}={lost[0]}")


def _check_vary(vary: Mapping[str, object], axes: Mapping[str, object]) -> None:
    for key, values in vary.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"vary.{key}={values} is not a list of values")
        if key in axes:
            raise ValueError(f"vary.{key}={values}, but {key} is an axis of the matrix already")
