"""How this project compiles with numba: typed, kept on the disk, without reference counts."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import numba
from numba.core import types
from numba.core.dispatcher import Dispatcher

from harness.costs.numba_cache import NumbaCache

F = TypeVar("F", bound=Callable[..., Any])

# The caller holds every array for the whole call, so compiled code need not count references to
# them (_nrt). Counting, and passing the tuples of arrays from function to function, took eight
# tenths of the kernel's time. Code compiled so cannot allocate arrays.
_OPTIONS: dict[str, Any] = {"_nrt": False}


# Small functions that call each other run as fast at the first level as at the third, and are
# compiled in four fifths of the time.
os.environ.setdefault("NUMBA_OPT", "1")
numba.config.reload_config()


def compiled(function: F) -> F:
    """Compile when first called; callable from Python and from compiled code."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    if isinstance(dispatcher, Dispatcher):
        _take_constants_as_numbers(dispatcher)
    return _cached(function, dispatcher)


def _take_constants_as_numbers(dispatcher: Any) -> None:
    """Calls with a constant use the code for any number: it is not compiled for each constant."""
    template = dispatcher.get_call_template

    def of_numbers(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        plain = {name: types.unliteral(kind) for name, kind in kws.items()}
        return template([types.unliteral(kind) for kind in args], plain)

    dispatcher.get_call_template = of_numbers


def inlined(function: F) -> F:
    """Compile as part of every compiled caller."""
    return _cached(function, numba.njit(inline="always", **_OPTIONS)(function))


def _cached(function: F, dispatcher: Any) -> F:
    if isinstance(dispatcher, Dispatcher):  # not where numba is told to compile nothing
        dispatcher._cache = NumbaCache(function)
    return cast(F, dispatcher)
