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

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import hydra
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.errors import (
    ConfigCompositionException,
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationKeyError,
    OmegaConfBaseException,
    ValidationError,
)

from harness.costs.local_hardware import here
from harness.costs.model_facts import unknown_name
from harness.renamed import renamed_key
from harness.runs.building import cell_of
from harness.runs.cells import Cell, run_cells
from harness.runs.composing import Files, no_key
from harness.runs.config import RunConfig, check, check_variant
from harness.runs.matrix import Place, places
from harness.runs.progress import Progress
from harness.runs.record import read_summaries, remove_leftovers
from harness.runs.table import print_cells, print_varied
from harness.runs.tracking import log_scenario
from harness.trust import without_trust

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_BAD_INPUT = (HydraException, OmegaConfBaseException, ValueError, MemoryError, RecursionError)

_SCRATCH = Path(tempfile.gettempdir()) / f"sweep-{os.getpid()}"

OmegaConf.register_new_resolver("local", lambda name: here()[name], replace=True)
ConfigStore.instance().store(name="schema", node=RunConfig)
# Hydra describes a sweep in a file of its own; a run's folder already says all of that.
ConfigStore.instance().store(
    name="scratch", package="hydra.sweep", node={"dir": str(_SCRATCH), "subdir": "."}
)

FILES = Files()


class _Looked(FileConfigSource):  # type: ignore[misc]
    """Hydra's reader of files, after a look at what they hold."""

    def load_config(self, config_path: str) -> ConfigResult:
        FILES.take(Path(self.path).resolve() / self._normalize_file_name(config_path))
        return super().load_config(config_path)


# Hydra has a place for readers of other schemes than file:// alone.
Plugins.instance()
SourcesRegistry.instance().types["file"] = _Looked


def as_plain(config: DictConfig) -> dict[str, Any]:
    """The configuration resolved and checked. Raises ValueError for what it may not say."""
    check_variant(config.variant)
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    named = {str(key): value for key, value in plain.items()}
    check(named)
    return named


def cell_configs(config: DictConfig) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Every cell of the matrix and its variations: its place, and its configuration.

    A key given on the command line is no axis, and is not varied. A cell whose configuration has
    no such key as is to be varied, or has the value already, is none. ValueError where all are so.
    """
    overrides = HydraConfig.get().overrides
    chosen = [str(o) for o in overrides.task]
    given = _given()
    where = [str(o) for o in overrides.hydra if str(o).startswith("hydra.searchpath=")]
    groups = HydraConfig.get().runtime.choices
    composed: dict[tuple[str, ...], DictConfig] = {}

    def at(setting: Mapping[str, object]) -> DictConfig:
        """The configuration with a value on every axis."""
        picks = tuple(f"{axis}={value}" for axis, value in setting.items() if axis in groups)
        if picks not in composed:
            composed[picks] = hydra.compose("run", overrides=[*where, *chosen, *picks])
        cell = composed[picks].copy()
        for axis, value in setting.items():
            if axis not in groups:
                OmegaConf.update(cell, axis, value, force_add=False)
        return cell

    matrix, vary = (_but(_plain(node), set(given)) for node in (config.matrix, config.vary))
    skip, vary_at = _plain(config.skip), _but(_plain(config.vary_at), set(given))
    became = {(key, str(value)): False for key, values in vary.items() for value in values}
    for place in places(matrix, skip=skip, vary=vary, vary_at=vary_at):
        key, value = place.varied, place.setting.get(place.varied)
        if key:
            axes = _but(place.setting, {key})
            was = groups[key] if key in groups else value_at(at(axes), key, otherwise=value)
            if was == value:
                continue
            became[key, str(value)] = True
        yield place, as_plain(at(place.setting))
    for (key, text), is_there in became.items():
        if not is_there:
            raise ValueError(f"vary.{key}: every cell has {text} already, or none has such a key")


def cells_of(config: DictConfig) -> Iterator[Cell]:
    """Every cell of a configuration, built. Raises ValueError for what does not fit together."""
    for place, plain in cell_configs(config):
        yield cell_of(plain, place, _chosen(place.setting))


def value_at(config: DictConfig, key: str, *, otherwise: object) -> object:
    """What a configuration has at a dotted key."""
    path, _, name = key.rpartition(".")
    node = OmegaConf.select(config, path) if path else config
    if not isinstance(node, DictConfig) or name not in node:
        return otherwise
    return _plain(node[name])


def _plain(node: object) -> Any:
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def _but(mapping: Mapping[Any, Any], keys: set[str]) -> dict[str, Any]:
    return {str(key): value for key, value in mapping.items() if str(key) not in keys}


def _given() -> dict[str, str]:
    """What the command line says, by key."""
    words = (str(override).lstrip("+~") for override in HydraConfig.get().overrides.task)
    return {word.partition("=")[0]: word for word in words}


def _axes_given(matrix: Mapping[str, object]) -> list[str]:
    """A sentence for each axis that is none, since the command line gives its key."""
    return [
        f"{word}: no axis of this run, which would else have {axis} at each of {matrix[axis]}"
        for axis, word in _given().items()
        if axis in matrix
    ]


def _chosen(setting: Mapping[str, object]) -> dict[str, str]:
    """The file that each group of the configuration was taken from."""
    choices = HydraConfig.get().runtime.choices
    ours = {str(group): value for group, value in choices.items() if "hydra/" not in str(group)}
    return {group: str(setting.get(group, value)) for group, value in ours.items()}


def run(config: DictConfig) -> None:
    """All cells of a configuration; prints the table and mirrors it."""
    plain = as_plain(config)
    cells = list({cell.folder: cell for cell in cells_of(config)}.values())
    if not cells:
        raise ValueError("skip leaves no cell of the matrix")
    for said in _axes_given(plain["matrix"]):
        print(said, file=sys.stderr)
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
    settings = {cell.folder.name: cell.setting for cell in cells if not cell.varied}
    print_cells(rows.loc[[*settings]], settings, plain["compare"], shows=plain["shows"])
    print_varied([cell.varied for cell in cells if cell.varied])
    log_scenario(config.tracking, scenario=config.name, rows=rows, figures=(), folder=folder.parent)


def sentence(error: BaseException) -> str:
    """One line that names what is wrong, without the frame Hydra puts around it."""
    while error.__cause__ is not None and isinstance(error, HydraException):
        error = error.__cause__
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return unknown_name(group, name, dict.fromkeys(error.options))
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and error.full_key:
        return no_key(str(error.full_key), tuple(map(str, error.parent_node or ())))
    if said := _renamed(error):
        return said
    if isinstance(error, RecursionError):
        return f"{FILES.latest}: nested too deeply, or its defaults lead back to it"
    if said := FILES.sentence(str(error)):
        return said
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    if isinstance(error, ValidationError | InterpolationKeyError) and error.full_key:
        return f"{error.full_key}: {first}"
    if isinstance(error, OverrideParseException):
        # The first line may only say that it could not be read, the second why.
        return f"{error.override}: {lines[1] if len(lines) > 2 else first}"
    return first


def _renamed(error: BaseException) -> str | None:
    """Where a reference, or what was to be taken out, bears a name that its key had before."""
    if not isinstance(error, ConfigCompositionException | InterpolationKeyError):
        return None
    said = (renamed_key(name) for name in re.findall(r"'([\w.]+)'", str(error)))
    return next(filter(None, said), None)


class Refused(SystemExit):
    """Bad input, said already; `code` is the exit code."""

    code: int


def main() -> int:
    """Parse the command line and run. Returns the exit code."""
    # Hydra would print its own report and exit with 1; we want the exception.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        sys.argv[1:] = without_trust(sys.argv[1:])
        hydra.main(config_path="../scenarios", config_name="run", version_base="1.3")(_job)()
    except _BAD_INPUT as error:
        return _refused(error)
    except Refused as refused:
        return refused.code
    except KeyboardInterrupt:
        print("interrupted; finished cells are kept", file=sys.stderr)
        return INTERRUPTED
    finally:
        shutil.rmtree(_SCRATCH, ignore_errors=True)
    return 0


def _end(code: int) -> NoReturn:
    """End the process at its last word.

    Runs are written and Ray's processes told to end by then. Python would go on to take libraries
    apart, Ray's above all: seconds on a busy machine, of whoever waits for the command.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _job(config: DictConfig) -> None:
    """Run, and leave before Hydra adds words of its own to an error."""
    try:
        run(config)
    except _BAD_INPUT as error:
        raise Refused(_refused(error)) from None


def _refused(error: Exception) -> int:
    print(f"error: {sentence(error)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    _end(main())
