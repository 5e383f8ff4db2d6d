"""Figures of Hermes' claims that no run's summary holds, from a run's folder."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
from pyarrow import parquet

SCALES = (1.2, 1.5, 2.0)
"""Section 5.2: a deadline lies one of these times an execution time after arrival."""


def policy_ms(folder: Path) -> float:
    """Wall-clock milliseconds of one decision of the scheduling policy, on average."""
    summary = json.loads((folder / "summary.json").read_text())
    return 1e3 * float(summary["decisions"]["schedule"]["s_mean"])


@cache
def met_at(scale: float) -> Callable[[Path], float]:
    """The share of deadlines of a scale that are met.

    Deadlines of one kind of application differ by their scale alone, so that its shortest has the
    smallest; kinds that do not have all scales are left out.
    """

    def share(folder: Path) -> float:
        with parquet.ParquetFile(folder / "apps.parquet") as file:
            apps: pd.DataFrame = file.read(use_threads=False).to_pandas()
        within_s = (apps["deadline_s"] - apps["arrived_s"]).round(6)
        by_kind = within_s.groupby(apps["kind"].astype(str))
        has_all = by_kind.transform("nunique") == len(SCALES)
        is_scale = (within_s / by_kind.transform("min") * SCALES[0] - scale).abs() < 1e-3
        met = (apps["finished_s"] <= apps["deadline_s"])[has_all & is_scale]
        return float(met.mean())

    return share
