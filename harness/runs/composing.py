"""Which files a configuration was composed of, and what a sentence about one of them says."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.costs.model_facts import unknown_name
from harness.paths import ROOT
from harness.runs.config import KEYS
from harness.yaml_files import check_yaml, read_yaml, text_of

_COMPOSING = re.compile(
    r"In '(?P<config>[^']+)': \w+ raised while composing config:\n(?P<said>.+)"
    r"(?:\n\s+full_key: (?P<key>.*))?"
)
_UNKNOWN = re.compile(r"Key '[^']*' not in '\w+'")


class Files:
    """The files that were read, the latest last."""

    def __init__(self) -> None:
        self._lines: dict[Path, Mapping[str, int]] = {}
        self._texts: dict[Path, str] = {}

    def take(self, path: Path) -> bool:
        """Look at a file before it is read; whether it is another than the last time.

        Raises ValueError for what it may not say.
        """
        if not path.is_file():
            return True
        self._lines[path] = self._lines.pop(path, {})
        text = text_of(path)
        if self._texts.get(path) == text:
            return False
        self._lines[path] = {}
        self._lines[path] = check_yaml(text, named(path))
        _refuse_hydra(path, text, self._lines[path])
        self._texts[path] = text
        return True

    @property
    def latest(self) -> str:
        """The file that was read last."""
        return named(next(reversed(self._lines))) if self._lines else "the configuration"

    def sentence(self, text: str) -> str | None:
        """What a report of composing says, with file, line, key and value; None for others."""
        found = _COMPOSING.match(text)
        if found is None:
            return None
        key, said = found["key"] or "", found["said"].strip()
        for path in reversed(self._lines):
            if f"{path.with_suffix('')}".endswith(f"/{found['config']}"):
                return _about(path, self._lines[path], key, said)
        return f"{found['config']}: {key}: {said}"


_OWN_CONFIG = ROOT / "scenarios" / "run.yaml"
_HYDRAS_PACKAGE = re.compile(r"^\s*#\s*@package\s+hydra\b", re.MULTILINE)


def _refuse_hydra(path: Path, text: str, lines: Mapping[str, int]) -> None:
    """Raise ValueError for a file that says something to Hydra itself.

    By its own keys it builds any class, writes files and sets variables, those of trust as well.
    """
    if "hydra" not in text or path == _OWN_CONFIG:
        return
    line = next((lines[key] for key in lines if key.partition(".")[0] == "hydra"), None)
    content = read_yaml(path)
    defaults = content.get("defaults", ()) if isinstance(content, Mapping) else ()
    if line is not None or "hydra" in str(defaults) or _HYDRAS_PACKAGE.search(text):
        at = f" line {line}" if line is not None else ""
        raise ValueError(f"{named(path)}{at}: keys of Hydra's own are not read from a file")


def no_key(key: str, beside: tuple[str, ...]) -> str:
    """There is no such key; a mapping that may hold anything wants it added."""
    if not beside:
        return f"{key} is not in the configuration; it can be added as +{key}"
    path = key.rpartition(".")[0]
    known = dict.fromkeys(f"{path}.{name}".lstrip(".") for name in beside)
    return unknown_name("configuration key", key, known)


def named(path: Path) -> str:
    """A file as a person calls it: inside the project from its top."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def _about(path: Path, lines: Mapping[str, int], key: str, said: str) -> str:
    # A file of a group has its keys without the group's name.
    own = next((key[at:] for at in _starts(key) if key[at:] in lines), "")
    line = f" line {lines[own]}" if own else ""
    if _UNKNOWN.match(said):
        below = key.rpartition(".")[0]
        known = {f"{below}.{name}".lstrip("."): None for name in KEYS.get(below, ())}
        said = unknown_name("configuration key", key, known)
    what = f"{key}={_value(read_yaml(path), own)!r:.60}: " if own else ""
    return f"{named(path)}{line}: {what}{said}"


def _starts(key: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer(r"\.", key))]


def _value(content: Any, key: str) -> object:
    """What a file has at a dotted key, of which parts may have dots themselves."""
    if not isinstance(content, Mapping):
        return content
    for name, inside in content.items():
        if key == name:
            return inside
        if key.startswith(f"{name}."):
            return _value(inside, key.removeprefix(f"{name}."))
    return content
