"""Which runs are a scenario's own: those of its matrix, as it was when all of it was last run.

A run that was tried by hand, with another seed or size, lies in the same folder and is none of
them. Each variant has a list of its own; a command that did not come to its end changes none.
"""

import json
from collections.abc import Collection
from pathlib import Path

from harness.runs.config import HOW
from harness.runs.leftovers import write_whole

_LISTS = "own_*.json"


def as_it_stands(given: Collection[str]) -> bool:
    """Whether a command that gives these keys runs the cells that a scenario's file has."""
    return {key.partition(".")[0] for key in given} <= {*HOW, "cluster", "scenario", "variant"}


def keep_own(folder: Path, variant: str, runs: Collection[str]) -> None:
    """Write which runs in a scenario's folder are its own. Raises OSError."""
    name = _LISTS.replace("*", variant)
    write_whole(folder / name, json.dumps(sorted(runs), indent=0) + "\n")


def own_of(folder: Path) -> frozenset[str]:
    """The runs that are a scenario's own, of any variant.

    Raises ValueError where a list was changed into something else.
    """
    found: set[str] = set()
    for path in sorted(folder.glob(_LISTS)):
        try:
            listed = json.loads(path.read_bytes())
        except (ValueError, RecursionError):
            listed = None
        if not isinstance(listed, list) or not all(isinstance(run, str) for run in listed):
            raise ValueError(f"{path} is no list of runs; remove it and run the scenario again")
        found.update(listed)
    return frozenset(found)
