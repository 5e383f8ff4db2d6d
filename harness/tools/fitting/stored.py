"""Numbers and text of stored tables."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

Json = dict[str, Any]


def rounded(value: Any, digits: int = 6) -> Any:
    """Content of JSON, of six significant digits: stable across linear algebra libraries."""
    if isinstance(value, Mapping):
        return {str(key): rounded(entry, digits) for key, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic | pd.Series | pd.Index):
        return rounded(value.tolist(), digits)
    if isinstance(value, list | tuple):
        return [rounded(entry, digits) for entry in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def as_text(content: Mapping[str, Any], *, compact: bool = False) -> str:
    """How a table is written: sorted, one value per line, so that changes can be read.

    Of `runs`, which come last, each is a line. A large table is `compact`: all in one line.
    """
    if compact:
        return json.dumps(content, sort_keys=True, separators=(",", ":")) + "\n"
    rest = {key: value for key, value in content.items() if key != "runs"}
    text = json.dumps(rest, sort_keys=True, indent=1)
    if "runs" in content:
        runs = ",\n".join(json.dumps(run, separators=(",", ":")) for run in content["runs"])
        text = f'{text[:-2]},\n "runs": [\n{runs}\n]\n}}'
    return text + "\n"


def ranges(**columns: "pd.Series[float]") -> dict[str, list[int]]:
    """Smallest and largest value of each."""
    return {name: [int(values.min()), int(values.max())] for name, values in columns.items()}
