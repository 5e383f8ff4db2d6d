"""The command: compose a configuration, check it, run its cells, print the table.

    python harness/run.py +scenario=ensembling
    python harness/run.py system=max_heuristic workload.requests=2000
    python harness/run.py -m seed=0,1 system=samullm,min_heuristic

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

import inspect
from collections.abc import Mapping
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.cells import Cell, combinations_of, run_cells
from harness.config import RunConfig
from harness.costs import ProfileCosts
from harness.entities import Cluster, GpuId
from harness.gpus import gpu_facts
from harness.policies import System
from harness.predictors.ecdf import load_lengths
from harness.progress import Progress
from harness.record import read_summaries, remove_leftovers, run_id, source_digest
from harness.table import print_cells
from harness.tracking import MODES, log_scenario
from harness.values import checked

DETERMINES = ("engine", "hardware", "workload", "policy", "system", "seed", "record_iterations")
"""Top-level keys that a result depends on."""

_BAD_INPUT = (HydraException, OmegaConfBaseException, ValueError)

ConfigStore.instance().store(name="schema", node=RunConfig)


def cell_configs(config: DictConfig) -> list[DictConfig]:
    """One configuration per cell of the matrix; a key given on the command line is no axis."""
    chosen = [str(o) for o in HydraConfig.get().overrides.task]
    given = {o.lstrip("+~").partition("=")[0] for o in chosen}
    matrix = {axis: list(values) for axis, values in config.matrix.items() if axis not in given}
    groups = HydraConfig.get().runtime.choices
    composed: dict[tuple[str, ...], DictConfig] = {}
    configs = []
    for combination in combinations_of(matrix):
        picks = tuple(f"{axis}={value}" for axis, value in combination.items() if axis in groups)
        if picks not in composed:
            composed[picks] = hydra.compose("run", overrides=[*chosen, *picks])
        cell = composed[picks].copy()
        for axis, value in combination.items():
            if axis not in groups:
                OmegaConf.update(cell, axis, value, force_add=False)
        configs.append(cell)
    return configs


def cell_of(config: DictConfig) -> Cell:
    """Build everything one cell needs. Raises ValueError for what does not fit together."""
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    determines = {key: plain[key] for key in DETERMINES}
    hardware = plain["hardware"]
    costs = ProfileCosts(
        gpu=hardware["gpu"],
        profile_dir=hardware["profile"],
        memory_share=hardware["memory_share"],
        parts=("forward", "prepare", "sample", "other"),
    )
    recipe = _built("workload", plain["workload"], {})
    offered = {"costs": costs, "cluster": _cluster(hardware), "seed": plain["seed"]}
    engine = _built("engine", plain["engine"], offered)
    folder = Path(plain["results"]) / plain["name"] / run_id(determines, source_digest())
    return Cell(
        config=determines,
        folder=folder if folder.is_absolute() else ROOT / folder,
        recipe=recipe,
        system=_system(plain, offered),
        engine=engine,
        costs=costs,
        gpus=hardware["gpu_count"],
        seed=plain["seed"],
        keep_iterations=plain["record_iterations"],
    )


def _system(plain: Mapping[str, Any], offered: dict[str, object]) -> System:
    """The serving system that a configuration names."""
    system = dict(plain["system"])
    costs = offered["costs"]
    assert isinstance(costs, ProfileCosts)
    placement = dict(system["placement"])
    offered = {
        **offered,
        "lengths": {name: load_lengths(name) for name in plain["workload"].get("models", [])},
    }
    if "planner_parts" in system:
        offered["planner_costs"] = costs.with_parts(tuple(system.pop("planner_parts")))
    return System(
        name=system["name"],
        scheduling=_built("policy", plain["policy"], offered),
        dispatch=_built("system.dispatch", system["dispatch"], offered),
        placement=_built("system.placement", placement, offered),
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


def _built(path: str, node: Mapping[str, Any], offered: Mapping[str, object]) -> Any:
    """Instantiate a node, giving its constructor what it asks for of `offered`."""
    if "_target_" not in node:
        raise ValueError(f"{path} has no _target_")
    target = get_class(node["_target_"])
    wanted = inspect.signature(target).parameters
    checked(path, node, target)
    given = {name: value for name, value in offered.items() if name in wanted and name not in node}
    # Partial first: Hydra would turn what is given into configuration.
    return instantiate({**node, "_partial_": True}, _convert_="all")(**given)


def run(config: DictConfig) -> None:
    """All cells of a configuration; prints the table and mirrors it."""
    if config.tracking not in MODES:
        raise ValueError(f"tracking={config.tracking} is none of {', '.join(MODES)}")
    if config.workers < 1:
        raise ValueError(f"workers={config.workers}, it must be at least 1")
    cells = [cell_of(cell) for cell in cell_configs(config)]
    folder = cells[0].folder.parent
    remove_leftovers(folder)
    with Progress(config.name, cells) as progress:
        run_cells(progress.to_do, workers=config.workers, on_done=progress.done)
    rows = read_summaries(folder)
    rows = rows.loc[sorted(cell.folder.name for cell in cells)]
    print_cells(rows, OmegaConf.to_container(config.compare), OmegaConf.to_container(config.matrix))
    log_scenario(config.tracking, scenario=config.name, rows=rows, figures=(), folder=folder.parent)


def sentence(error: BaseException) -> str:
    """The first line of what an error says, without the path Hydra puts around it."""
    while error.__cause__ is not None and isinstance(error, HydraException):
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def main() -> int:
    """Parse the command line and run. Returns the exit code."""
    # Hydra would print its own report and exit with 1; we want the exception.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        hydra.main(config_path="../scenarios", config_name="run", version_base="1.3")(_job)()
    except _BAD_INPUT as error:
        return _refused(error)
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
