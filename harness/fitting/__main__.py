"""Makes every stored profile that is derived from measurements: `python -m harness.fitting`.

Logged iterations become profiles, component by component, in `harness.fitting.components`; what
other authors measured as whole iterations becomes profiles in `harness.fitting.rows`; what was
measured nowhere follows the rooflines of `harness.fitting.roofline` and of
`harness.fitting.roofline_across`.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.costs.profiles import CALIBRATION
from harness.fitting.applications import MADE_UP, application_files
from harness.fitting.arrivals import arrival_files
from harness.fitting.components import FOLDER, profile_files
from harness.fitting.lengths import length_files, words_file
from harness.fitting.pairs import pair_files
from harness.fitting.predictors import MEASURED_HERE, predictor_files
from harness.fitting.roofline import calibration_file
from harness.fitting.roofline_across import FOLDER as ACROSS
from harness.fitting.roofline_across import across_file
from harness.fitting.rows import measured_files, profile_sources
from harness.fitting.shapes import QUERY_LATENCY, query_latency, shape_files
from harness.fitting.stored import as_text
from harness.paths import PROFILES

DERIVED = {
    "lengths": length_files,
    "predictors": predictor_files,
    "derived": shape_files,
    "arrivals": arrival_files,
    "pairs": pair_files,
    "applications": application_files,
}
"""Folders of tables, each made from the data alone."""
LINEAR = "linear_100ms_20ms_per_token"
"""A profile that a program assumes, kept as it is; other models beside it follow the roofline."""


def write_all(data: Path, out: Path) -> list[Path]:
    """Write every derived profile below `out`; returns the paths relative to it."""
    written = []

    def write(folder: str, name: str, content: Mapping[str, Any]) -> None:
        target = out / folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(as_text(content), encoding="utf-8")
        written.append(Path(folder) / name)

    for name, content in profile_files(data):
        write(FOLDER, name, content)
    write(FOLDER, CALIBRATION, calibration_file(out / FOLDER))
    across = across_file(data, out / FOLDER)
    for folder in (ACROSS, LINEAR, *(source.folder for source in profile_sources())):
        write(folder, CALIBRATION, across)
    for source in profile_sources():
        for name, content in measured_files(source, data):
            write(source.folder, name, content)
    for folder, made in DERIVED.items():
        for name, content in made(data):
            write(folder, name, content)
    write("derived", QUERY_LATENCY, query_latency(out / ACROSS))
    write("", "tokens_per_word.json", words_file(data))
    return written


def check(data: Path, kept: Path) -> list[str]:
    """Sentences on the derived files that differ from the kept ones; empty if none do."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        fresh = write_all(data, Path(scratch))
        for path in fresh:
            if not (kept / path).is_file():
                found.append(f"{path} is missing.")
            elif (kept / path).read_bytes() != (Path(scratch) / path).read_bytes():
                found.append(f"{path} differs from what the data give.")
    folders = [FOLDER, ACROSS, *(source.folder for source in profile_sources()), *DERIVED]
    there = {path.relative_to(kept) for name in folders for path in (kept / name).glob("*")}
    return found + [
        f"{path} is not derived from the data."
        for path in sorted(there.difference(fresh))
        if not path.name.startswith((MEASURED_HERE, MADE_UP))
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


if __name__ == "__main__":
    sys.exit(main())
