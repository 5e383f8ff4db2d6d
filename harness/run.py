"""The command: compose a configuration, check it, run its cells, print the table.

    python harness/run.py +scenario=ensembling
    python harness/run.py system=max_heuristic workload.requests=2000
    python harness/run.py -m seed=0,1 system=max_heuristic,min_heuristic

The only file that imports Hydra. Bad input ends in one sentence and exit code 2.
"""

import os
import re
import shlex
import signal
import sys
from pathlib import Path

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
TERMINATED = 128 + signal.SIGTERM
_SWEEP = {"-m", "--multirun"}
_LAST = {INTERRUPTED: "interrupted", TERMINATED: "ended by SIGTERM"}


def _said_last(code: int) -> str:
    return f"{_LAST[code]}; finished cells are kept\n"


def _stop_at_once(kind: int, _: object) -> None:
    """An end while modules are imported: nothing runs yet, and they might take it for an error."""
    os.write(2, _said_last(128 + kind).encode())
    os._exit(128 + kind)


ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    signal.signal(signal.SIGINT, _stop_at_once)
    signal.signal(signal.SIGTERM, _stop_at_once)
    # Started as a script, Python looks for modules in harness/ first, where none may hide a
    # standard one; what we want found is the project.
    sys.path[0] = str(ROOT)

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import hydra
import pandas as pd
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import (
    HydraException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationKeyError,
    InterpolationResolutionError,
    OmegaConfBaseException,
    ValidationError,
)
from yaml import YAMLError

from harness.config import scratch
from harness.config.build import build
from harness.config.hydra_words import word
from harness.config.names import unknown_name
from harness.config.trust import without_trust
from harness.config.yaml_files import yaml_sentence
from harness.costs.engine_kinds import engine_for
from harness.costs.local_hardware import here
from harness.engines.ray_session import RayLost
from harness.runs import failures
from harness.runs.cell_lists import as_it_stands, write_cells
from harness.runs.composed_cells import Matrix, as_plain
from harness.runs.config import KEYS, RunConfig
from harness.runs.ending import by_sigterm, terminate
from harness.runs.figures import check_shown
from harness.runs.limits import loose_limits
from harness.runs.progress import CellProgress
from harness.runs.record import RecordError, read_summaries
from harness.runs.sweep import CellExecutor, Sweep
from harness.runs.table import print_cells, print_varied
from harness.runs.tracking import log_scenario
from harness.runs.unused_gpus import unused_gpus

FAILED = 1
"""Exit code where a cell has failed, or what runs cells or keeps results."""
REFUSED = 2
"""Exit code of bad input, found before anything has run."""

BAD_INPUT = (HydraException, OmegaConfBaseException, YAMLError, ValueError, RecursionError)
"""Errors that say what is wrong with the input."""
_COMPOSING = re.compile(
    r"In '(?P<file>[^']+)': \w+ raised while composing config:\n(?P<said>.+)"
    r"(?:\n\s+full_key: (?P<key>.*))?"
)
"""What Hydra says of a file that does not fit: the file below scenarios/, and the key in it."""
_AMBIGUOUS = re.compile(r"Ambiguous value for argument '(?P<word>.*)'")

OmegaConf.register_new_resolver("own_folder", lambda: str(scratch.own_folder()), replace=True)
OmegaConf.register_new_resolver("local", lambda name: here()[name], replace=True)
OmegaConf.register_new_resolver("engine_for", engine_for, replace=True)
ConfigStore.instance().store(name="schema", node=RunConfig)
# Hydra describes a sweep in a file of its own; a run's folder already says all of that.
ConfigStore.instance().store(
    name="scratch", package="hydra.sweep", node={"dir": "${own_folder:}/sweep", "subdir": "."}
)


def matrix_of(config: DictConfig) -> Matrix:
    """The cells of a configuration, each composed as Hydra does when it is asked for."""
    typed = _overrides()
    where = [word for word in typed["hydra"] if word.startswith("hydra.searchpath=")]
    choices = HydraConfig.get().runtime.choices
    return Matrix(
        config,
        compose=lambda picks: hydra.compose("run", overrides=[*where, *typed["task"], *picks]),
        groups={str(group): str(value) for group, value in choices.items()},
        given=set(_given()),
    )


def _overrides() -> Any:
    """The command line as it was typed: what refers to other keys is worked out in every cell."""
    return OmegaConf.to_container(HydraConfig.get().overrides, resolve=False)


def _given() -> dict[str, str]:
    """What the command line says, by key."""
    words = (word.lstrip("+~") for word in _overrides()["task"])
    return {word.partition("=")[0]: word for word in words}


def _axes_given(matrix: Mapping[str, object]) -> list[str]:
    """A sentence for each axis that is none, since the command line gives its key."""
    return [
        f"{word}: no axis of this run, which would else have {axis} at each of {matrix[axis]}"
        for axis, word in _given().items()
        if axis in matrix
    ]


@contextmanager
def composed(*words: str) -> Iterator[DictConfig]:
    """The configuration of a command line, while Hydra knows that command line. Not reentrant."""
    with hydra.initialize_config_dir(str(ROOT / "scenarios"), version_base="1.3"):
        config = hydra.compose("run", overrides=[*words], return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        with open_dict(config):
            del config["hydra"]
        yield config


def swept(config: DictConfig) -> Sweep:
    """All cells of a configuration, run where they are missing.

    Raises the error of bad input, before anything runs.
    """
    plain = as_plain(config)
    offered = {"workers": plain["workers"]}
    cluster = build(plain["cluster"], path="cluster", offered=offered, kind=CellExecutor)
    matrix = matrix_of(config)
    sweep = Sweep(ROOT / plain["results"] / plain["name"])
    with CellProgress(len(matrix.places)) as progress:
        sweep.run(matrix, cluster, progress)
    return sweep


def run(config: DictConfig) -> int:
    """All cells of a configuration; prints the table and mirrors it. The exit code.

    Raises the error of bad input, before anything runs.
    """
    plain = as_plain(config)
    check_shown(plain["shows"], drawn=plain["uncertainty_draws"] > 0)
    sweep = swept(config)
    if as_it_stands(_given()):
        write_cells(sweep.folder, plain["variant"], sweep.places, varied=plain["variations"])
    for said in _axes_given(plain["matrix"]):
        print(said, file=sys.stderr)
    _report(plain, sweep)
    return FAILED if sweep.failed else 0


def _report(plain: Mapping[str, Any], sweep: Sweep) -> None:
    """Print and mirror what has run; the last line names what has failed."""
    failed = {cell.run for cell in sweep.failed}
    rows = read_summaries(sweep.folder, only=sweep.places.keys() - failed)
    rows = rows.loc[[run for run in sweep.places if run in rows.index]]
    if not rows.empty:
        shown = pd.concat([rows, failures.as_rows(sweep.failed)])
        own = {run: place.setting for run, place in sweep.places.items() if not place.varied}
        shown = shown.loc[[run for run in own if run in shown.index]]
        print_cells(shown, own, plain["compare"], shows=plain["shows"])
        may_vary = plain["vary"] if plain["variant"] == "paper" and not plain["variations"] else ()
        for said in loose_limits(shown, {*_given(), *plain["matrix"]}):
            print(said)
        if idle := unused_gpus(shown):
            print(idle)
        print_varied(
            [place.varied for place in sweep.places.values() if place.varied],
            left_out=[key for key in may_vary if key not in _given()],
        )
        if plain["tracking"] == "wandb":
            log_scenario(plain["name"], rows, folder=sweep.folder.parent)
    if sweep.failed:
        sweep.failed.sort(key=lambda cell: [*sweep.places].index(cell.run))
        sys.stdout.flush()
        last = failures.last_line(sweep.failed, cells=len(sweep.places), folder=sweep.folder)
        print(*failures.sentences(sweep.failed), last, sep="\n", file=sys.stderr)


def sentence(error: BaseException) -> str:
    """One line that names what is wrong, without the frame Hydra puts around it."""
    while error.__cause__ is not None and isinstance(error, HydraException):
        if isinstance(error, OverrideParseException):
            break  # only this error has the word
        error = error.__cause__
    if isinstance(error, YAMLError):
        return yaml_sentence(error, getattr(getattr(error, "problem_mark", None), "name", "YAML"))
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, name = error.missing_cfg_file.rpartition("/")
        return unknown_name(group, name, dict.fromkeys(error.options))
    if isinstance(error, ConfigKeyError | ConfigAttributeError) and error.full_key:
        return _no_key(str(error.full_key), tuple(map(str, error.parent_node or ())))
    if isinstance(error, RecursionError):
        return "the configuration is nested too deeply, or the defaults of a file lead back to it"
    if found := _COMPOSING.match(str(error)):
        return _of_file(found["file"], found["key"] or "", found["said"].strip())
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    """The first line of an error's text, behind the key or the word that it is about."""
    first = next((it.strip() for it in str(error).splitlines() if it.strip()), type(error).__name__)
    if isinstance(error, InterpolationKeyError):
        first += "; a text that has ${ is given with \\${, between quotes"
    if isinstance(error, ValidationError | InterpolationResolutionError) and error.full_key:
        return f"{error.full_key}: {first}"
    if isinstance(error, OverrideParseException):
        hint = _quoted(str(error.override)) or first
        return f"{error.override}: not KEY=VALUE as Hydra reads it: {hint}"
    if first.startswith("Config group override must be"):
        return _no_choice(sys.argv[1:]) or first
    if found := _AMBIGUOUS.match(first):
        each = "give -m for a run of each value, or a list in [ ]"
        return f"{first}: {each}; {_quoted(found['word'])}"
    return first


def _quoted(override: str) -> str:
    """How a shell is given KEY=VALUE whose value is one text; empty for what is none."""
    key, _, value = override.partition("=")
    if not re.fullmatch(r"\+{0,2}[\w./@-]+", key) or not value or value[0] in "[{":
        return ""
    return f"a text is quoted, {shlex.quote(word(key, os.path.expanduser(value)))}"


def _no_choice(words: Sequence[str]) -> str:
    """A sentence on the first word whose value is no name of a group's file; empty for none."""
    parser = OverridesParser.create()
    for said in words:
        group = said.lstrip("+").partition("=")[0]
        if group and (ROOT / "scenarios" / group).is_dir():
            value = parser.parse_override(said).value()
            names = value if isinstance(value, list) else [value]
            if not all(isinstance(name, str) for name in names):
                return f"{said} is no name of a file, as in scenarios/{group}/NAME.yaml"
    return ""


def _no_key(key: str, beside: tuple[str, ...]) -> str:
    """There is no such key; a mapping that may hold anything wants it added."""
    if not beside:
        return f"{key} is not in the configuration; it can be added as +{key}"
    path = key.rpartition(".")[0]
    known = dict.fromkeys(f"{path}.{name}".lstrip(".") for name in beside)
    return unknown_name("configuration key", key, known)


def _of_file(file: str, key: str, said: str) -> str:
    """What does not fit in a file, with the nearest known key where a key is unknown."""
    if re.match(r"Key '[^']*' not in '\w+'", said):
        below = key.rpartition(".")[0]
        known = dict.fromkeys(f"{below}.{name}".lstrip(".") for name in KEYS.get(below, ()))
        said = unknown_name("configuration key", key, known)
    return f"{file}.yaml: {key}: {said}" if key else f"{file}.yaml: {said}"


def main() -> int:
    """Parse the command line and run. Returns the exit code."""
    # Hydra would print its own report and exit with 1; we want the exception.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    codes: list[int] = []
    has_begun = False

    def job(config: DictConfig) -> None:
        nonlocal has_begun
        has_begun = True
        codes.append(_job(config))

    try:
        _refuse_no_folder()
        sys.argv[1:] = without_trust(sys.argv[1:])
        hydra.main(config_path="../scenarios", config_name="run", version_base="1.3")(job)()
        if not codes and _SWEEP.issuperset(word for word in sys.argv[1:] if word[:1] == "-"):
            codes.append(_refused(ValueError("there is nothing to run: a range of -m is empty")))
    except BAD_INPUT as error:
        codes.append(_refused(error))
    except TypeError as error:
        # Hydra's, of a word whose value it cannot compose.
        if has_begun:
            raise
        said = f"{' '.join(sys.argv[1:])}: not what Hydra composes: {error}"
        codes.append(_refused(ValueError(_no_choice(sys.argv[1:]) or said)))
    except KeyboardInterrupt:
        codes = [TERMINATED if by_sigterm.is_set() else INTERRUPTED]
    code = _code_of(codes)
    if code in _LAST:
        print(_said_last(code), end="", file=sys.stderr)
    return code


def _refuse_no_folder() -> None:
    """Raise ValueError where the working folder, which Hydra asks for, has been removed."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise ValueError("the working folder has been removed: change to another one") from None


def _code_of(codes: Sequence[int]) -> int:
    """Of several jobs: that of all where they are the same, else that some have failed."""
    return codes[0] if len(set(codes)) == 1 else FAILED if codes else 0


def _end(code: int) -> NoReturn:
    """End the process at its last word.

    Runs are written and Ray's processes told to end by then. Python would go on to take libraries
    apart, Ray's above all: seconds on a busy machine, for the caller of the command.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    scratch.remove()
    os._exit(code)


def _job(config: DictConfig) -> int:
    """Run; the exit code. Other jobs of the same command go on after an error."""
    try:
        return run(config)
    except (RecordError, RayLost) as error:
        _refused(error)
        return FAILED
    except BAD_INPUT as error:  # among them an OSError: Hydra's, of a file that is not there
        return _refused(error)
    except OSError as error:
        _refused(error)
        return FAILED


def _refused(error: Exception) -> int:
    print(f"error: {sentence(error)}", file=sys.stderr)
    return REFUSED


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)
    _end(main())
