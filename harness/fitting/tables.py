"""Makes every stored profile that is derived from measurements: `python -m harness.fitting`.

Logged iterations become profiles, component by component, in `harness.fitting.components`; what
other authors measured as whole iterations becomes profiles in `harness.fitting.rows`; what was
measured nowhere follows the rooflines of `harness.fitting.roofline` and of
`harness.fitting.roofline_across`.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.costs.profiles import CALIBRATION
from harness.fitting.applications import application_files
from harness.fitting.arrivals import arrival_files
from harness.fitting.components import FOLDER, profile_files
from harness.fitting.lengths import length_files, words_file
from harness.fitting.linear_profile import FOLDER as LINEAR
from harness.fitting.linear_profile import linear_files
from harness.fitting.pairs import pair_files
from harness.fitting.predictors import MEASURED_HERE, predictor_files
from harness.fitting.query_latency import FILE as QUERY_LATENCY
from harness.fitting.query_latency import query_latency
from harness.fitting.roofline import calibration_file
from harness.fitting.roofline_across import FOLDER as ACROSS
from harness.fitting.roofline_across import across_file
from harness.fitting.rows import measured_files, profile_sources
from harness.fitting.shapes import shape_files
from harness.paths import PROFILES

Json = dict[str, Any]

DERIVED = (
    ("lengths", length_files),
    ("predictors", predictor_files),
    ("derived", shape_files),
    ("arrivals", arrival_files),
    ("pairs", pair_files),
    ("applications", application_files),
)
"""Folders of tables, each made from the data alone."""


def write_all(data: Path, out: Path) -> list[Path]:
    """Write every derived profile below `out`; returns the paths relative to it."""
    written = []

    def write(path: Path, content: Json) -> None:
        target = out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(as_text(content), encoding="utf-8")
        written.append(path)

    for name, content in profile_files(data):
        write(Path(FOLDER) / name, content)
    write(Path(FOLDER) / CALIBRATION, calibration_file(out / FOLDER))
    across = across_file(data, out / FOLDER)
    write(Path(ACROSS) / CALIBRATION, across)
    for source in profile_sources():
        for name, content in measured_files(source, data):
            write(Path(source.folder) / name, content)
        write(Path(source.folder) / CALIBRATION, across)
    for name, content in linear_files(across):
        write(Path(LINEAR) / name, content)
    for folder, made in DERIVED:
        for name, content in made(data):
            write(Path(folder) / name, content)
    write(Path("derived") / QUERY_LATENCY, query_latency(out / ACROSS))
    write(Path("tokens_per_word.json"), words_file(data))
    return written


def as_text(content: Mapping[str, Any]) -> str:
    """How a profile is written: sorted, one value per line, so that changes can be read.

    Of `runs`, which come last, each is a line.
    """
    rest = {key: value for key, value in content.items() if key != "runs"}
    text = json.dumps(rest, sort_keys=True, indent=1)
    if "runs" in content:
        runs = ",\n".join(json.dumps(run, separators=(",", ":")) for run in content["runs"])
        text = f'{text[:-2]},\n "runs": [\n{runs}\n]\n}}'
    return text + "\n"


def check(data: Path, kept: Path) -> list[str]:
    """Sentences on the derived files that differ from the kept ones; empty if none do."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = {path: (Path(scratch) / path) for path in write_all(data, Path(scratch))}
        found = []
        for path, made in fresh.items():
            if not (kept / path).is_file():
                found.append(f"{path} is missing.")
            elif (kept / path).read_bytes() != made.read_bytes():
                found.append(f"{path} differs from what the data give.")
    folders = [FOLDER, ACROSS, LINEAR, *(source.folder for source in profile_sources())]
    folders += [folder for folder, _ in DERIVED]
    kept_files = {
        path.relative_to(kept)
        for folder in folders
        for path in (kept / folder).glob("*")
        if not path.name.startswith(MEASURED_HERE)
    }
    return found + [
        f"{path} is not derived from the data." for path in sorted(kept_files - fresh.keys())
    ]


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.fitting", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="measurements")
    parser.add_argument("--out", type=Path, default=PROFILES, help="folder of the profiles")
    parser.add_argument("--check", action="store_true", help="compare only; 1 on a difference")
    options = parser.parse_args(arguments)
    if not (options.data / "samullm" / "iteration_latency.parquet").is_file():
        print(f"There are no measurements in {str(options.data)!r}.", file=sys.stderr)
        return 2
    if options.check:
        differences = check(options.data, options.out)
        print("\n".join(differences) or "Every derived profile is as the data give it.")
        return 1 if differences else 0
    print(f"Wrote {len(write_all(options.data, options.out))} files below {options.out}.")
    return 0
