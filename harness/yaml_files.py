"""YAML that a person writes: read only where it says one thing, and as much as it seems to.

YAML can hold more than a configuration: tags that name classes, keys that are there twice, a few
lines that unfold to billions of values. What a file may not say is one sentence with its line.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness import inputs
from harness.paths import ROOT

DEEPEST = 50
"""Levels of lists and mappings in each other."""
MOST_VALUES = 100_000
"""Of a file, where an alias counts as all that it stands for."""

_TAGS = {f"tag:yaml.org,2002:{it}" for it in ("str", "int", "float", "bool", "null", "seq", "map")}
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DATE = "tag:yaml.org,2002:timestamp"


class Loader(_LOADER):  # type: ignore[misc]
    """What reads plain values: compiled code, where PyYAML has it. A date is a text."""

    yaml_implicit_resolvers: ClassVar[Any] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _DATE]
        for first, resolvers in _LOADER.yaml_implicit_resolvers.items()
    }


DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""What writes them."""


def read_yaml(path: Path) -> Any:
    """What a file holds: plain mappings, lists and values.

    Raises ValueError, one sentence with file and line, where it cannot be read or may not say so.
    """
    text = text_of(path)
    check_yaml(text, str(path), loader=Loader)
    try:
        return yaml.load(text, Loader=Loader)
    except (yaml.YAMLError, ValueError) as error:
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
    """What a parser says, in a line."""
    return " ".join(str(error).split())


def check_yaml(text: str, name: str, *, loader: Any = yaml.SafeLoader) -> Mapping[str, int]:
    """The line of every dotted key of a text, whose name a sentence gives.

    `loader` is of the kind that is going to read it: they do not refuse quite the same.

    Raises ValueError where it is no YAML, and for a key that is there twice or is no plain value, a
    tag, nesting or unfolding without end, and 1:30, which YAML would read as 90.
    """
    reader = _Reader()
    mark = None
    try:
        for event in yaml.parse(text, Loader=loader):
            mark = event.start_mark
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        mark, said = error.problem_mark or mark, f"{error.problem or error.context}"
    except yaml.YAMLError as error:
        said = in_one_line(error)
    except ValueError as error:
        said = str(error)
    else:
        return MappingProxyType(reader.lines)
    raise ValueError(f"{name} line {mark.line + 1 if mark else 1}: {said}") from None


@dataclass(slots=True)
class _Open:
    """A list or mapping that has not ended yet."""

    path: str
    is_mapping: bool
    anchor: str | None
    values: int = 1
    keys: dict[str, int] = field(default_factory=dict)
    key: str | None = None  # of the value that comes next


class _Reader:
    """Takes a file's events in their order."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self._open: list[_Open] = []
        self._values: dict[str, int] = {}  # that an anchor stands for

    def take(self, event: Any) -> None:
        """Raises ValueError for what a file may not say."""
        if isinstance(event, yaml.CollectionEndEvent):
            self._end()
        elif isinstance(event, yaml.NodeEvent):
            if isinstance(event, yaml.ScalarEvent) and self._is_key():
                self._take_key(event)
                return
            self._take_value(event)

    def _is_key(self) -> bool:
        return bool(self._open) and self._open[-1].is_mapping and self._open[-1].key is None

    def _take_key(self, event: Any) -> None:
        top, key = self._open[-1], str(event.value)
        if key in top.keys:
            raise ValueError(
                f"{_under(top.path, key)} is there twice, first in line {top.keys[key]}"
            )
        top.keys[key] = event.start_mark.line + 1
        top.key = key
        self.lines.setdefault(_under(top.path, key), event.start_mark.line + 1)

    def _take_value(self, event: Any) -> None:
        if self._is_key():
            raise ValueError("a key must be a plain value")
        path = self._place()
        tag = getattr(event, "tag", None)
        if tag not in (None, "!", *_TAGS):
            raise ValueError(f"{path or 'the file'} has the tag {tag}, it must be a plain value")
        if isinstance(event, yaml.CollectionStartEvent):
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            self._open.append(_Open(path, is_mapping, event.anchor))
            if len(self._open) > DEEPEST:
                raise ValueError(f"{path[:60]}... is nested deeper than {DEEPEST} levels")
            return
        self._count(self._values_of(event, path))

    def _values_of(self, event: Any, path: str) -> int:
        """How many values a scalar or an alias is."""
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._values:
                raise ValueError(f"{path} is *{event.anchor}, which holds itself or is not there")
            return self._values[event.anchor]
        if event.implicit[0] and _SEXAGESIMAL.fullmatch(event.value):
            raise ValueError(f"{path}={event.value} would be read as a number to the base of 60")
        if event.anchor:
            self._values[event.anchor] = 1
        return 1

    def _end(self) -> None:
        ended = self._open.pop()
        if ended.anchor:
            self._values[ended.anchor] = ended.values
        self._count(ended.values)

    def _count(self, values: int) -> None:
        """A value of the list or mapping that is open is whole."""
        total = values
        if self._open:
            top = self._open[-1]
            top.values += values
            top.key = None
            total = top.values
        if total > MOST_VALUES:
            raise ValueError(f"this unfolds to more than {MOST_VALUES:,} values")

    def _place(self) -> str:
        """Where the next value stands."""
        if not self._open:
            return ""
        top = self._open[-1]
        return _under(top.path, top.key) if top.key is not None else f"{top.path}[]"


def _under(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def read_policy(path: Path) -> Any:
    """What a file as in scenarios/policy says, references to `policy` resolved, for `build`.

    Raises ValueError, naming the file, where it cannot be read or refers to what is not in it.
    """
    node = read_yaml(path)
    try:
        return OmegaConf.to_container(OmegaConf.create({"policy": node}), resolve=True)["policy"]
    except OmegaConfBaseException as error:
        raise ValueError(f"{path}: {in_one_line(error)}") from None


FURTHER_POLICY = "HARNESS_POLICY"
"""Environment variable with the file of a policy outside the tree that tests take in, too."""


def policy_files() -> list[Path]:
    """Files of scenarios/policy that name a class; the others are presets that extend one."""
    found = sorted((ROOT / "scenarios" / "policy").glob("*.yaml"))
    if further := os.environ.get(FURTHER_POLICY):
        found.append(Path(further))
    return [path for path in found if "\n_target_:" in "\n" + path.read_text(encoding="utf-8")]
