"""Are configured values of the type that a constructor asks for? One sentence when not."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints

_ACCEPTS: dict[type, tuple[type, ...]] = {
    int: (int,),
    float: (int, float),
    bool: (bool,),
    str: (str,),
}


def checked(path: str, node: Mapping[str, Any], target: type) -> None:
    """Raise ValueError for an unknown key, a missing one that nothing provides is left to the call.

    Only plain types are checked: int, float, bool, str and sequences of them.
    """
    hints = (
        get_type_hints(target.__init__) if "__init__" in vars(target) else get_type_hints(target)
    )
    known = inspect.signature(target).parameters
    for name, value in node.items():
        if name.startswith("_"):
            continue
        if name not in known:
            raise ValueError(f"{path}.{name}={value} is not an option of {target.__name__}")
        _check(f"{path}.{name}", value, hints.get(name, object))


def _check(path: str, value: object, hint: Any) -> None:
    if get_origin(hint) is Sequence and isinstance(value, list):
        for item in value:
            _check(path, item, get_args(hint)[0])
        return
    accepted = _ACCEPTS.get(hint)
    if get_origin(hint) is Sequence or (
        accepted is not None
        and (not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool))
    ):
        raise ValueError(f"{path}={value!r} is not {getattr(hint, '__name__', hint)}")
