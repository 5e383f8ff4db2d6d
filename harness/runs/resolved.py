"""A composed configuration with other values on some of its keys, resolved to plain values.

To copy and resolve one takes ten times as long as to build a cell of it, and a sweep asks for
thousands that differ in few keys. A value that no interpolation refers to is put in its place in
what was resolved before; OmegaConf says once what it makes of it.
"""

import re
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

_RELATIVE = re.compile(r"\$\{\s*\.")
_NAMES = re.compile(r"[A-Za-z_][\w.]*")


class Resolved:
    """See the module. The configuration itself does not change."""

    def __init__(self, config: DictConfig) -> None:
        self._config = config
        self._values: dict[tuple[str, str], Any] = {}
        self._shared: dict[str, dict[str, Any]] = {}
        texts = list(_interpolations(OmegaConf.to_container(config)))
        # What a relative one refers to, and what is missing, only OmegaConf can say.
        self._is_plain = not OmegaConf.missing_keys(config) and not any(
            map(_RELATIVE.search, texts)
        )
        self._named = {name.rstrip(".") for text in texts for name in _NAMES.findall(text)}

    def at(self, axes: Mapping[str, object]) -> dict[str, Any]:
        """The configuration with these values, not checked; mappings in it may be shared.

        Raises OmegaConf's errors for a key that is not there and a value that it may not have.
        """
        alone = {key: value for key, value in axes.items() if self._stands_alone(key, value, axes)}
        rest = {key: value for key, value in axes.items() if key not in alone}
        if (shared := repr(rest)) not in self._shared:
            # Cells that share what is resolved stand beside each other.
            self._shared = {shared: _plain(self._with(rest))}
        plain = self._shared[shared]
        for key, value in alone.items():
            plain = _put(plain, key.split("."), self._value(key, value))
        return plain

    def _stands_alone(self, key: str, value: object, axes: Mapping[str, object]) -> bool:
        """Whether nothing else follows from a key, and none of the others is in it or holds it."""
        parts = value if isinstance(value, list) else [value]
        is_plain = all(isinstance(part, bool | int | float | str | None) for part in parts)
        others = {*self._named, *(other for other in axes if other != key)}
        return (
            self._is_plain
            and is_plain
            and not any(isinstance(part, str) and "${" in part for part in parts)
            and not any(_overlap(key, other) for other in others)
        )

    def _value(self, key: str, value: object) -> Any:
        """What OmegaConf makes of a value of a key."""
        if (asked := (key, repr(value))) not in self._values:
            node = OmegaConf.select(self._with({key: value}), key)
            self._values[asked] = (
                OmegaConf.to_container(node) if OmegaConf.is_config(node) else node
            )
        return self._values[asked]

    def _with(self, axes: Mapping[str, object]) -> DictConfig:
        config = self._config.copy()
        for key, value in axes.items():
            OmegaConf.update(config, key, value, force_add=False)
        return config


def _plain(config: DictConfig) -> dict[str, Any]:
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _interpolations(value: object) -> Any:
    """Every text of a tree that refers to something."""
    if isinstance(value, dict):
        for part in value.values():
            yield from _interpolations(part)
    elif isinstance(value, list):
        for part in value:
            yield from _interpolations(part)
    elif isinstance(value, str) and "${" in value:
        yield value


def _overlap(key: str, other: str) -> bool:
    return key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.")


def _put(tree: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """The tree with a value at a path that it has; what is beside the path is shared."""
    first, *rest = path
    return {**tree, first: _put(tree[first], rest, value) if rest else value}
