"""Values as JSON can hold them."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np


def as_plain(value: object) -> object:
    """`value` as JSON can hold it: plain containers and numbers, NaN and infinities as None.

    Raises `TypeError` for anything else, so that nothing is recorded as a Python repr.
    """
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [as_plain(item) for item in value]
    if isinstance(value, np.generic):
        return as_plain(value.item())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"a run cannot record a {type(value).__name__}: {value!r}")
