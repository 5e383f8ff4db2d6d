"""Values of a trace's columns, checked: what is damaged is refused with file, row and value."""

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.workloads.prompts import MOST

_MOST_DIGITS = 1e21


def in_digits(value: object) -> str:
    """A value as a reader finds it in the file: numbers in full digits, text quoted, both short."""
    if isinstance(value, float | np.floating) and abs(float(value)) < _MOST_DIGITS:
        return np.format_float_positional(value, trim="0")
    plain = int(value) if isinstance(value, np.integer) else value
    return f"{plain!r:.60}"


def rounded(value: float) -> str:
    """A number of three digits, written out."""
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if short >= 1000 else np.format_float_positional(short, trim="-")


def refuse(
    path: Path, values: "pd.Series[Any]", bad: NDArray[np.bool_], column: str, why: str
) -> None:
    """Raise ValueError with the first row that is `bad`, its value of `column`, and why."""
    if bad.any():
        place = int(np.argmax(bad))
        said = "" if why.startswith("is missing") else f" {in_digits(values.tolist()[place])}"
        raise ValueError(f"{path} row {values.index[place]}: {column}{said} {why}")


def numbers(
    path: Path,
    given: "pd.Series[Any]",
    column: str,
    *,
    least: float,
    may_lack: bool = False,
) -> "pd.Series[float]":
    """Finite numbers from `least` on; NaN only where a row may lack one."""
    lacks = given.isna()
    is_plain = given.dtype.kind in "iuf"
    plain = given if is_plain else given.astype(object).where(given.map(_may_be_number))
    found = pd.to_numeric(plain, errors="coerce").astype(float)
    refuse(path, given, (lacks & (not may_lack)).to_numpy(), column, "is missing")
    is_none = ~np.isfinite(found.to_numpy()) & ~lacks.to_numpy()
    refuse(path, given, is_none, column, "is no number")
    refuse(path, given, (found < least).to_numpy(), column, f"must be at least {least:g}")
    return found


def tokens(
    path: Path, given: "pd.Series[Any]", column: str, *, least: float = 1.0, remedy: str = ""
) -> "pd.Series[int]":
    """Whole numbers from `least` on. `remedy` is said of 0 where that is too few."""
    found = numbers(path, given, column, least=-np.inf)
    too_few = f"must be at least {least:g}"
    refuse(path, given, ((found == 0) & (least > 0)).to_numpy(), column, too_few + remedy)
    refuse(path, given, (found < least).to_numpy(), column, too_few)
    odd = (found % 1 != 0) | (found > MOST)
    refuse(path, given, odd.to_numpy(), column, "is no number of tokens")
    return found.astype(np.int64)


def _may_be_number(value: object) -> bool:
    """Whether a float can be made of it, as of the longest numbers of JSON none can."""
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        return False
    is_number = isinstance(value, str | int | float | np.number | Decimal)
    return is_number and not isinstance(value, bool)
