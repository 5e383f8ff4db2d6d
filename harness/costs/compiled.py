"""How this project compiles with numba: typed, kept on the disk, without reference counts."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core.dispatcher import Dispatcher

from harness.costs.kept import Kept

F = TypeVar("F", bound=Callable[..., Any])

# The caller holds every array for the whole call, so compiled code need not count references to
# them (_nrt). Counting, and passing the tuples of arrays from function to function, took eight
# tenths of the kernel's time. Code compiled so cannot allocate arrays.
_OPTIONS: dict[str, Any] = {"_nrt": False}


def compiled(function: F) -> F:
    """Compile when first called; callable from Python and from compiled code."""
    return _kept(function, numba.njit(**_OPTIONS)(function))


def inlined(function: F) -> F:
    """Compile as part of every compiled caller."""
    return _kept(function, numba.njit(inline="always", **_OPTIONS)(function))


def _kept(function: F, dispatcher: Any) -> F:
    if isinstance(dispatcher, Dispatcher):  # not where numba is told to compile nothing
        dispatcher._cache = Kept(function)
    return cast(F, dispatcher)
