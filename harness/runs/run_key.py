"""What determines a result; the name of a run is a hash of it."""

import hashlib
import json
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from harness.config import inputs
from harness.costs.model import ProfileCosts
from harness.costs.model_config import config_files
from harness.engines.engine import Engine
from harness.runs.provenance import machine, package_version
from harness.runs.source_files import sources_of, targets

PYTHON = "python"
COMPUTES = (PYTHON, "numpy", "numba", "llvmlite", "scipy", "pandas", "pyarrow")
"""What computes, or reads, in every run: Python and packages."""


class Changed(ValueError):  # noqa: N818 - it says what has happened
    """What a run is named by is not what this process has; the text says which of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """What a run is named by beside its configuration.

    `code` is the digest of the program's source files that the cell imports, which follow from the
    `classes` that its configuration names; `versions` are those of the packages that compute;
    `files` are the sha256, by name, of the files that the cell reads and of the source files from
    outside the program. Names of files below the project's folder are relative to it. `machine` is
    empty where everything is simulated.
    """

    code: str
    classes: tuple[str, ...]
    versions: Mapping[str, str]
    files: Mapping[str, str]
    machine: Mapping[str, object]

    def inputs(self) -> dict[str, object]:
        """All but the program, plain."""
        return {"versions": self.versions, "files": self.files, "machine": self.machine}

    def refuse_changes(self) -> None:
        """Raise Changed where this process, or the disk, has anything else.

        The process that computes the cell calls this before and after: another process may have
        named the run, and files may have been edited meanwhile.
        """
        sources = sources_of(self.classes)
        if sources.code != self.code:
            raise Changed(
                "the program was edited after the command began: this process has loaded "
                f"{sources.code}, the run is named by {self.code}; give the command again"
            )
        if names := inputs.changed({**sources.program, **self.files}):
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise Changed(
                f"{names[0]}{more} changed after the command began, so it is unknown what the "
                "result follows from; it is not kept, give the command again"
            )
        if self.machine and machine() != self.machine:
            raise Changed("the run is named by another machine than this one, which would be timed")
        if versions_of(self.versions) != self.versions:
            raise Changed(
                f"the run is named by {_listed(self.versions)}, this process has "
                f"{_listed(versions_of(self.versions))}"
            )

    def refuse_unnamed(self, before: int) -> None:
        """Raise ValueError for a profile that is not among `files` and was read for this cell.

        `before` is how many files this process had read by then.
        """
        for name in islice(inputs.READ, before, None):
            is_named = name in self.files or name.partition(inputs.ROW)[0] in inputs.PARTED
            if name.startswith("harness/profiles/") and not is_named:
                raise ValueError(
                    f"the cell has read {name}, which is not among the files that its run is "
                    "named by: the class that reads it must list it in `files`"
                )


def run_id(config: Mapping[str, object], code: str) -> str:
    """Name of a run: 12 hex digits of what determines its result, in any order of keys."""
    text = json.dumps(
        {"config": as_plain(config), "code": code}, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]


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


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def key_of(
    config: Mapping[str, Any],
    engine: Engine,
    costs: ProfileCosts,
    workload: Any,
    predictor: Any,
    believed: Mapping[str, str],
) -> RunKey:
    """The key of a cell of this configuration.

    `workload` and `predictor` (which may be None) make them: `files` is what they
    read; `believed` is what a planner reads. A predictor may say that it `measures` seconds, and by
    which packages it is `computed_by`.
    """
    classes = tuple(sorted(set(targets(config))))
    sources = sources_of(classes)
    found = {
        **costs.files(workload.models),
        **workload.files,
        **believed,
        **config_files(workload.models),
        **engine.files(workload.models),
        **getattr(predictor, "files", {}),
        **sources.outside,
    }
    packages = (*COMPUTES, *engine.computed_by, *getattr(predictor, "computed_by", ()))
    measures = engine.runs_alone or getattr(predictor, "measures", False)
    return RunKey(
        code=sources.code,
        classes=classes,
        versions=versions_of(packages),
        files=dict(sorted(found.items())),
        machine=machine() if measures else {},
    )


def versions_of(packages: Any) -> dict[str, str]:
    """Versions as installed and, of what is loaded in every run, as loaded."""
    return {name: _version_of(name) for name in dict.fromkeys(packages)}


def _version_of(name: str) -> str:
    if name == PYTHON:
        return platform.python_version()
    installed = package_version(name)
    # Packages of some engines are large, and one is installed under other names: its own word.
    if installed is not None and name not in COMPUTES:
        return installed
    loaded = str(import_module(name).__version__)
    return loaded if loaded == installed else f"{loaded} (installed: {installed})"
