"""How far off the seconds of the simulator are: `python -m harness.fidelity --data FOLDER`.

Writes results/local/fidelity/summary.json, or with --publish the one that the pages show.
"""

import argparse
import sys
from pathlib import Path

from harness.fidelity.report import all_lines, as_json, missing, print_table
from harness.runs import published


def main(arguments: list[str] | None = None) -> int:
    """Print the table and write `summary.json`; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.fidelity", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="measurements")
    parser.add_argument("--out", type=Path, help="folder of summary.json, instead")
    published.add_publish(parser)
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
    folder = options.out or published.place("fidelity", publish=options.publish)
    published.write(folder / "summary.json", as_json(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
