"""What determines a result beside its configuration: a run is named by all of it."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from harness import inputs
from harness.costs.model import ProfileCosts
from harness.costs.model_config import config_files
from harness.engines.engine import Engine
from harness.runs.outside import modules_of
from harness.runs.provenance import machine, package_version, source_digest

PYTHON = "python"
COMPUTES = (PYTHON, "numpy", "numba", "llvmlite", "scipy", "pandas", "pyarrow")
"""What computes, or reads, in every run: Python and packages."""


class Changed(ValueError):  # noqa: N818 - it says what has happened
    """What a run is named by is not what this process has; the text says which of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBy:
    """The program, the packages, the files and, where seconds are measured, the machine.

    `code` is the digest of the program as loaded; `versions` are those of the packages that
    compute; `files` are the sha256, by name, of files and datasets from outside the program, those
    of classes that the configuration names among them. Names of files below the project's folder
    are relative to it. `machine` is empty where everything is simulated.
    """

    code: str
    versions: Mapping[str, str]
    files: Mapping[str, str]
    machine: Mapping[str, object]

    def rests_on(self) -> dict[str, object]:
        """All but the program, plain."""
        return {"versions": self.versions, "files": self.files, "machine": self.machine}

    def refuse_changes(self, *, of_inputs_alone: bool = False) -> None:
        """Raises Changed where this process, or the disk, has anything else.

        For the process that runs the cell, before and behind it: it may be another than the one
        that has named it, and either may have loaded what was edited meanwhile. Before it the
        program's many files may be left out: it is loaded, and is asked for behind it.
        """
        if source_digest() != self.code:
            raise Changed(
                "the program was edited after the command began: this process has loaded "
                f"{source_digest()}, the run is named by {self.code}; give the command again"
            )
        program = {} if of_inputs_alone else inputs.PROGRAM
        if names := inputs.changed({**program, **self.files}):
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise Changed(
                f"{names[0]}{more} changed after the command began, so nobody could say what the "
                "result follows from; it is not kept, give the command again"
            )
        if self.machine and machine() != self.machine:
            raise Changed("the run is named by another machine than this one, which would be timed")
        if versions_of(self.versions) != self.versions:
            raise Changed(
                f"the run is named by {_listed(self.versions)}, this process has "
                f"{_listed(versions_of(self.versions))}"
            )


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def basis_of(
    config: Mapping[str, Any], engine: Engine, costs: ProfileCosts, workload: Any, predictor: Any
) -> NamedBy:
    """What a cell of this configuration is named by, beside the configuration.

    `workload` and `predictor` (which may be None) are those that make them: `files` is what they
    read. A predictor may say that it `measures` seconds, and by which packages it is `computed_by`.
    """
    found = {
        **costs.files,
        **workload.files,
        **config_files(workload.models),
        **engine.files(workload.models),
        **getattr(predictor, "files", {}),
        **modules_of(config),
    }
    packages = (*COMPUTES, *engine.computed_by, *getattr(predictor, "computed_by", ()))
    measures = engine.runs_alone or getattr(predictor, "measures", False)
    return NamedBy(
        code=source_digest(),
        versions=versions_of(packages),
        files={name: found[name] for name in sorted(found) if name not in inputs.PROGRAM},
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
