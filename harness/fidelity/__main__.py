"""How far off the seconds of the simulator are: `python -m harness.fidelity --data FOLDER`."""

import argparse
import sys
from pathlib import Path

from harness.fidelity.report import all_lines, as_json, missing, print_table

RESULTS = Path(__file__).resolve().parents[2] / "results" / "fidelity"


def main(arguments: list[str] | None = None) -> int:
    """Print the table and write `summary.json`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.fidelity", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="measurements")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of summary.json")
    options = parser.parse_args(arguments)
    absent = missing(options.data)
    if absent:
        print(
            f"Not all measurements are in {str(options.data)!r}: {absent[0]} is missing.",
            file=sys.stderr,
        )
        return 2
    lines = list(all_lines(options.data))
    print_table(lines)
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / "summary.json"
    target.write_text(as_json(lines), encoding="utf-8")
    print(f"Wrote {len(lines)} lines to {target}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
