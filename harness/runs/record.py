"""A run's folder: written whole or not at all, read back as one row.

`results/<scenario>/<run>/` holds config.yaml (resolved), provenance.json, requests.parquet,
gpu.parquet, of applications apps.parquet, units.parquet and, with backends, backends.parquet,
iterations.parquet and trace.json (only where asked for), of measured engines engines.json (how each
was configured) and, where it was asked, speed.parquet (how fast the machine was), facts.json (what
figures need beside tables) and manifest.json with the sha256 of all these. `<run>` is a hash of
what determines them, so the same command finds its runs again and a changed one overwrites none.
summary.json has the figures, which are functions of the rest (`harness.runs.figures`): they are
computed again where a figure has changed.
"""

import json
import re
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from harness.config.inputs import sha256
from harness.config.scratch import TEMPORARY, write_whole
from harness.config.yaml_files import DUMPER, Loader
from harness.runs import figures
from harness.runs.cells import Run
from harness.runs.perfetto import write_trace
from harness.runs.run_key import as_plain, run_id
from harness.runs.source_files import sources_behind

MANIFEST, SUMMARY = "manifest.json", "summary.json"
PROGRAM = "program"
"""Key of a summary: the digest of the program that has computed it."""

_PARTS = re.compile(r"^(?=[^\s#-])", re.MULTILINE)
"""Between the keys at the top of what `as_yaml` writes."""

NOTES = "notes"
"""Of a run's provenance: what its workload assumed or left out."""

Row = Mapping[str, object]
"""A run as `read_summaries` has it, by column."""


class RecordError(ValueError):
    """A run folder could not be written or read; the text names it."""


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a run: its manifest is written last."""
    return (folder / MANIFEST).is_file()


class _Tables(Mapping[str, pd.DataFrame]):
    """The tables of a run's folder, read as they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._read = folder, dict[str, pd.DataFrame]()
        self._parts = dict[tuple[str, tuple[str, ...]], pd.DataFrame]()

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._read:
            path = self._folder / f"{name}.parquet"
            if not path.is_file():
                raise KeyError(name)
            self._read[name] = pd.read_parquet(path)
        return self._read[name]

    def columns(self, table: str, names: tuple[str, ...]) -> pd.DataFrame:
        """As `ReadsColumns`."""
        if table in self._read:
            return self._read[table][[*names]]
        if (table, names) not in self._parts:
            with pq.ParquetFile(self._folder / f"{table}.parquet") as file:
                read = file.read(columns=[*names], use_threads=False)
            self._parts[table, names] = read.to_pandas()
        return self._parts[table, names]

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in sorted(self._folder.glob("*.parquet")))

    def __len__(self) -> int:
        return len(list(iter(self)))


def write_run(folder: Path, run: Run, *, trace: bool = False) -> None:
    """Write a run into a temporary folder beside `folder`, then rename it; keep a finished one.

    Raises `RecordError` where the disk refuses; then nothing of the run is left behind.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=TEMPORARY, dir=folder.parent) as temporary:
            (made := Path(temporary, folder.name)).mkdir()
            (made / "config.yaml").write_text(as_yaml(run.config))
            for name, table in run.tables.items():
                _write_table(made / f"{name}.parquet", table)
            _write_json(made, provenance=run.provenance, facts=run.facts, engines=run.engines)
            if trace:
                write_trace(made)
            files = {path.name: sha256(path) for path in sorted(made.iterdir())}
            (made / MANIFEST).write_text(_as_json({"run": folder.name, "sha256": files}))
            with suppress(figures.FigureError):  # said where figures are read
                _write_summary(made, run.figures or figures.summary_of(run))
            made.rename(folder)
    except OSError as error:
        if not is_finished(folder):  # another process may have written the same run meanwhile
            reason = error.strerror if not folder.is_dir() else f"remove it, it has no {MANIFEST}"
            raise RecordError(f"could not write the run {folder}: {reason or error}") from error


def read_run(folder: Path) -> Run:
    """A run as it was written, its tables read as they are asked for. Raises `RecordError`."""
    try:
        if not (folder / "facts.json").is_file():
            raise ValueError("it has no facts.json, as runs of an older program have none")
        facts, provenance, engines = (
            _json_of(folder / f"{name}.json") for name in ("facts", "provenance", "engines")
        )
        return Run(config_of(folder), facts, provenance, _Tables(folder), engines)
    except _UNREADABLE as error:
        raise _cannot_be_read(folder, error) from None


def _json_of(path: Path) -> Any:
    """What a file holds; empty where there is none, as of engines that were not measured."""
    return json.loads(path.read_bytes()) if path.is_file() else {}


def _write_summary(folder: Path, summary: Mapping[str, object]) -> None:
    """The figures, and the program that has computed them: no part of what a run is."""
    text = _as_json({**summary, PROGRAM: _program_of_figures()})
    write_whole(folder / SUMMARY, text)


def _program_of_figures() -> str:
    """The program, and which figures there are: a notebook may have added some."""
    return run_id({"figures": [*figures.FIGURES]}, _program())


@cache
def _program() -> str:
    return sources_behind((figures.__name__,)).code


def _write_json(folder: Path, **contents: Mapping[str, object]) -> None:
    """A file for each that holds anything."""
    for name, content in contents.items():
        if content:
            (folder / f"{name}.json").write_text(_as_json(content))


def _write_table(path: Path, table: pd.DataFrame) -> None:
    """What `to_parquet` does, without the threads that it starts for every table."""
    rows = pa.Table.from_pandas(table, preserve_index=False, nthreads=1)
    repeats = [it.name for it in rows.schema if pa.types.is_dictionary(it.type)]
    # Looking for what repeats among seconds takes as long again and finds nothing.
    pq.write_table(rows, path, use_dictionary=repeats)


def damage_of(folder: Path) -> str | None:
    """What differs from the manifest of a run folder, to be read behind its name; None for nothing.

    Files that were added later are not checked: no figure comes from them.
    """
    try:
        written = json.loads((folder / MANIFEST).read_bytes())
        if written.get("run", folder.name) != folder.name:
            return f"is the run {written['run']} under another name"
        for name, digest in written["sha256"].items():
            if sha256(folder / name) != digest:
                return f"has another {name} than was written"
    except FileNotFoundError as error:
        return f"has no {Path(error.filename).name}"
    except (OSError, ValueError, KeyError, AttributeError) as error:
        return f"has a {MANIFEST} or files that cannot be read: {error}"
    return None


def _as_json(value: Mapping[str, object]) -> str:
    return json.dumps(as_plain(value), indent=2, allow_nan=False) + "\n"


def read_summaries(
    scenario_dir: Path, *, only: Container[str] | None = None, lost: list[str] | None = None
) -> pd.DataFrame:
    """One row per finished run, by name, the index; of all runs or of these `only`.

    Columns: `config.x.y` for every leaf of the configuration, the summary's own keys (nested ones
    joined by dots), from the provenance `code`, `started`, `engine` and `costs.*`, and `folder`. A
    list is a text, its items joined by +. No runs, no rows. Of a run that cannot be read `lost`
    gets a sentence, without it `RecordError` is raised; `python -m harness results verify` compares
    runs with their manifests.
    """
    rows = read_rows(scenario_dir, only=only, lost=lost)
    return pd.DataFrame.from_dict(rows, orient="index")


def read_rows(
    scenario_dir: Path, *, only: Container[str] | None = None, lost: list[str] | None = None
) -> dict[str, Row]:
    """The rows of `read_summaries` by run."""
    rows = {}
    for folder in sorted(scenario_dir.glob("[!.]*")):
        if (only is None or folder.name in only) and is_finished(folder):
            try:
                rows[folder.name] = _row(folder)
            except RecordError as error:
                if lost is None:
                    raise
                lost.append(str(error))
    return rows


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
    if not parts or not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"{folder / 'config.yaml'} is no mapping")
    return {key: value for part in parts for key, value in part.items()}


@lru_cache(maxsize=4096)
def _part(text: str) -> Any:
    """What a key at the top of a configuration and all below it hold."""
    return yaml.load(text, Loader=Loader)


def summary_of(folder: Path) -> dict[str, Any]:
    """Figures of a run; computed again where another program had computed them, or not all.

    Raises OSError, ValueError and `RecordError`.
    """
    found: dict[str, Any] = {}
    with suppress(FileNotFoundError, json.JSONDecodeError):  # it is no part of what a run is
        found = json.loads((folder / SUMMARY).read_bytes())
    if found.pop(PROGRAM, None) == _program_of_figures():
        return found
    again = figures.summary_of(read_run(folder))
    with suppress(OSError):  # a folder of somebody else is read as well
        _write_summary(folder, again)
    plain = as_plain(again)
    assert isinstance(plain, dict)
    return plain


def _row(folder: Path) -> Row:
    """A run's row."""
    try:
        config, summary = config_of(folder), summary_of(folder)
        provenance = json.loads((folder / "provenance.json").read_bytes())
        origin = {name: provenance.get(name) for name in ("code", "started", "engine")}
        origin |= {"folder": str(folder), NOTES: "; ".join(provenance.get(NOTES) or ())}
        costs = {"costs": provenance.get("costs") or {}}
        return _flat({"config": config}) | origin | _flat(costs) | _flat(summary)
    except figures.FigureError as error:
        raise RecordError(f"{error} (of the run {folder}, which is whole)") from error
    except _UNREADABLE as error:
        raise _cannot_be_read(folder, error) from None


_UNREADABLE = (OSError, ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError)


def _cannot_be_read(folder: Path, error: Exception) -> RecordError:
    if isinstance(error, RecordError):
        return error
    said = " ".join(str(error).split())
    return RecordError(f"the run {folder} cannot be read, remove it: {said}")


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
