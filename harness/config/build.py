"""Objects from plain nodes (`_target_` and keywords), as configuration files hold them.

A node is checked before anything is built: may its class be built, are its values what the
constructor asks for? A file may come from another person, so it may name classes of the
project alone, and of the packages that the user trusts (`harness.config.trust`).
"""

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from pydoc import ErrorDuringImport, locate
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from harness.config.ranges_of_units import check_range
from harness.config.trust import TRUST, is_trusted

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


def build(
    node: object,
    *,
    path: str = "",
    offered: Mapping[str, object] = _NOTHING,
    kind: Any = object,
) -> Any:
    """What a node describes, the nodes inside it first; lists and mappings are new ones.

    `path` is the node's place in the configuration, `kind` the class or protocol that is asked for
    there. Of what is `offered`, a constructor, also one inside, gets the arguments that it has and
    the node does not give. Raises ValueError, in one sentence, for what `checked` refuses and for
    what a constructor raises.
    """
    checked(path, node, offered, kind)
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
    wanted = _parameters(target)
    given = {name: item for name, item in offered.items() if name in wanted and name not in made}
    if value.get(PARTIAL):
        return partial(target, **made, **given)
    try:
        return target(**made, **given)
    except ValueError:
        raise
    except Exception as error:  # of any kind: a machine, a library, a file that is not there
        raise ValueError(str(error) or type(error).__name__) from error


def checked(path: str, node: object, offered: Collection[str] = (), kind: Any = object) -> type:
    """The class that a node names in `_target_`, when its other keys suit it.

    `path` is the node's place in the configuration, `offered` the arguments that the caller adds,
    `kind` what is asked for there. What is inside is checked too, at every depth: names, trust,
    keys and units. Types are looked at where they are plain (int, float, bool, str), sequences,
    mappings and alternatives of those, or classes that a node must name. Raises ValueError.
    """
    if not isinstance(node, Mapping) or TARGET not in node:
        raise ValueError(f"{path or 'the node'} has no {TARGET}")
    target = _class(path, node)
    _check_kind(path, node, target, kind)
    known, hints = _parameters(target), _hints(target)
    for name, value in _values(node):
        if name not in known:
            raise ValueError(f"{_at(path, name)}={value} is not an option of {target.__name__}")
        _check(_at(path, name), value, hints.get(name, object), offered)
    for name, parameter in known.items():
        given = name in node or name in offered or node.get(PARTIAL)
        if parameter.default is parameter.empty and not given:
            raise ValueError(f"{_at(path, name)} is missing, {target.__name__} needs it")
    return target


@cache
def _parameters(target: type) -> Mapping[str, inspect.Parameter]:
    """What a constructor asks for; it is asked for every cell of a sweep."""
    return inspect.signature(target).parameters


@cache
def _hints(target: type) -> Mapping[str, Any]:
    return get_type_hints(vars(target).get("__init__", target))


def _values(node: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The keys that are a constructor's, or of a plain mapping all."""
    yield from ((name, value) for name, value in node.items() if name not in (TARGET, PARTIAL))


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else str(name)


_found: dict[str, type] = {}
"""Classes that were named before: every cell of a scenario names the same."""


def _class(path: str, node: Mapping[str, object]) -> type:
    """The class that a node names; what is not trusted is not imported. Raises ValueError."""
    key, name = _at(path, TARGET), str(node[TARGET])
    if not is_trusted(name):
        raise ValueError(f"{key}={name} names no class of this project; {TRUST}")
    try:
        target = _found.get(name) or locate(name)
    except ErrorDuringImport as error:
        if isinstance(error.value, KeyboardInterrupt):
            raise error.value from None
        raise ValueError(f"{key}={name}: {error.value}") from None
    if not isinstance(target, type):
        raise ValueError(f"{key}={name} names no class")
    if not is_trusted(f"{target.__module__}.{target.__qualname__}"):
        raise ValueError(f"{key}={name} is a class of {target.__module__}; {TRUST}")
    _found[name] = target
    return target


def _check_kind(path: str, node: Mapping[str, object], target: type, kind: Any) -> None:
    """A node builds what its key asks for: a subclass, or a class with a protocol's methods."""
    later = node.get(PARTIAL, False)
    if not isinstance(later, bool):
        raise ValueError(f"{_at(path, PARTIAL)}={later!r} is not true or false")
    if get_origin(kind) is Callable:
        return
    if later and kind is not object:
        raise ValueError(f"{_at(path, PARTIAL)}=True, but {path} is needed at once")
    lacking = next((name for name in _methods(kind) if not hasattr(target, name)), None)
    if lacking:
        said = f"{path} is a {target.__name__}, not {_name(kind)}: it has no {lacking}()"
        raise ValueError(said)
    is_class = isinstance(kind, type) and not getattr(kind, "_is_protocol", False)
    if is_class and not issubclass(target, kind):
        raise ValueError(f"{path} is a {target.__name__}, not {_name(kind)}")


def _methods(kind: Any) -> Iterator[str]:
    """What a protocol's objects can do; nothing for what is no protocol."""
    if getattr(kind, "_is_protocol", False):
        for base in kind.__mro__:
            plain = ((name, it) for name, it in vars(base).items() if not name.startswith("_"))
            yield from (name for name, it in plain if inspect.isfunction(it))


def _check(path: str, value: object, hint: Any, offered: Collection[str]) -> None:
    if isinstance(value, Mapping) and TARGET in value:
        kinds = [kind for kind in _choices(hint) if kind is not NoneType]
        is_class = all(map(_is_kind, kinds))
        only = kinds[0] if is_class and len(kinds) == 1 else object
        target = checked(path, value, offered, only)
        if is_class and len(kinds) > 1:
            _check_one_of(path, value, kinds, target)
        return
    if isinstance(value, list):
        for place, item in enumerate(value):
            _check(f"{path}[{place}]", item, _inside(hint, _LISTS), offered)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _check(_at(path, name), item, _inside(hint, _MAPPINGS), offered)
    if not _fits(value, hint):
        raise ValueError(f"{path}={value!r:.100} is not {_name(hint)}")
    check_range(path, value)


def _check_one_of(
    path: str, node: Mapping[str, object], kinds: Sequence[Any], target: type
) -> None:
    """A node builds one of several classes. Raises ValueError."""
    for kind in kinds:
        try:
            _check_kind(path, node, target, kind)
        except ValueError:
            continue
        return
    raise ValueError(f"{path} is a {target.__name__}, not {' or '.join(map(_name, kinds))}")


_LISTS = (Sequence, list, tuple)
_MAPPINGS = (Mapping, dict)


def _choices(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a type."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _inside(hint: Any, containers: tuple[object, ...]) -> Any:
    """What the items of such a container must be; anything where the type does not say."""
    for choice in _choices(hint):
        if get_origin(choice) in containers:
            return get_args(choice)[0 if containers is _LISTS else 1]
    return object


def _is_kind(hint: Any) -> bool:
    """Whether a type says of what class a node must be."""
    return isinstance(hint, type) or get_origin(hint) is Callable


def _fits(value: object, hint: Any) -> bool:
    if hint is Any or hint is object:
        return True
    choices = _choices(hint)
    if len(choices) > 1:
        return any(_fits(value, choice) for choice in choices)
    container = get_origin(hint)
    if container in _LISTS:
        return isinstance(value, list)
    if container in _MAPPINGS:
        return isinstance(value, Mapping)
    if hint not in _ACCEPTS:
        # A class or a callable, which only a node can give.
        return False
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, _ACCEPTS[hint]) and (hint is bool or not isinstance(value, bool))


def _name(hint: Any) -> str:
    """A type as a sentence can say it."""
    if get_origin(hint) is Sequence:
        return f"a list, each {_name(get_args(hint)[0])}"
    if get_origin(hint) is Mapping:
        return f"keys with values, each {_name(get_args(hint)[1])}"
    if hint in _NAMES:
        return _NAMES[hint]
    return getattr(hint, "__name__", str(hint))
