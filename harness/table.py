"""The table a scenario prints: one row per setting, means over seeds, against a reference."""

from collections.abc import Mapping, Sequence

import pandas as pd
from rich.console import Console
from rich.table import Table

NAMES = {"system": "config.system.name"}
"""Summary columns of axes that are config groups."""


def column_of(axis: str) -> str:
    """Where the value on an axis is found in `read_summaries`."""
    return NAMES.get(axis, f"config.{axis}")


def means(rows: pd.DataFrame, axes: Sequence[str]) -> pd.DataFrame:
    """Means over seeds of every numeric figure, one row per combination of the other axes."""
    keys = [column_of(axis) for axis in axes if axis != "seed"]
    figures = [
        c
        for c in rows.columns
        if not c.startswith(("config.", "run")) and pd.api.types.is_numeric_dtype(rows[c])
    ]
    if not keys:
        return rows[figures].mean().to_frame().T
    grouped = rows.groupby(keys, sort=True)
    return grouped[figures].mean().join(grouped.size().rename("seeds")).reset_index()


def print_cells(
    rows: pd.DataFrame, compare: Mapping[str, object], matrix: Mapping[str, object]
) -> None:
    """Print inference, extra and end-to-end seconds, idle GPU seconds, and ratios to the reference."""
    axes = [axis for axis in matrix if rows[column_of(axis)].nunique() > 1] if len(rows) > 1 else []
    table = means(rows, axes)
    keys = [column_of(axis) for axis in axes if axis != "seed"]
    axis = (
        column_of(str(compare["axis"]))
        if compare and column_of(str(compare["axis"])) in keys
        else None
    )
    view = Table(
        title="simulated seconds, mean over seeds; extra is planning, wall-clock on this machine"
    )
    for key in keys:
        view.add_column(key.removeprefix("config.").removesuffix(".name"))
    for name in ("inference s", "extra s", "end to end s", "GPU idle s", "GPU loading s"):
        view.add_column(name, justify="right")
    if axis:
        view.add_column("inference x", justify="right")
        view.add_column("end to end x", justify="right")
    for _, row in table.iterrows():
        cells = [str(row[key]) for key in keys]
        cells += [
            f"{row['inference_s']:,.1f}",
            f"{row['extra_s']:.2f}",
            f"{row['end_to_end_s']:,.1f}",
        ]
        cells += [f"{row['gpu_idle_s']:,.0f}", f"{row['gpu_loading_s']:,.0f}"]
        if axis:
            same = (
                table[[k for k in keys if k != axis]] == row[[k for k in keys if k != axis]]
            ).all(axis=1)
            reference = table[same & (table[axis] == compare["reference"])]
            cells += [_ratio(row, reference, name) for name in ("inference_s", "end_to_end_s")]
        view.add_row(*cells)
    Console(width=None if Console().is_terminal else 140).print(view)


def _ratio(row: "pd.Series[float]", reference: pd.DataFrame, name: str) -> str:
    return f"{row[name] / reference[name].iloc[0]:.2f}" if len(reference) else "-"
