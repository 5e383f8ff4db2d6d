"""Measurements that tests compare with: a folder beside the repository, not part of it."""

from pathlib import Path

import pytest

DATA = Path(__file__).parents[4] / "shared" / "data"
ITERATIONS = DATA / "samullm" / "iteration_latency.parquet"
needs_data = pytest.mark.skipif(
    not ITERATIONS.is_file(), reason=f"the measurements are not at {ITERATIONS}"
)
