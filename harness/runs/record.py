"""A run's folder: written whole or not at all, read back as one row.

`results/<scenario>/<run>/` holds config.yaml (resolved), provenance.json, requests.parquet,
gpu.parquet, iterations.parquet (only where asked for) and summary.json. `<run>` is a hash of what
determines the result, so the same command finds its runs again and a changed one overwrites none.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from harness.runs.leftovers import being_written

NEEDED = ("config.yaml", "provenance.json", "requests.parquet", "gpu.parquet", "summary.json")


class RecordError(ValueError):
    """A run folder could not be written or read; the text names it."""


def as_plain(value: object) -> object:
    """`value` as JSON can hold it: plain containers and numbers, NaN and infinities as None.

    Raises `TypeError` for anything else, so that nothing is recorded as a Python repr.
    """
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [as_plain(item) for item in value]
    if isinstance(value, np.generic):
        return as_plain(value.item())
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"a run cannot record a {type(value).__name__}: {value!r}")


def run_id(config: Mapping[str, object], code: str) -> str:
    """Name of a run: 12 hex digits of what determines its result, in any order of keys."""
    text = json.dumps(
        {"config": as_plain(config), "code": code}, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a whole run."""
    return all((folder / name).is_file() for name in NEEDED)


def write_run(
    folder: Path,
    *,
    config: Mapping[str, object],
    provenance: Mapping[str, object],
    requests: pd.DataFrame,
    gpu: pd.DataFrame,
    iterations: pd.DataFrame | None,
    summary: Mapping[str, object],
) -> None:
    """Write a run under a temporary name beside `folder`, then rename it; keep a finished one.

    Raises `RecordError` where the disk refuses; then nothing of the run is left behind.
    """
    tables = {"requests": requests, "gpu": gpu, "iterations": iterations}
    try:
        with being_written(folder) as temporary:
            written = yaml.safe_dump(as_plain(config), sort_keys=False)
            (temporary / "config.yaml").write_text(written)
            for name, table in tables.items():
                if table is not None:
                    table.to_parquet(temporary / f"{name}.parquet", index=False)
            (temporary / "provenance.json").write_text(_as_json(provenance))
            (temporary / "summary.json").write_text(_as_json(summary))
            _publish(temporary, folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecordError(f"could not write the run {folder}: {reason}") from error


def _publish(temporary: Path, folder: Path) -> None:
    """Give the folder its name; another process may have finished the same run meanwhile."""
    if is_finished(folder):
        return
    if folder.exists():
        shutil.rmtree(folder)
    try:
        temporary.rename(folder)
    except OSError:
        if not is_finished(folder):
            raise


def _as_json(value: Mapping[str, object]) -> str:
    return json.dumps(as_plain(value), indent=2, allow_nan=False) + "\n"


def read_summaries(scenario_dir: Path) -> pd.DataFrame:
    """One row per finished run, ordered by its name, the index.

    Columns: `config.x.y` for every leaf of the configuration, the summary's own keys (nested ones
    joined by dots), from the provenance `code`, `started`, `engine` and `costs.*`, and `folder`. A
    list is a text, its items joined by +. No runs, no rows. Raises `RecordError` where a file
    cannot be read.
    """
    rows: dict[str, dict[str, object]] = {}
    for folder in sorted(scenario_dir.glob("[!.]*")):
        if is_finished(folder):
            rows[folder.name] = _row(folder)
    return pd.DataFrame.from_dict(rows, orient="index")


def current(summaries: pd.DataFrame, variant: str = "paper") -> pd.DataFrame:
    """The rows made by the program that made the newest run, and of this variant.

    Older programs' runs are left out.
    """
    if summaries.empty:
        return summaries
    newest = summaries.sort_values("started", kind="stable")["code"].iloc[-1]
    rows: pd.DataFrame = summaries[summaries["code"] == newest]
    if "config.variant" in rows:
        rows = rows[rows["config.variant"] == variant]
    return rows


def _row(folder: Path) -> dict[str, object]:
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text())
        provenance = json.loads((folder / "provenance.json").read_text())
        summary = json.loads((folder / "summary.json").read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise RecordError(f"could not read the run {folder}: {error}") from error
    origin = {name: provenance.get(name) for name in ("code", "started", "engine")}
    costs = {"costs": provenance.get("costs") or {}}
    origin["folder"] = str(folder)
    return _flat({"config": config}) | origin | _flat(costs) | _flat(summary)


def _flat(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    leaves: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            leaves[f"{prefix}{key}"] = "+".join(map(str, value))
        else:
            leaves[f"{prefix}{key}"] = value
    return leaves
