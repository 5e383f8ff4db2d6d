"""Which published figures and verdicts changed since a revision.

    python -m harness.claims.changes REVISION

Compares results/claims/*_verdicts*.json of a git revision with those of the working tree, prints
what differs and exits with 1 if anything does. Verdicts are compared always, figures by what they
are made of: one that is wall-clock time itself is not; one that has wall-clock time in it must
agree in its estimates to one step of the last printed digit, its intervals aside; every other one
must be the same text. Of a row only the keys are compared that both have.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from harness.claims.reading import read_claims
from harness.paths import ROOT

Rows = Mapping[str, Mapping[str, Any]]

FOLDER = "results/claims"
WALL_CLOCK = {"extra_s"}
"""Columns of a summary that are measured by a clock: how long planning took."""
HAS_WALL_CLOCK = {"end_to_end_s"}
"""Columns that those are a part of."""
STEP = 0.01  # of the last printed digit of a figure of ours
LISTED = {"open", "specifications"}
"""Keys of many entries, of which it is said how many differ."""
INTERVAL = re.compile(r" \[[^]]*\]")
NUMBER = re.compile(r"-?\d+\.\d+")


def then(root: Path, revision: str) -> dict[str, Rows]:
    """The verdicts of a revision by file name. ValueError where git does not know it."""
    listed = _git(root, "ls-tree", "--name-only", revision, f"{FOLDER}/").splitlines()
    return {
        Path(path).name: _by_id(_git(root, "show", f"{revision}:{path}"))
        for path in listed
        if re.search(r"_verdicts\w*\.json$", path)
    }


def now(root: Path) -> dict[str, Rows]:
    """The verdicts of the working tree by file name."""
    paths = sorted((root / FOLDER).glob("*_verdicts*.json"))
    return {path.name: _by_id(path.read_text(encoding="utf-8")) for path in paths}


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, check=False, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip().splitlines()[0])
    return done.stdout


def _by_id(text: str) -> Rows:
    return {row["id"]: row for row in json.loads(text)}


def columns_of(root: Path) -> dict[str, set[str]]:
    """The summary columns that the checks of every claim read."""
    return {
        claim.id: {
            str(column)
            for check in claim.checks
            for column in (*check.columns, *check.code.get("columns", ()))
        }
        for path in sorted((root / FOLDER).glob("*.yaml"))
        for claim in read_claims(path)
    }


def differences(
    old: Mapping[str, Rows], new: Mapping[str, Rows], columns: Mapping[str, set[str]]
) -> Iterator[str]:
    """One sentence for every claim and key that differs."""
    for name in sorted({*old, *new}):
        before, after = old.get(name, {}), new.get(name, {})
        for claim in dict.fromkeys((*before, *after)):
            if claim not in before or claim not in after:
                yield f"{name}: {claim} is only {'there now' if claim in after else 'in the past'}"
                continue
            left, right = before[claim], after[claim]
            for key in (key for key in left if key in right):
                if not alike(key, left[key], right[key], columns.get(claim, set())):
                    yield f"{name}: {claim}: {_changed(key, left[key], right[key])}"


def _changed(key: str, left: object, right: object) -> str:
    """What differs under a key; of long lists only how much of them."""
    if not (isinstance(left, list) and isinstance(right, list) and key in LISTED):
        return f"{key} was {left!r}, is {right!r}"
    pairs = list(zip_longest(left, right))
    differ = sum(before != after for before, after in pairs)
    return f"{key}: {differ} of {len(pairs)} differ"


def alike(key: str, left: object, right: object, columns: set[str]) -> bool:
    """Whether what a claim says under a key is the same, for a claim that reads these columns."""
    if left == right:
        return True
    if key not in ("ours", "note"):
        return False
    if columns & WALL_CLOCK:
        return True
    return bool(columns & HAS_WALL_CLOCK) and _nearly(str(left), str(right))


def _nearly(left: str, right: str) -> bool:
    """Whether two texts say the same, but for intervals and the last digit of every estimate."""
    left, right = INTERVAL.sub("", left), INTERVAL.sub("", right)
    pairs = zip_longest(NUMBER.findall(left), NUMBER.findall(right), fillvalue="nan")
    near = all(abs(float(a) - float(b)) <= 1.001 * STEP for a, b in pairs)
    return near and NUMBER.sub("", left) == NUMBER.sub("", right)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what differs; the exit status."""
    parser = argparse.ArgumentParser(description="Which published figures and verdicts changed.")
    parser.add_argument("revision", help="of git, for instance HEAD or main")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project")
    given = parser.parse_args(arguments)
    try:
        old = then(given.root, given.revision)
        found = list(differences(old, now(given.root), columns_of(given.root)))
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(found) or f"{sum(map(len, old.values()))} verdicts and their figures are equal")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
