"""Are configured values what a constructor asks for? One sentence when not."""

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from pydoc import ErrorDuringImport, locate
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_ACCEPTS: dict[object, tuple[type, ...]] = {
    int: (int,),
    float: (int, float),
    bool: (bool,),
    str: (str,),
    NoneType: (NoneType,),
}
_NAMES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text"}


def checked(path: str, node: object, offered: Collection[str] = ()) -> type:
    """The class that a node names in `_target_`, when its other keys suit it.

    `path` is the node's place in the configuration, `offered` the arguments that the caller adds.
    Nodes inside are checked too. Raises ValueError for a name that does not exist, an unknown
    key, a missing one and a value of a wrong type; types are looked at where they are plain (int,
    float, bool, str), sequences and alternatives of those, or classes that a node must name.
    """
    if not isinstance(node, Mapping) or "_target_" not in node:
        raise ValueError(f"{path} has no _target_")
    try:
        target = locate(str(node["_target_"]))
    except ErrorDuringImport as error:
        raise ValueError(f"{path}._target_={node['_target_']}: {error.value}") from None
    if not isinstance(target, type):
        raise ValueError(f"{path}._target_={node['_target_']} names no class")
    known = inspect.signature(target).parameters
    hints = get_type_hints(vars(target).get("__init__", target))
    for name, value in node.items():
        if name.startswith("_"):
            continue
        if name not in known:
            raise ValueError(f"{path}.{name}={value} is not an option of {target.__name__}")
        _check(f"{path}.{name}", value, hints.get(name, object))
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in node and name not in offered:
            raise ValueError(f"{path}.{name} is missing, {target.__name__} needs it")
    return target


def _check(path: str, value: object, hint: Any) -> None:
    if isinstance(value, Mapping) and "_target_" in value:
        _check_node(path, value, hint)
    elif get_origin(hint) is Sequence and isinstance(value, list):
        for place, item in enumerate(value):
            _check(f"{path}[{place}]", item, get_args(hint)[0])
    elif not _fits(value, hint):
        raise ValueError(f"{path}={value!r} is not {_name(hint)}")


def _check_node(path: str, node: Mapping[str, object], hint: Any) -> None:
    """A node builds what its key asks for; protocols are left to the type checker."""
    target = checked(path, node)
    is_class = isinstance(hint, type) and not getattr(hint, "_is_protocol", False)
    if is_class and not issubclass(target, hint):
        raise ValueError(f"{path} is a {target.__name__}, not {_name(hint)}")


def _fits(value: object, hint: Any) -> bool:
    if hint is Any or hint is object:
        return True
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, choice) for choice in get_args(hint))
    if hint not in _ACCEPTS:
        # A class, which only a node can give, or a container, which we do not look into.
        return get_origin(hint) not in (None, Sequence)
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, _ACCEPTS[hint]) and (hint is bool or not isinstance(value, bool))


def _name(hint: Any) -> str:
    """A type as a sentence can say it."""
    if get_origin(hint) is Sequence:
        return f"a list, each {_name(get_args(hint)[0])}"
    if hint in _NAMES:
        return _NAMES[hint]
    return getattr(hint, "__name__", str(hint))
