"""Why was a request late: `python -m harness why RUN_FOLDER REQUEST`.

Splits the time from arrival to finish into waiting (before it first ran), preempted (from an
preemption to running again), prefill and decode (iterations that computed its prompt or its next
token), and paused (it held KV but was in no iteration, or was in none because others prefilled).
"""

import json
from pathlib import Path

import pandas as pd
from rich.console import Console

from harness.runs.table import print_table

PARTS = ("waiting_s", "preempted_s", "prefill_s", "decode_s", "paused_s")


def parts(requests: pd.DataFrame) -> pd.DataFrame:
    """Seconds of every finished request in each of `PARTS`; they add up to its completion time."""
    done = requests[requests["finished_s"].notna()]
    frame = pd.DataFrame(
        {
            "waiting_s": done["waiting_s"],
            "preempted_s": done["preempted_s"],
            "prefill_s": done["prefill_s"],
            "decode_s": done["gpu_s"] - done["prefill_s"],
            "paused_s": done["paused_s"],
        }
    )
    return frame.set_index(done["request"])


def explain(folder: Path, request: int) -> pd.DataFrame:
    """The parts of one request beside the medians of its service, in seconds.

    Raises ValueError where there is no such run, request or finish.
    """
    path = folder / "requests.parquet"
    if not path.is_file():
        raise ValueError(f"{folder} is no run folder: it has no requests.parquet")
    requests = pd.read_parquet(path)
    row = requests[requests["request"] == request]
    if row.empty:
        raise ValueError(f"the run has requests 0 to {len(requests) - 1}, not {request}")
    if row["finished_s"].isna().any():
        raise ValueError(f"request {request} did not finish")
    same = requests[requests["service"] == row["service"].iloc[0]]
    every = parts(same)
    return pd.DataFrame({"seconds": every.loc[request], "median of its service": every.median()})


def explained(folder: Path, request: int, console: Console) -> None:
    """Print the parts, and whether they are measured. Raises ValueError as `explain` does."""
    frame = explain(folder, request).rename_axis("part").rename(lambda it: it.removesuffix("_s"))
    title = f"request {request}: {frame['seconds'].sum():,.3f} s to completion"
    print_table(frame.map("{:,.3f}".format), console, title)
    origin = folder / "provenance.json"
    if origin.is_file():
        found = json.loads(origin.read_bytes())
        profile = (found.get("costs") or {}).get("profile")
        console.print(f"seconds: {found['engine']}" + (f", profile {profile}" if profile else ""))
