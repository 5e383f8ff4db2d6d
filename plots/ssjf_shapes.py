"""What SSJF's throughput figures show, as figures of one run (its folder).

Paper      Qiu et al., arXiv 2404.08509, figures 6 to 9
"""

from pathlib import Path

import numpy as np
import pandas as pd

QUARTER = 0.25  # of the requests: when the authors' program reads throughput


def answered_per_s(folder: Path) -> float:
    """Requests answered per second while requests come in, from the first arrival to the last."""
    requests = pd.read_parquet(folder / "requests.parquet")
    first_s, last_s = requests["arrival_s"].min(), requests["arrival_s"].max()
    return float((requests["finished_s"] <= last_s).sum() / (last_s - first_s))


def quarter_per_s(folder: Path) -> float:
    """Requests answered per second when a quarter of them has been, as the program reads it."""
    requests = pd.read_parquet(folder / "requests.parquet")
    ends_s = np.sort(requests["finished_s"].fillna(np.inf).to_numpy(np.float64))
    at_s = float(np.quantile(ends_s, QUARTER))
    return float(np.searchsorted(ends_s, at_s, side="right") / at_s)
