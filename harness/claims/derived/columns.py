"""Figures that are worked out from a run's folder, by functions that YAML names.

A paper's own stand beside this file: what its figures show that no summary holds.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from pyarrow import parquet

OWN = ("harness", "plots")
"""Packages whose functions YAML may name."""


def named(place: str) -> Callable[..., Any]:
    """The function at `module:function`. ValueError where there is none."""
    module, _, function = place.partition(":")
    if module.partition(".")[0] not in OWN:
        raise ValueError(f"{place} is no function of this project")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"there is no {place}: {error}") from error
    if not callable(found):
        raise ValueError(f"{place} is no function")
    return found


def table_of(path: Path, columns: Sequence[str] | None = None) -> Any:
    """A table of a run, as Arrow has it, or some of its columns. There are thousands to read."""
    with parquet.ParquetFile(path) as file:
        return file.read(columns=columns, use_threads=False)


def with_derived(rows: pd.DataFrame, derive: Mapping[str, str]) -> pd.DataFrame:
    """The rows with one column more for each name, from the function that it is given by.

    `rows` have a `folder`, which is all that such a function is given.
    """
    for name, place in derive.items():
        rows = rows.assign(**{name: [_figure(place, str(folder)) for folder in rows["folder"]]})
    return rows


@cache
def _figure(place: str, folder: str) -> Any:
    """A figure of a run's folder, which never changes; every specification asks for it again."""
    return named(place)(Path(folder))
