"""What a calibration measured, iteration by iteration: a table beside the profile fitted to it."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from harness.tools.fitting.stored import Json

FACTS = b"facts"
"""Of the metadata of the file: what was measured, on what."""


def write(path: Path, rows: pd.DataFrame, facts: Json) -> None:
    """Write `timed_batches.COLUMNS` and `repetition` of every iteration, seconds in 4 bytes.

    `facts` are those that `stored.profile` asks for.
    """
    floats = [name for name in rows if rows[name].dtype.kind == "f"]
    small = rows.astype(dict.fromkeys(floats, np.float32)).astype({"attended": np.float64})
    table = pa.Table.from_pandas(small, preserve_index=False)
    table = table.replace_schema_metadata({FACTS: json.dumps(facts, sort_keys=True).encode()})
    pq.write_table(table, path, compression="zstd", compression_level=19)


def read(path: Path) -> tuple[pd.DataFrame, Json]:
    """The rows and the facts of a file. Raises ValueError where it is none of these."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"{path} holds no repetitions of a calibration: {error}") from None
    metadata = table.schema.metadata or {}
    if FACTS not in metadata:
        raise ValueError(f"{path} holds no repetitions of a calibration: no facts are in it")
    return table.to_pandas(), json.loads(metadata[FACTS])
