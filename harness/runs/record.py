"""A run's folder: written whole or not at all, read back as one row.

`results/<scenario>/<run>/` holds config.yaml (resolved), provenance.json, requests.parquet,
gpu.parquet, of applications apps.parquet, units.parquet and, with backends, backends.parquet,
iterations.parquet and trace.json (only where asked for), summary.json and, written last,
manifest.json. `<run>` is a hash of what determines the result, so the same command finds its runs
again and a changed one overwrites none. A folder that is not as it was written is set aside.
"""

import json
import os
import re
from collections.abc import Callable, Container, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from harness.runs.leftovers import being_written
from harness.runs.manifest import (
    MANIFEST,
    NEEDED,
    damage_of,
    set_aside,
    sync,
    write_manifest,
)
from harness.runs.plain import as_plain
from harness.yaml_files import DUMPER, Loader

_PARTS = re.compile(r"^(?=[^\s#-])", re.MULTILINE)
"""Between the keys at the top of what `as_yaml` writes."""

RUN = re.compile(r"[0-9a-f]{12}")
"""Names of runs; see `run_id`."""

NOTES = "notes"
"""Of a run's provenance: what its workload assumed or left out."""

Row = Mapping[str, object]
"""A run as `read_summaries` has it, by column."""


class RecordError(ValueError):
    """A run folder could not be written or read; the text names it."""


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a whole run, as it was written."""
    return damage_of(folder) is None and all((folder / name).is_file() for name in NEEDED)


def write_run(
    folder: Path,
    *,
    config: Mapping[str, object],
    provenance: Mapping[str, object],
    requests: pd.DataFrame,
    gpu: pd.DataFrame,
    iterations: pd.DataFrame | None,
    summary: Mapping[str, object],
    apps: pd.DataFrame | None = None,
    units: pd.DataFrame | None = None,
    backends: pd.DataFrame | None = None,
    beside: Callable[[Path], object] | None = None,
) -> Row:
    """Write a run under a temporary name beside `folder`, then rename it; keep a finished one.

    Returns its row. `beside` may write more into the folder that it is given, which has all tables.
    Raises `RecordError` where the disk refuses; then nothing of the run is left behind.
    """
    frames = (requests, gpu, iterations, apps, units, backends)
    names = ("requests", "gpu", "iterations", "apps", "units", "backends")
    tables = dict(zip(names, frames, strict=True))
    parts = (config, provenance, summary)
    try:
        with being_written(folder) as temporary:
            (temporary / "config.yaml").write_text(as_yaml(config))
            for name, table in tables.items():
                if table is not None:
                    _write_table(temporary / f"{name}.parquet", table)
            (temporary / "provenance.json").write_text(_as_json(provenance))
            (temporary / "summary.json").write_text(_as_json(summary))
            if beside is not None:
                beside(temporary)
            write_manifest(temporary, folder.name)
            is_ours = _publish(temporary, folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecordError(f"could not write the run {folder}: {reason}") from error
    row = None if is_ours else _row(folder)
    return row if isinstance(row, Mapping) else _as_row(folder, *map(_plain, parts))


def _write_table(path: Path, table: pd.DataFrame) -> None:
    """What `to_parquet` does, without the threads that it starts for every table."""
    rows = pa.Table.from_pandas(table, preserve_index=False, nthreads=1)
    repeats = [it.name for it in rows.schema if pa.types.is_dictionary(it.type)]
    # Looking for what repeats among seconds takes as long again and finds nothing.
    pq.write_table(rows, path, use_dictionary=repeats)


def _publish(temporary: Path, folder: Path) -> bool:
    """Give the folder its name; False where another process has finished the same run meanwhile."""
    if is_finished(folder):
        return False
    if os.path.lexists(folder):
        set_aside(folder, damage_of(folder) or "is not whole")
    try:
        temporary.rename(folder)
        sync(folder.parent)
    except OSError:
        if not is_finished(folder):
            raise
        return False
    return True


def _as_json(value: Mapping[str, object]) -> str:
    return json.dumps(as_plain(value), indent=2, allow_nan=False) + "\n"


def read_summaries(
    scenario_dir: Path, known: Mapping[str, Row] = MappingProxyType({})
) -> pd.DataFrame:
    """One row per finished run, by name, the index; `known` are not read.

    Columns: `config.x.y` for every leaf of the configuration, the summary's own keys (nested ones
    joined by dots), from the provenance `code`, `started`, `engine` and `costs.*`, and `folder`. A
    list is a text, its items joined by +. No runs, no rows. A folder that is not as it was written
    is set aside, with a sentence on stderr, and is no run; one without a manifest, or with neither
    the name of a run nor any of its files, never was one.
    """
    return as_frame(read_rows(scenario_dir, known))


def read_rows(
    scenario_dir: Path,
    known: Mapping[str, Row] = MappingProxyType({}),
    *,
    only: Container[str] | None = None,
) -> dict[str, Row]:
    """The rows of `read_summaries` by run, of all or of these `only`."""
    rows: dict[str, Row] = {}
    for folder in sorted(scenario_dir.glob("[!.]*")):
        if only is not None and folder.name not in only:
            continue
        if folder.name in known:
            rows[folder.name] = known[folder.name]
            continue
        if not (folder / MANIFEST).is_file() or not _is_ours(folder):
            continue
        row = _row(folder)
        if isinstance(row, str):
            set_aside(folder, row)
        else:
            rows[folder.name] = row
    return rows


def as_frame(rows: dict[str, Row]) -> pd.DataFrame:
    """Rows as a table."""
    return pd.DataFrame.from_dict(rows, orient="index")


def _is_ours(folder: Path) -> bool:
    """Whether a folder with a manifest was written as a run, whatever has become of it."""
    has_tables = any((folder / name).is_file() for name in NEEDED if name != MANIFEST)
    return RUN.fullmatch(folder.name) is not None or has_tables


def current(summaries: pd.DataFrame, variant: str = "paper") -> pd.DataFrame:
    """The rows of a variant."""
    if "config.variant" in summaries:
        summaries = summaries[summaries["config.variant"] == variant]
    return summaries


def as_yaml(config: Mapping[str, object]) -> str:
    """A configuration as the text of a run's config.yaml."""
    text: str = yaml.dump(as_plain(config), Dumper=DUMPER, sort_keys=False)
    return text


def config_of(folder: Path) -> Any:
    """What a run's config.yaml holds. Raises OSError, ValueError and YAMLError.

    Parts are shared with those of other runs: thousands have the same.
    """
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    parts = [_part(part) for part in _PARTS.split(text) if part]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"{folder / 'config.yaml'} is no mapping")
    return {key: value for part in parts for key, value in part.items()}


@lru_cache(maxsize=4096)
def _part(text: str) -> Any:
    """What a key at the top of a configuration and all below it hold."""
    return yaml.load(text, Loader=Loader)


def summary_of(folder: Path) -> Any:
    """What a run's summary.json holds. Raises OSError and ValueError."""
    return json.loads((folder / "summary.json").read_bytes())


def _row(folder: Path) -> Row | str:
    """A run's row, or what is wrong with its folder."""
    if damage := damage_of(folder):
        return damage
    try:
        config, summary = config_of(folder), summary_of(folder)
        provenance = json.loads((folder / "provenance.json").read_bytes())
    except (OSError, ValueError, yaml.YAMLError) as error:
        return f"cannot be read: {error}"
    if not all(isinstance(part, dict) and part for part in (config, provenance, summary)):
        return "holds an empty configuration, provenance or summary"
    return _as_row(folder, config, provenance, summary)


def _as_row(folder: Path, config: Row, provenance: Row, summary: Row) -> Row:
    """The row of what a run's files hold."""
    origin = {name: provenance.get(name) for name in ("code", "started", "engine")}
    costs = {"costs": provenance.get("costs") or {}}
    origin["folder"] = str(folder)
    notes = provenance.get(NOTES)
    origin[NOTES] = "; ".join(map(str, notes)) if isinstance(notes, list) else ""
    return _flat({"config": config}) | origin | _flat(costs) | _flat(summary)


def _plain(row: Row) -> dict[str, object]:
    return {str(key): as_plain(value) for key, value in row.items()}


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
