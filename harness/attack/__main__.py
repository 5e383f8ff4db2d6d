"""Attack this program: `python -m harness.attack [--inputs 1000] [--kills 100] [--seed 0]`.

Bad inputs go through the real command, and sweeps have a process of theirs killed at a random
moment and are resumed. Counts by outcome are the last line; the exit code is 1 where any was not
wanted, and each of those is printed with its command line. The same seed makes the same cases:
`--case 17` tries one again.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from harness.attack import inputs, kills

MOST = 1_000_000
"""Cases that can be told apart."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack and print what came of it. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Bad inputs and kills, counted by outcome.")
    parser.add_argument("--inputs", type=int, default=1000, help="bad inputs")
    parser.add_argument("--kills", type=int, default=100, help="sweeps with a process killed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="only this input, and no kills")
    parser.add_argument("--at-once", type=int, default=2, help="of either, side by side")
    given = parser.parse_args(arguments)
    if given.case is not None and not 0 <= given.case < MOST:
        parser.error(f"--case {given.case} is none of 0 to {MOST - 1:,}")
    for name, least in (("inputs", 0), ("kills", 0), ("at_once", 1)):
        if getattr(given, name) < least:
            option = name.replace("_", "-")
            parser.error(f"--{option} {getattr(given, name)} is less than {least}")
    numbers = range(given.inputs) if given.case is None else [given.case]
    found = inputs.try_inputs(given.seed, numbers, at_once=given.at_once)
    killed: Counter[str] = Counter()
    if given.case is None and given.kills:
        killed = kills.try_kills(given.seed, given.kills, at_once=given.at_once)
    print(f"inputs: {_counts(found, inputs.OUTCOMES)}; kills: {_counts(killed, kills.OUTCOMES)}")
    unwanted = [found[name] for name in inputs.UNWANTED] + [killed[name] for name in kills.UNWANTED]
    return int(any(unwanted))


def _counts(counts: Counter[str], names: Sequence[str]) -> str:
    return f"{counts.total()} (" + ", ".join(f"{counts[name]} {name}" for name in names) + ")"


if __name__ == "__main__":
    sys.exit(main())
