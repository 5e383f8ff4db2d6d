"""A run as a trace for chrome://tracing or Perfetto: `python -m harness.runs.perfetto RUN_FOLDER`.

One process per GPU with its loads and busy stretches; where the run kept its iterations, one track
of them per group; one track per service with its requests, from first run to finish, if they are
few enough to look at. Written to trace.json in the run folder.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

TRACE = "trace.json"
MOST_REQUESTS = 5_000
_US = 1e6  # the format counts in microseconds

TraceEvent = dict[str, object]


def events(
    gpu: pd.DataFrame, requests: pd.DataFrame, iterations: pd.DataFrame | None
) -> Iterator[TraceEvent]:
    """Trace events of a run's tables."""
    yield from _gpu_events(gpu)
    if iterations is not None:
        yield from _iteration_events(iterations)
    if len(requests) <= MOST_REQUESTS:
        yield from _request_events(requests)


def _slice(
    name: str, where: tuple[str, str], start_s: float, end_s: float, args: TraceEvent
) -> TraceEvent:
    """A complete event on a track of a process."""
    return {
        "name": name,
        "ph": "X",
        "pid": where[0],
        "tid": where[1],
        "ts": round(start_s * _US, 3),
        "dur": round((end_s - start_s) * _US, 3),
        "args": args,
    }


def _gpu_events(gpu: pd.DataFrame) -> Iterator[TraceEvent]:
    for row in gpu.to_dict("records"):
        where = (f"GPU {row['gpu']}", str(row["use"]))
        yield _slice(f"{row['group']}", where, row["start_s"], row["end_s"], {})


def _iteration_events(iterations: pd.DataFrame) -> Iterator[TraceEvent]:
    for row in iterations.to_dict("records"):
        kind = [
            f"prefill {int(row['prefill_requests'])}" if row["prefill_requests"] else "",
            f"decode {int(row['decode_requests'])}" if row["decode_requests"] else "",
        ]
        name = " + ".join(filter(None, kind))
        runs = f" x {int(row['iterations'])}" if row["iterations"] > 1 else ""
        args: TraceEvent = {
            "iterations": int(row["iterations"]),
            "prefill_tokens": int(row["prefill_tokens"]),
            "context_tokens": int(row["context_tokens"]),
        }
        end_s = row["start_s"] + row["duration_s"]
        yield _slice(name + runs, ("iterations", str(row["group"])), row["start_s"], end_s, args)


def _request_events(requests: pd.DataFrame) -> Iterator[TraceEvent]:
    """Nestable asynchronous slices: requests of a service overlap."""
    for row in requests[requests["finished_s"].notna()].to_dict("records"):
        common = {"cat": "request", "id": int(row["request"]), "pid": "requests"}
        name = f"r{row['request']}"
        args = {
            "prompt_tokens": int(row["prompt_tokens"]),
            "output_tokens": int(row["output_tokens"]),
        }
        track = {"tid": str(row["service"]), "name": name}
        begin = {"ph": "b", "ts": round(row["started_s"] * _US, 3), "args": args}
        yield {**common, **track, **begin}
        yield {**common, **track, "ph": "e", "ts": round(row["finished_s"] * _US, 3)}


def numbered(named: Iterator[TraceEvent]) -> list[TraceEvent]:
    """Events with numbers for processes and tracks, as the format wants, and their names."""
    processes: dict[object, int] = {}
    tracks: dict[tuple[object, object], int] = {}
    found: list[TraceEvent] = []
    for event in named:
        pid = processes.setdefault(event["pid"], len(processes) + 1)
        tid = tracks.setdefault((event["pid"], event["tid"]), len(tracks) + 1)
        found.append({**event, "pid": pid, "tid": tid})
    places = [("process_name", pid, 0, name) for name, pid in processes.items()]
    places += [("thread_name", processes[it], tid, name) for (it, name), tid in tracks.items()]
    names: list[TraceEvent] = [
        {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
        for kind, pid, tid, name in places
    ]
    return names + found


def write_trace(folder: Path) -> Path:
    """Write trace.json into a run folder; returns its path. Raises OSError without tables."""
    iterations = folder / "iterations.parquet"
    found = events(
        pd.read_parquet(folder / "gpu.parquet"),
        pd.read_parquet(folder / "requests.parquet"),
        pd.read_parquet(iterations) if iterations.is_file() else None,
    )
    path = folder / TRACE
    path.write_text(json.dumps({"traceEvents": numbered(found), "displayTimeUnit": "ms"}))
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the trace of a run; the exit status."""
    parser = argparse.ArgumentParser(description="Write a run as a Chrome/Perfetto trace.")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    try:
        print(write_trace(given.folder))
    except OSError as error:
        print(f"error: {given.folder} is no run folder: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
