"""A composed configuration with other values on some of its keys, resolved to plain values.

To copy and resolve one takes longer than to build a cell of it, and a sweep asks for thousands that
differ in few keys. A value that no interpolation refers to is put in its place in what was resolved
before; OmegaConf says once what it makes of it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

KEPT = 16
"""Resolved configurations that further values are put into."""

_RELATIVE = re.compile(r"\$\{\s*\.")
_NAMES = re.compile(r"[A-Za-z_][\w.]*")


class Resolved:
    """See the module. The configuration itself does not change."""

    def __init__(self, config: DictConfig) -> None:
        self._config, self._raw = config, plainly(config, resolve=False)
        self._values: dict[tuple[str, str], Any] = {}
        self._resolved: dict[str, dict[str, Any]] = {}
        texts = list(_interpolations(self._raw))
        self._named = {name.rstrip(".") for text in texts for name in _NAMES.findall(text)}
        # What is missing, and what a relative interpolation refers to, only OmegaConf can say.
        self._all_by_omegaconf = bool(OmegaConf.missing_keys(config)) or any(
            map(_RELATIVE.search, texts)
        )

    def at(self, axes: Mapping[str, object]) -> dict[str, Any]:
        """The configuration with these values, not checked; mappings in it may be shared.

        Raises OmegaConf's errors for a key that is not there and a value that it may not have.
        """
        alone = {key: value for key, value in axes.items() if self._stands_alone(key, value, axes)}
        rest = {key: value for key, value in axes.items() if key not in alone}
        if (asked := repr(rest)) not in self._resolved:
            if len(self._resolved) == KEPT:
                self._resolved.clear()
            self._resolved[asked] = plain_of(self._with(rest))
        plain = self._resolved[asked]
        for key, value in alone.items():
            plain = _put(plain, key.split("."), self._value(key, value))
        return plain

    def _stands_alone(self, key: str, value: object, axes: Mapping[str, object]) -> bool:
        """Whether a key is one of mappings as written, and nothing else follows from it.

        Nor may another axis be in it or hold it; a value that is a mapping would be merged.
        """
        others = self._named.union(other for other in axes if other != key)
        return not (
            self._all_by_omegaconf
            or value_at(self._raw, key, otherwise=self) is self
            or isinstance(value, Mapping)
            or any(_interpolations(value))
            or any(_overlap(key, other) for other in others)
        )

    def _value(self, key: str, value: object) -> Any:
        """What OmegaConf makes of a value of a key."""
        if (asked := (key, repr(value))) not in self._values:
            self._values[asked] = plainly(OmegaConf.select(self._with({key: value}), key))
        return self._values[asked]

    def _with(self, axes: Mapping[str, object]) -> DictConfig:
        config = self._config.copy()
        for key, value in axes.items():
            OmegaConf.update(config, key, value, force_add=False)
        return config


def plain_of(config: DictConfig) -> dict[str, Any]:
    """A configuration as plain values, resolved. Raises OmegaConf's errors, as for missing ones."""
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def plainly(node: object, *, resolve: bool = True) -> Any:
    """A node as plain values."""
    return OmegaConf.to_container(node, resolve=resolve) if OmegaConf.is_config(node) else node


def value_at(plain: Mapping[str, Any], key: str, *, otherwise: object) -> object:
    """What a plain configuration has at a dotted key."""
    *path, name = key.split(".")
    node: Any = plain
    for part in path:
        node = node.get(part) if isinstance(node, Mapping) else None
    return node.get(name, otherwise) if isinstance(node, Mapping) else otherwise


def _interpolations(value: object) -> Iterator[str]:
    """Every text of a tree that refers to something."""
    if isinstance(value, str):
        yield from (value,) if "${" in value else ()
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _interpolations(part)


def _overlap(key: str, other: str) -> bool:
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def _put(tree: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """The tree with a value at a path that it has; what is beside the path is shared."""
    first, *rest = path
    return {**tree, first: _put(tree[first], rest, value) if rest else value}
