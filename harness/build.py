"""Objects from plain nodes (`_target_` and keywords), as configuration files hold them.

A node is checked before anything is built: are its values what the constructor asks for?
"""

import inspect
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pydoc import ErrorDuringImport, locate
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from harness.renamed import renamed_key, renamed_target

TARGET = "_target_"
"""Names the class of a node."""

PARTIAL = "_partial_"
"""Where true, a node is its class with these keywords and is called later, with the rest."""

_NOTHING: Mapping[str, object] = MappingProxyType({})

_ACCEPTS: dict[object, tuple[type, ...]] = {
    int: (int,),
    float: (int, float),
    bool: (bool,),
    str: (str,),
    NoneType: (NoneType,),
}
_NAMES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text"}


def build(node: object, *, path: str = "", offered: Mapping[str, object] = _NOTHING) -> Any:
    """What a node describes, the nodes inside it first; lists and mappings are new ones.

    `path` is the node's place in the configuration. Of what is `offered`, a constructor, also one
    inside, gets the arguments that it has and the node does not give. Raises ValueError, in one
    sentence, for what `checked` refuses and for what a constructor raises.
    """
    checked(path, node, offered)
    return _built(path, node, offered)


def _built(path: str, value: object, offered: Mapping[str, object]) -> Any:
    if isinstance(value, list):
        return [_built(f"{path}[{place}]", item, offered) for place, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    made = {name: _built(_at(path, name), item, offered) for name, item in _values(value)}
    if TARGET not in value:
        return made
    target = _class(path, value)
    wanted = inspect.signature(target).parameters
    given = {name: item for name, item in offered.items() if name in wanted and name not in made}
    if value.get(PARTIAL):
        return partial(target, **made, **given)
    try:
        return target(**made, **given)
    except ValueError:
        raise
    except Exception as error:  # of any kind: a machine, a library, a file that is not there
        raise ValueError(str(error) or type(error).__name__) from error


def checked(path: str, node: object, offered: Collection[str] = ()) -> type:
    """The class that a node names in `_target_`, when its other keys suit it.

    `path` is the node's place in the configuration, `offered` the arguments that the caller adds.
    Nodes inside are checked too. Raises ValueError for a name that does not exist, an unknown
    key, a missing one and a value of a wrong type; types are looked at where they are plain (int,
    float, bool, str), sequences, mappings and alternatives of those, or classes that a node must
    name.
    """
    if not isinstance(node, Mapping) or TARGET not in node:
        raise ValueError(f"{path or 'the node'} has no {TARGET}")
    target = _class(path, node)
    known = inspect.signature(target).parameters
    hints = get_type_hints(vars(target).get("__init__", target))
    for name, value in _values(node):
        if name not in known:
            said = f"{_at(path, name)}={value} is not an option of {target.__name__}"
            raise ValueError(renamed_key(_at(path, name)) or said)
        _check(_at(path, name), value, hints.get(name, object), offered)
    for name, parameter in known.items():
        given = name in node or name in offered or node.get(PARTIAL)
        if parameter.default is parameter.empty and not given:
            raise ValueError(f"{_at(path, name)} is missing, {target.__name__} needs it")
    return target


def _values(node: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The keys that are a constructor's, or of a plain mapping all."""
    yield from ((name, value) for name, value in node.items() if name not in (TARGET, PARTIAL))


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else str(name)


def _class(path: str, node: Mapping[str, object]) -> type:
    """The class that a node names. Raises ValueError where there is none."""
    key, name = _at(path, TARGET), str(node[TARGET])
    try:
        target = locate(name)
    except ErrorDuringImport as error:
        raise ValueError(f"{key}={name}: {error.value}") from None
    if isinstance(target, type):
        return target
    moved = renamed_target(name)
    raise ValueError(f"{key}: {moved}" if moved else f"{key}={name} names no class")


def _check(path: str, value: object, hint: Any, offered: Collection[str]) -> None:
    if isinstance(value, Mapping) and TARGET in value:
        _check_node(path, value, hint, offered)
    elif get_origin(hint) is Sequence and isinstance(value, list):
        for place, item in enumerate(value):
            _check(f"{path}[{place}]", item, get_args(hint)[0], offered)
    elif get_origin(hint) is Mapping and isinstance(value, Mapping):
        for name, item in value.items():
            _check(_at(path, name), item, get_args(hint)[1], offered)
    elif not _fits(value, hint):
        raise ValueError(f"{path}={value!r} is not {_name(hint)}")


def _check_node(path: str, node: Mapping[str, object], hint: Any, offered: Collection[str]) -> None:
    """A node builds what its key asks for; protocols are left to the type checker."""
    target = checked(path, node, offered)
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
