"""YAML files of a configuration, as OmegaConf reads them: a key that is there twice is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config import inputs
from harness.config.engine_limits import USUAL, with_limits
from harness.config.paths import ROOT

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DATE = "tag:yaml.org,2002:timestamp"


class Loader(_LOADER):  # type: ignore[misc]
    """Reads plain values that were written by `DUMPER`. A date is a text."""

    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _DATE]
        for first, resolvers in _LOADER.yaml_implicit_resolvers.items()
    }


DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""Writes plain values."""


def read_yaml(path: Path) -> Any:
    """A file's plain mappings, lists and values, references as written. ValueError names it."""
    try:
        return OmegaConf.to_container(OmegaConf.create(text_of(path)))
    except yaml.YAMLError as error:
        raise ValueError(yaml_sentence(error, str(path))) from None
    except AssertionError:
        raise ValueError(f"{path} holds neither keys nor a list") from None
    except (OmegaConfBaseException, ValueError) as error:
        raise ValueError(f"{path}: {in_one_line(error)}") from None


def text_of(path: Path) -> str:
    """A file's text. Raises ValueError, naming the file, where there is none or it is no text."""
    try:
        return inputs.read(path).decode("utf-8")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8: {error.reason}") from None


def in_one_line(error: Exception) -> str:
    """The text of an error, in a line."""
    return " ".join(str(error).split())


def yaml_sentence(error: yaml.YAMLError, name: str) -> str:
    """What a parser says of a file of this name, with the line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"{name}: {in_one_line(error)}"
    return f"{name} line {mark.line + 1}: {getattr(error, 'problem', None) or in_one_line(error)}"


def read_choice(group: str, name: str) -> DictConfig:
    """A file of a group of scenarios/ over the files of its group that its `defaults` name."""
    own = OmegaConf.load(ROOT / "scenarios" / group / f"{name}.yaml")
    assert isinstance(own, DictConfig)
    below = [_below(group, entry) for entry in own.pop("defaults", ()) if entry != "_self_"]
    whole = OmegaConf.merge(*below, own)
    assert isinstance(whole, DictConfig)
    return whole


def _below(group: str, entry: str | Mapping[str, str | None]) -> DictConfig:
    """An entry of `defaults`: a file of the group, or {KEY: NAME}, a file of the group below it."""
    if isinstance(entry, str):
        return read_choice(group, entry.removesuffix("@_here_"))
    return OmegaConf.create(
        {
            key: None if name is None else read_choice(f"{group}/{key}", name)
            for key, name in entry.items()
        }
    )


def read_policy(path: Path, limits: Mapping[str, int] = USUAL) -> Any:
    """A file as in scenarios/policy, for an engine of these limits. ValueError names the file.

    References to `policy` are resolved.
    """
    node = read_yaml(path)
    try:
        whole = OmegaConf.to_container(OmegaConf.create({"policy": node}), resolve=True)
        return with_limits(whole["policy"], limits)
    except OmegaConfBaseException as error:
        raise ValueError(f"{path}: {in_one_line(error)}") from None


def policy_files() -> list[Path]:
    """Files of scenarios/policy that name a class; the others are presets that extend one."""
    found = sorted((ROOT / "scenarios" / "policy").glob("*.yaml"))
    return [path for path in found if "\n_target_:" in "\n" + path.read_text(encoding="utf-8")]
