"""The command: compose a configuration, check it, run its cells, print the table.

    python harness/run.py +scenario=ensembling
    python harness/run.py system=max_heuristic workload.requests=2000
    python harness/run.py -m seed=0,1 system=max_heuristic,min_heuristic

The only file that imports Hydra. Bad input ends in one sentence and exit code 2.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    # Started as a script, Python looks for modules in harness/ first, where none may hide a
    # standard one; what we want found is the project.
    sys.path[0] = str(ROOT)

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    OmegaConfBaseException,
    ValidationError,
)

from harness.build import build
from harness.costs.gpu_facts import gpu_facts
from harness.costs.local_hardware import here
from harness.costs.model import ProfileCosts
from harness.costs.model_facts import unknown_name
from harness.costs.uncertainty import DrawnCosts
from harness.engines.engine import Engine
from harness.interface.entities import Cluster, GpuId
from harness.interface.policies import System
from harness.predictors.ecdf import load_lengths
from harness.runs.cells import Cell, PredictorFactory, ReadsFiles, combinations_of, run_cells
from harness.runs.config import RunConfig, check, check_variant
from harness.runs.progress import Progress
from harness.runs.record import read_summaries, remove_leftovers, run_id, source_digest
from harness.runs.table import print_cells
from harness.runs.tracking import log_scenario

DETERMINES = (
    "engine",
    "hardware",
    "workload",
    "policy",
    "predictor",
    "system",
    "variant",
    "seed",
    "record",
    "uncertainty_draws",
)
"""Top-level keys that a result depends on."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_BAD_INPUT = (HydraException, OmegaConfBaseException, ValueError, MemoryError)

_SCRATCH = Path(tempfile.gettempdir()) / f"sweep-{os.getpid()}"

OmegaConf.register_new_resolver("local", lambda name: here()[name])
ConfigStore.instance().store(name="schema", node=RunConfig)
# Hydra describes a sweep in a file of its own; a run's folder already says all of that.
ConfigStore.instance().store(
    name="scratch", package="hydra.sweep", node={"dir": str(_SCRATCH), "subdir": "."}
)


def as_plain(config: DictConfig) -> dict[str, Any]:
    """The configuration resolved and checked. Raises ValueError for what it may not say."""
    check_variant(config.variant)
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    named = {str(key): value for key, value in plain.items()}
    check(named)
    return named


def cell_configs(config: DictConfig) -> Iterator[tuple[dict[str, object], DictConfig]]:
    """Every cell of the matrix but those to skip: its values on the axes, and its configuration.

    A key given on the command line is no axis.
    """
    chosen = [str(o) for o in HydraConfig.get().overrides.task]
    given = {o.lstrip("+~").partition("=")[0] for o in chosen}
    matrix = {axis: list(values) for axis, values in config.matrix.items() if axis not in given}
    groups = HydraConfig.get().runtime.choices
    composed: dict[tuple[str, ...], DictConfig] = {}
    for combination in combinations_of(matrix):
        if any(_fits(combination, pattern) for pattern in config.skip):
            continue
        picks = tuple(f"{axis}={value}" for axis, value in combination.items() if axis in groups)
        if picks not in composed:
            composed[picks] = hydra.compose("run", overrides=[*chosen, *picks])
        cell = composed[picks].copy()
        for axis, value in combination.items():
            if axis not in groups:
                OmegaConf.update(cell, axis, value, force_add=False)
        yield combination, cell


def _fits(combination: Mapping[str, object], pattern: Mapping[str, Sequence[object]]) -> bool:
    """Whether a cell has one of the values of a pattern on each of its axes."""
    return all(combination.get(axis) in list(values) for axis, values in pattern.items())


def _chosen(setting: Mapping[str, object]) -> dict[str, str]:
    """The file that each group of the configuration was taken from."""
    choices = HydraConfig.get().runtime.choices
    ours = {str(group): value for group, value in choices.items() if "hydra/" not in str(group)}
    return {group: str(setting.get(group, value)) for group, value in ours.items()}


def cell_of(config: DictConfig, setting: Mapping[str, object]) -> Cell:
    """Build everything one cell needs. Raises ValueError for what does not fit together."""
    plain = as_plain(config)
    determines = {key: plain[key] for key in DETERMINES}
    hardware = plain["hardware"]
    costs = ProfileCosts(
        gpu=hardware["gpu"],
        profile_dir=hardware["profile"],
        memory_share=hardware["memory_share"],
        parts=("forward", "prepare", "sample", "other"),
    )
    workload_factory = build(plain["workload"], path="workload")
    offered = {
        "costs": costs,
        "cluster": _cluster(hardware),
        "seed": plain["seed"],
    }
    engine = build(plain["engine"], path="engine", offered=offered)
    predictor_factory = _predicts(plain["predictor"])
    files = {
        **workload_factory.files,
        **(predictor_factory.files if isinstance(predictor_factory, ReadsFiles) else {}),
    }
    run = run_id({**determines, "files": files}, source_digest())
    return Cell(
        config={**determines, "chosen": _chosen(setting)},
        setting={axis: _plain(value) for axis, value in setting.items()},
        folder=ROOT / plain["results"] / plain["name"] / run,
        workload_factory=workload_factory,
        predictor_factory=predictor_factory,
        system=_system(plain, offered, workload_factory.models),
        engine=engine,
        costs=costs,
        gpus=hardware["gpu_count"],
        seed=plain["seed"],
        keep_iterations=plain["record"]["iterations"] or plain["record"]["trace"],
        keep_trace=plain["record"]["trace"],
        drawn=tuple(
            _drawn(plain, offered, workload_factory.models, draw)
            for draw in range(1, plain["uncertainty_draws"] + 1)
        ),
    )


def _predicts(node: Mapping[str, Any]) -> PredictorFactory | None:
    """Who makes the predictor; None where a configuration names nobody."""
    named = {key: value for key, value in node.items() if key != "name"}
    built: PredictorFactory | None = build(named, path="predictor") if named else None
    return built


def _drawn(
    plain: Mapping[str, Any], offered: Mapping[str, object], models: Sequence[str], draw: int
) -> tuple[Engine, System]:
    """The same engine and system where costs are off by one draw; planners believe the profile."""
    costs = offered["costs"]
    assert isinstance(costs, ProfileCosts)
    drawn = {**offered, "costs": DrawnCosts(costs, draw)}
    engine = build(plain["engine"], path="engine", offered=drawn)
    return engine, _system(plain, offered, models)


def _plain(value: object) -> object:
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


def _system(
    plain: Mapping[str, Any], offered: Mapping[str, object], models: Sequence[str]
) -> System:
    """The serving system that a configuration names."""
    system, costs = plain["system"], offered["costs"]
    assert isinstance(costs, ProfileCosts)
    if "planner_parts" in system:
        offered = {
            **offered,
            "planner_costs": costs.with_parts(tuple(system["planner_parts"])),
            "lengths": {name: load_lengths(name) for name in models},
        }
    return System(
        name=system["name"],
        scheduling=build(plain["policy"], path="policy", offered=offered),
        dispatch=build(system["dispatch"], path="system.dispatch", offered=offered),
        placement=build(system["placement"], path="system.placement", offered=offered),
    )


def _cluster(hardware: Mapping[str, Any]) -> Cluster:
    count, island = hardware["gpu_count"], hardware["nvlink_island"]
    if count < 1 or island < 1:
        raise ValueError(
            f"hardware has gpu_count={count} and nvlink_island={island}, both must be at least 1"
        )
    gpus = tuple(GpuId(i) for i in range(count))
    islands = tuple(frozenset(gpus[i : i + island]) for i in range(0, count, island))
    return Cluster(gpus, islands, gpu_facts(hardware["gpu"]).memory_bytes)


def run(config: DictConfig) -> None:
    """All cells of a configuration; prints the table and mirrors it."""
    plain = as_plain(config)
    cells = [cell_of(cell, setting) for setting, cell in cell_configs(config)]
    cells = list({cell.folder: cell for cell in cells}.values())
    if not cells:
        raise ValueError("skip leaves no cell of the matrix")
    folder = cells[0].folder.parent
    remove_leftovers(folder)
    try:
        with Progress(config.name, cells) as progress:
            alone = any(cell.engine.runs_alone for cell in cells)
            workers = 1 if alone else config.workers
            run_cells(progress.to_do, workers=workers, on_done=progress.done)
    finally:
        remove_leftovers(folder)
    rows = read_summaries(folder)
    rows = rows.loc[[cell.folder.name for cell in cells]]
    settings = {cell.folder.name: cell.setting for cell in cells}
    print_cells(rows, settings, plain["compare"], shows=plain["shows"])
    log_scenario(config.tracking, scenario=config.name, rows=rows, figures=(), folder=folder.parent)


def sentence(error: BaseException) -> str:
    """One line that names what is wrong, without the frame Hydra puts around it."""
    while error.__cause__ is not None and isinstance(error, HydraException):
        error = error.__cause__
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return unknown_name(group, name, dict.fromkeys(error.options))
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and error.full_key:
        return _no_key(str(error.full_key), tuple(map(str, error.parent_node or ())))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    if isinstance(error, ValidationError) and error.full_key:
        return f"{error.full_key}: {first}"
    if isinstance(error, OverrideParseException):
        # The first line may only say that it could not be read, the second why.
        return f"{error.override}: {lines[1] if len(lines) > 2 else first}"
    return first


def _no_key(key: str, beside: tuple[str, ...]) -> str:
    """There is no such key; a mapping that may hold anything wants it added."""
    if not beside:
        return f"{key} is not in the configuration; it can be added as +{key}"
    path = key.rpartition(".")[0]
    known = dict.fromkeys(f"{path}.{name}".lstrip(".") for name in beside)
    return unknown_name("configuration key", key, known)


def main() -> int:
    """Parse the command line and run. Returns the exit code."""
    # Hydra would print its own report and exit with 1; we want the exception.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        hydra.main(config_path="../scenarios", config_name="run", version_base="1.3")(_job)()
    except _BAD_INPUT as error:
        return _refused(error)
    except KeyboardInterrupt:
        print("interrupted; finished cells are kept", file=sys.stderr)
        return INTERRUPTED
    finally:
        shutil.rmtree(_SCRATCH, ignore_errors=True)
    return 0


def _job(config: DictConfig) -> None:
    """Run, and leave before Hydra adds words of its own to an error."""
    try:
        run(config)
    except _BAD_INPUT as error:
        raise SystemExit(_refused(error)) from None


def _refused(error: Exception) -> int:
    print(f"error: {sentence(error)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
