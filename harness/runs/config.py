"""Schema of a run: what a configuration may say at its top level.

Group contents (`engine`, `hardware`, `workload`, `policy`, `predictor`, `system`) are checked by
the constructors they name. No field has a default here: values live in the YAML files.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from math import inf, isnan
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from omegaconf import MISSING

from harness.config.inputs import TOPS
from harness.config.names import unknown_name
from harness.config.paths import ROOT
from harness.runs.tracking import MODES


def within(*, least: float = -inf, most: float = inf) -> Any:
    """A field that its YAML file gives: a number in this range, beyond which no run would end."""
    return field(default=MISSING, metadata={"range": (least, most)})


@dataclass
class HardwareConfig:
    """A machine."""

    gpu: str = MISSING
    """GPU name in harness/profiles/gpus.json."""
    gpu_count: int = within(most=65_536)
    """Number of GPUs."""
    nvlink_island: int = within(most=65_536)
    """Consecutive GPUs joined by NVLink."""
    memory_share: float = MISSING
    """Share of GPU memory for weights and KV, 0..1."""
    profile: str = MISSING
    """Folder of fitted cost profiles under harness/profiles."""
    engine: str = MISSING
    """Kind of engine: a file of harness/profiles/engines."""
    roofline: bool = MISSING
    """Whether formulas stand in for the kernels of a GPU without a table."""
    expert_parallel: bool = MISSING
    """Whether a GPU of a group holds whole experts, or a part of each."""
    kv_number_bytes: int | None = MISSING
    """Bytes of a number in KV; null: as the model's config has it."""
    cost_draw: int = within(least=0, most=2**31)
    """Which possible true costs of its seed a run has, 1 and up; 0: those of the profile."""
    scale_seconds: float = within(most=1e6)
    """What the seconds of iterations are multiplied by, above 0; 1: as the profile has them."""
    replica_start_s: float = within(most=1e6)
    """Seconds longer that a replica loads for every other of its service that starts with it."""
    engine_start_s: float | None = within(most=1e6)
    """Seconds of a load before weights are read; null: as the profile has it."""
    weights_bytes_per_s: float | None = within(least=1)
    """Rate at which an engine reads weights; null: as the profile has it."""
    kv_bytes: int | None = MISSING
    """Bytes of each GPU for KV; null: what `memory_share` leaves beside the weights."""
    block_tokens: int | None = MISSING
    """Tokens of a KV block; null: as on the engine that the profile was measured on."""
    window_at_tokens: int | None = within(most=2**31)
    """Context at which sliding windows count, in KV and seconds; null: that of the requests."""
    sm_share_profile: str | None = MISSING
    """Folder of profiles whose shares of the SMs stand in where `profile` has none; null: none."""
    host_kv_bytes: int = MISSING
    """Bytes of host memory for the KV of preempted requests, of each GPU."""
    pcie_bytes_per_s: float | None = MISSING
    """Rate of a GPU's copies to host memory or back; null: as its data sheet has it."""


@dataclass
class RecordConfig:
    """What to keep that is large."""

    iterations: bool = MISSING
    """Whether to write iterations.parquet."""
    trace: bool = MISSING
    """Whether to write trace.json for Perfetto; keeps iterations as well."""


@dataclass
class SloConfig:
    """Objectives that every request is held against, beside a deadline it may have; null: none."""

    ttft_s: float | None = MISSING
    """Seconds to the first token."""
    tpot_s: float | None = MISSING
    """Seconds per further token."""
    itl_s: float | None = MISSING
    """Seconds between any two tokens that follow each other."""
    jct_s: float | None = MISSING
    """Seconds to the last token."""
    scale: float | None = MISSING
    """Of the seconds to the last token, as a multiple of what the request takes alone.

    Alone is on the fewest GPUs that hold its model.
    """


@dataclass
class RunConfig:
    """One cell, or with `matrix` many."""

    engine: dict[str, Any] = field(default_factory=dict)
    """The engine: `_target_` and its options."""
    hardware: HardwareConfig = field(default_factory=HardwareConfig)
    """The machine."""
    workload: dict[str, Any] = field(default_factory=dict)
    """Workload recipe: `_target_` and its options."""
    policy: dict[str, Any] = field(default_factory=dict)
    """Scheduling policy: `_target_` and its constants."""
    predictor: dict[str, Any] = field(default_factory=dict)
    """The predictor of output lengths: a name, with `_target_` and options."""
    system: dict[str, Any] = field(default_factory=dict)
    """Name, dispatch and placement policy."""
    variant: str = MISSING
    """paper | code: what its paper says of a system, or what its authors' program does instead."""
    name: str = MISSING
    """Folder of the results, and name of the run."""
    seed: int = within(least=0, most=2**63 - 1)
    """Of the workload and of the planner."""
    matrix: dict[str, Any] = field(default_factory=dict)
    """Axis -> values; an axis is a config group or a dotted key. Cells are the product."""
    skip: list[Any] = field(default_factory=list)
    """Cells that say nothing: axis or varied key -> values, all of which a cell has."""
    vary: dict[str, Any] = field(default_factory=dict)
    """What a paper leaves open: key -> further values, each on its own with all else as it is."""
    vary_at: list[Any] = field(default_factory=list)
    """Cells of the matrix at which `vary` is run, as in `skip`; all of them if none is named."""
    variations: bool = MISSING
    """Whether the cells of `vary` run, too; without it those of the matrix alone."""
    compare: dict[str, Any] = field(default_factory=dict)
    """`axis` and the `reference` value on it that the printed table normalises by."""
    shows: list[str] = field(default_factory=list)
    """Figures of a run (columns of its summary) that the printed table has."""
    expected_minutes: float = within(most=1e6)
    """On 2 cores."""
    tracking: str = MISSING
    """wandb | none."""
    results: str = MISSING
    """Folder for run folders; relative to the project, not to where the command is given."""
    workers: int | None = within(least=1, most=1024)
    """Cells that run at the same time on this machine; null: one per usable core, at most 8."""
    cluster: dict[str, Any] = field(default_factory=dict)
    """Where cells run: `_target_` and its options."""
    uncertainty_draws: int = within(least=0, most=10_000)
    """Runs more with costs drawn from the error of their profile, for intervals; 0 for none."""
    warm_up_s: float = within(least=0, most=1e9)
    """Seconds from the first arrival whose requests are served and not counted in latencies."""
    slo: SloConfig = field(default_factory=SloConfig)
    """Service-level objectives; they change what is counted, not what is done."""
    record: RecordConfig = field(default_factory=RecordConfig)
    """What a run folder holds beyond its tables."""


VARIANTS = ("paper", "code")

KEYS = {
    "": tuple(field.name for field in fields(RunConfig)),
    "hardware": tuple(field.name for field in fields(HardwareConfig)),
    "record": tuple(field.name for field in fields(RecordConfig)),
    "slo": tuple(field.name for field in fields(SloConfig)),
    "system": (
        "name",
        "dispatch",
        "placement",
        "prewarm",
        "planner_parts",
        "withheld_lengths",
        "by_variant",
    ),
    "compare": ("axis", "reference"),
}
"""What may stand where no constructor would refuse a key."""


TAKEN = (
    *("bench", "claims", "figures", "fidelity", "fidelity_runs", "fidelity_vllm", "local"),
    *("league", "measured", "pages", "predictors", "starting", "verify", "wandb"),
)
"""Folders below results/ that hold no runs."""

OWN = (*TOPS, "scenarios", "plots", "requirements", ".git", ".venv")
"""Folders of the project that are read: what was written there would be another program."""

HOW = ("compare", "shows", "expected_minutes", "tracking", "results", "workers", "variations")
"""Keys that say how a sweep is run and shown, and not which cells it has."""

NO_AXES = ("name", "matrix", "skip", "vary", "vary_at", *HOW)
"""Keys that say nothing of a cell."""


def check_variant(variant: str) -> None:
    """Raise ValueError for one that is not known; other values refer to it."""
    if variant not in VARIANTS:
        raise ValueError(f"variant={variant} is not one of {', '.join(VARIANTS)}")


def check(plain: Mapping[str, Any]) -> None:
    """Raise ValueError for what a configuration may not say; `plain` is resolved and typed."""
    check_types(plain)
    _check_keys(plain)
    _check_system(plain["system"])
    _check_ranges("", RunConfig, plain)
    for key, limit in plain["slo"].items():
        if limit is not None and not 0 < limit < inf:
            raise ValueError(f"slo.{key}={limit}, it must be positive, or null for none")
    if plain["tracking"] not in MODES:
        raise ValueError(f"tracking={plain['tracking']} is not one of {', '.join(MODES)}")
    _check_place(plain["results"], plain["name"])
    _check_axes(plain["matrix"], plain["vary"])
    _check_matrix(plain["matrix"], plain["compare"])
    _check_vary(plain["vary"], plain["matrix"])
    _check_patterns("skip", plain["skip"], {**plain["matrix"], **plain["vary"]})
    _check_patterns("vary_at", plain["vary_at"], plain["matrix"])


def check_types(plain: Mapping[str, Any]) -> None:
    """Raise ValueError for a value of another type than its field of the schema.

    Hydra checks values as they are given, but none that a reference to another key brings.
    """
    _check_fields("", RunConfig, plain)
    for path, name in (("compare", "axis"), ("predictor", "name")):
        value = plain[path].get(name, "")
        if not isinstance(value, str):
            raise ValueError(f"{path}.{name} is {value!r:.60}, it must be a text")


def _check_fields(path: str, kind: type, values: Mapping[str, Any]) -> None:
    for name, hint in _hints(kind).items():
        key = f"{path}{name}"
        if name not in values:
            raise ValueError(f"{key} is missing")
        value = values[name]
        if not _has_type(value, hint):
            raise ValueError(f"{key} is {value!r:.60}, it must be {_called(hint)}")
        if isinstance(hint, type) and is_dataclass(hint):
            _check_fields(f"{key}.", hint, value)


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    """The types of the fields of a part of the schema."""
    return get_type_hints(kind)


def _has_type(value: object, hint: Any) -> bool:
    if isinstance(hint, UnionType):
        return any(_has_type(value, choice) for choice in get_args(hint))
    if get_origin(hint) is list:
        (of,) = get_args(hint)
        return isinstance(value, list) and (of is Any or all(_has_type(it, of) for it in value))
    if get_origin(hint) is dict or is_dataclass(hint):
        return isinstance(value, Mapping)
    if isinstance(value, bool) and hint is not bool:
        return False
    return isinstance(value, int | float if hint is float else hint)


def _called(hint: Any) -> str:
    """A type as a sentence has it."""
    if isinstance(hint, UnionType):
        return " or ".join(map(_called, get_args(hint)))
    if get_origin(hint) is list:
        return "a list of texts" if get_args(hint) == (str,) else "a list"
    return _CALLED.get(hint, "keys with values")


_CALLED = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    NoneType: "null",
}


def _check_ranges(path: str, kind: type, values: Mapping[str, Any]) -> None:
    """Raise ValueError for a number out of the range of its field; null is in every range."""
    for it in fields(kind):
        key, value = f"{path}{it.name}", values[it.name]
        if is_dataclass(it.default_factory):
            _check_ranges(f"{key}.", it.default_factory, value)
        least, most = it.metadata.get("range", (-inf, inf))
        if value is not None and "range" in it.metadata and not least <= value <= most:
            if isnan(value):
                raise ValueError(f"{key}={value} is not a number")
            bound = f"at least {least}" if value < least else f"at most {most:,}"
            raise ValueError(f"{key}={value}, it must be {bound}")


def _check_keys(plain: Mapping[str, Any]) -> None:
    for path, known in KEYS.items():
        names = {f"{path}.{key}".lstrip("."): None for key in known}
        for key in plain[path] if path else plain:
            name = f"{path}.{key}".lstrip(".")
            if name not in names:
                raise ValueError(unknown_name("configuration key", name, names))


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


def _check_axes(matrix: Mapping[str, object], vary: Mapping[str, object]) -> None:
    """No axis is a key that no result depends on."""
    for axis in (*matrix, *vary):
        if str(axis).partition(".")[0] in NO_AXES:
            raise ValueError(f"{axis} cannot differ from cell to cell: no result depends on it")


def _check_matrix(matrix: Mapping[str, Any], compare: Mapping[str, Any]) -> None:
    for axis, values in matrix.items():
        if not isinstance(values, list) or not values:
            raise ValueError(
                f"matrix.{axis}={values} is not a list of values{_axis_as(axis, values)}"
            )
    if compare and "reference" not in compare:
        raise ValueError("compare.reference is missing")
    if compare and compare.get("axis") not in matrix:
        raise ValueError(f"compare.axis={compare.get('axis')} is no axis of the matrix")
    if compare and compare["reference"] not in matrix[compare["axis"]]:
        axis, reference = compare["axis"], compare["reference"]
        raise ValueError(
            f"compare.reference={reference} is not one of matrix.{axis}={matrix[axis]}"
        )


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


def _check_patterns(key: str, patterns: Sequence[object], matrix: Mapping[str, object]) -> None:
    for pattern in patterns:
        if not isinstance(pattern, Mapping) or not pattern:
            raise ValueError(
                f"{key} holds {pattern}, which is not axes of the matrix with lists of values"
            )
        for axis, values in pattern.items():
            if axis not in matrix:
                raise ValueError(unknown_name("axis of the matrix", str(axis), matrix))
            if not isinstance(values, list) or not values:
                raise ValueError(f"{key}.{axis}={values} is not a list of values")
            there = matrix[axis]
            lost = [one for one in values if isinstance(there, list) and one not in there]
            # A matrix may be given fewer seeds or loads than its scenario has patterns for.
            is_none_left = len(lost) == len(values) and key == "vary_at"
            if lost and (is_none_left or any(isinstance(one, str) for one in lost)):
                raise ValueError(f"{key}.{axis}={values}: the matrix has no {axis}={lost[0]}")


def _check_vary(vary: Mapping[str, object], matrix: Mapping[str, object]) -> None:
    for key, values in vary.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"vary.{key}={values} is not a list of values")
        if key in matrix:
            raise ValueError(f"vary.{key}={values}, but {key} is an axis of the matrix already")
