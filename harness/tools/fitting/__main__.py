"""Makes every stored profile that is derived from measurements: `python -m harness.tools.fitting`.

Logged iterations become profiles, component by component, in `harness.tools.fitting.components`;
what other authors measured as whole iterations becomes profiles in `harness.tools.fitting.rows`;
what was measured nowhere follows the rooflines of `harness.tools.fitting.roofline` and of
`harness.tools.fitting.roofline_across`. Latencies of single kernels become tables of GPUs in
`harness.tools.fitting.kernels`.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.config.paths import PROFILES
from harness.costs.kernels import FORMULA, KERNELS
from harness.costs.profiles import CALIBRATION
from harness.tools.fitting.applications import application_files
from harness.tools.fitting.arrivals import arrival_files
from harness.tools.fitting.components import FOLDER, profile_files
from harness.tools.fitting.in_process import in_process_file
from harness.tools.fitting.kernels import formula_file, kernel_files
from harness.tools.fitting.lengths import length_files, predictor_files, words_file
from harness.tools.fitting.pairs import pair_files
from harness.tools.fitting.roofline import calibration_file
from harness.tools.fitting.roofline_across import FOLDER as ACROSS
from harness.tools.fitting.roofline_across import across_file
from harness.tools.fitting.rows import measured_files, profile_sources
from harness.tools.fitting.shapes import QUERY_LATENCY, query_latency, shape_files
from harness.tools.fitting.stored import as_text

DERIVED = {
    "lengths": length_files,
    "predictors": predictor_files,
    "derived": shape_files,
    "arrivals": arrival_files,
    "pairs": pair_files,
    "applications": application_files,
}
"""Folders of tables, each made from the data alone."""


def write_all(data: Path, out: Path) -> list[Path]:
    """Write every derived profile below `out`; returns their paths."""
    written = []

    def write(folder: str, name: str, content: Mapping[str, Any], *, compact: bool = False) -> None:
        target = out / folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(as_text(content, compact=compact), encoding="utf-8")
        written.append(target)

    for name, content in profile_files(data):
        write(FOLDER, name, content)
    write(FOLDER, CALIBRATION, calibration_file(out / FOLDER))
    write(ACROSS, CALIBRATION, across_file(data, out / FOLDER))
    for source in profile_sources():
        for name, content in measured_files(source, data):
            write(source.folder, name, content)
    for folder, made in DERIVED.items():
        for name, content in made(data):
            write(folder, name, content)
    for name, table in kernel_files(data):
        write(KERNELS.name, name, table, compact=True)
    write(KERNELS.name, FORMULA.name, formula_file(data))
    write("engines", "vllm-sync.json", in_process_file())
    write("derived", QUERY_LATENCY, query_latency(out / ACROSS))
    write("", "tokens_per_word.json", words_file(data))
    return written


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.tools.fitting", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="measurements")
    parser.add_argument("--out", type=Path, default=PROFILES, help="folder of the profiles")
    options = parser.parse_args(arguments)
    if not (options.data / "samullm" / "iteration_latency.parquet").is_file():
        print(f"There are no measurements in {str(options.data)!r}.", file=sys.stderr)
        return 2
    print(f"Wrote {len(write_all(options.data, options.out))} files below {options.out}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
