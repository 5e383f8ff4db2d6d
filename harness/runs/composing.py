"""Configurations as Hydra composes them of files below scenarios/ and words of a command line.

The only file that knows Hydra: what it hands on is plain (`harness.runs.config`).
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
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
from harness.config.hydra_words import literal, word
from harness.config.names import unknown_name
from harness.config.paths import ROOT
from harness.config.yaml_files import yaml_sentence
from harness.costs.engine_kinds import engine_for
from harness.costs.local_hardware import here
from harness.runs.config import RunConfig, check_variant, configuration

BAD_INPUT = (HydraException, OmegaConfBaseException, YAMLError, ValueError, RecursionError)
"""Errors that say what is wrong with the input."""
_COMPOSING = re.compile(
    r"In '(?P<file>[^']+)': \w+ raised while composing config:\n(?P<said>.+)"
    r"(?:\n\s+full_key: (?P<key>.*))?"
)
"""What Hydra says of a file that does not fit: the file below scenarios/, and the key in it."""
_AMBIGUOUS = re.compile(r"Ambiguous value for argument '(?P<word>.*)'")
_OF_SCENARIO: Mapping[str, Any] = {"matrix": {}, "vary": {}, "compare": {}, "vary_at": []}
"""What says which cells there are: it need not be copied for each of them."""

OmegaConf.register_new_resolver("own_folder", lambda: str(scratch.own_folder()), replace=True)
OmegaConf.register_new_resolver("local", lambda name: here()[name], replace=True)
OmegaConf.register_new_resolver("engine_for", engine_for, replace=True)
# Hydra describes a sweep in a file of its own; a run's folder already says all of that.
ConfigStore.instance().store(
    name="scratch", package="hydra.sweep", node={"dir": "${own_folder:}/sweep", "subdir": "."}
)


class Composer:
    """The configurations that a command line stands for.

    `groups` are the groups of files and the file that was chosen of each; those that say where
    cells run are none of a cell's. `given` are the words of the command line by key.
    """

    def __init__(self, config: DictConfig) -> None:
        typed = OmegaConf.to_container(HydraConfig.get().overrides, resolve=False)
        assert isinstance(typed, dict)
        where = [word for word in typed["hydra"] if word.startswith("hydra.searchpath=")]
        self._config, self._words = config, [*where, *typed["task"]]
        self.groups = {
            str(group): str(value) for group, value in HydraConfig.get().runtime.choices.items()
        }
        self.given = {it.lstrip("+~").partition("=")[0]: it.lstrip("+~") for it in typed["task"]}
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._in_use: dict[tuple[str, ...], DictConfig] = {}

    def whole(self) -> RunConfig:
        """The configuration of all cells. Raises ValueError for what it may not say."""
        return configuration({**_plain(self._config), "chosen": self._chosen({})})

    def cell(self, setting: Mapping[str, object]) -> RunConfig:
        """The configuration with a value on every axis of a setting; Raises ValueError likewise."""
        picks = tuple(word(axis, it) for axis, it in setting.items() if axis in self.groups)
        axes = {axis: it for axis, it in setting.items() if axis not in self.groups}
        if picks not in self._composed:
            composed = hydra.compose("run", overrides=[*self._words, *picks])
            with open_dict(composed):
                composed.update(_OF_SCENARIO)
            self._composed[picks] = composed
        # To copy a configuration takes longer than to resolve it: cells of the same axes share one.
        shared = (*picks, *axes)
        config = self._in_use.get(shared)
        if config is None or any(isinstance(value, Mapping) for value in axes.values()):
            config = self._in_use[shared] = self._composed[picks].copy()
        for axis, value in axes.items():
            OmegaConf.update(config, axis, literal(value), force_add=False)
        return configuration({**_plain(config), "chosen": self._chosen(setting)})

    def value_at(self, setting: Mapping[str, object], key: str, *, otherwise: object) -> object:
        """What the configuration of a setting has at a dotted key, or the file of a group."""
        if key in self.groups:
            return self.groups[key]
        node: Any = self.cell(setting).model_dump()
        for part in key.split("."):
            if not isinstance(node, Mapping) or part not in node:
                return otherwise
            node = node[part]
        return node

    def _chosen(self, setting: Mapping[str, object]) -> dict[str, str]:
        ours = {k: v for k, v in self.groups.items() if "hydra/" not in k and k != "cluster"}
        return {group: str(setting.get(group, value)) for group, value in ours.items()}


def _plain(config: DictConfig) -> dict[str, Any]:
    """A configuration as plain values, resolved. Raises OmegaConf's errors, as for missing ones."""
    check_variant(config.get("variant"))  # other values refer to it
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


@contextmanager
def composed(*words: str) -> Iterator[Composer]:
    """The configurations of a command line, while Hydra knows that command line. Not reentrant."""
    with hydra.initialize_config_dir(str(ROOT / "scenarios"), version_base="1.3"):
        config = hydra.compose("run", overrides=[*words], return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        with open_dict(config):
            del config["hydra"]
        yield Composer(config)


def as_command(job: Callable[[Composer], None]) -> None:
    """Hand what this process's command line stands for to a job: once, or with -m for each value.

    Raises the error of bad input.
    """

    def called(config: DictConfig) -> None:
        job(Composer(config))

    hydra.main(config_path=str(ROOT / "scenarios"), config_name="run", version_base="1.3")(called)()


def sentence(error: BaseException, words: Sequence[str] = ()) -> str:
    """One line that names what is wrong with words, without the frame Hydra puts around it."""
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
    return _first_line(error, words)


def _first_line(error: BaseException, words: Sequence[str]) -> str:
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
        return no_choice(words) or first
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


def no_choice(words: Sequence[str]) -> str:
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
    """What does not fit in a file."""
    return f"{file}.yaml: {key}: {said}" if key else f"{file}.yaml: {said}"
