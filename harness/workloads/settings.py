"""Settings that no workload can be made of are refused by the name they have in a scenario."""

from collections.abc import Mapping, Sequence
from math import inf


def require_positive(where: str, **values: float) -> None:
    """Raise ValueError for the first value that is not positive, named below `where`."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{where}.{name} is {value}, it must be positive")


def require_keys(where: str, given: Mapping[str, object], keys: Sequence[str]) -> None:
    """Raise ValueError for settings below `where` that do not have these keys."""
    if set(given) != set(keys):
        has = ", ".join(given) or "no keys"
        raise ValueError(f"{where} has {has}; its keys are {', '.join(keys)}")


def require_start(starts_s: float) -> float:
    """Seconds at which arrivals begin. ValueError for a negative or endless number."""
    if not 0 <= starts_s < inf:
        raise ValueError(f"workload.starts_s is {starts_s}, it cannot be negative")
    return starts_s


def require_between(where: str, least: float, most: float, **values: float) -> None:
    """Raise ValueError for the first value that is not from `least` to `most`."""
    for name, value in values.items():
        if least > 0:
            require_positive(where, **{name: value})
        if not least <= value <= most:
            raise ValueError(f"{where}.{name} is {value}, it must be from {least:g} to {most:g}")


BURSTINESS = (1e-3, 1e3)
"""Coefficients of variation that gaps in floating point can have."""

SIGMA = (0.0, 10.0)
"""Of a logarithm: at 10 one length in six is 20,000 times the median and more."""
