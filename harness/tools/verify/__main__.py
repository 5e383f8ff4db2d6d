"""`python -m harness.tools.verify [--quick]`: queues on the simulator against their closed forms.

Prints a table, writes results/local/verify/summary.json (with --publish the one that the pages
show), and exits 1 if a line is out of its bound: 0.1%, or 0.5% where it has to be quick.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import count, repeat
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table

from harness.runs import published
from harness.tools.verify.estimates import Effort, verify
from harness.tools.verify.queues import Discipline, Queue
from harness.tools.verify.samples import Law

LOADS = (0.3, 0.5, 0.8)
MAX_NUM_SEQS = (2, 4, 8)
QUICK = Effort(recursion_runs=200, engine_runs=1, engine_requests=1_000, bound=0.005)
FULL = Effort(recursion_runs=5_000, engine_runs=3, engine_requests=20_000, bound=0.001)


def queues() -> list[Queue]:
    """Every line of the table; the place of a line is its seed."""
    *both, shortest = Discipline
    found = []
    for load in LOADS:
        plain = Queue(discipline=both[0], law=Law.EXPONENTIAL, load=load)
        found += [replace(plain, law=law, discipline=it) for law in Law for it in both]
        found += [replace(plain, max_num_seqs=slots) for slots in MAX_NUM_SEQS]
        found.append(replace(plain, discipline=shortest))
    return sorted(found, key=lambda q: (q.discipline.value, q.max_num_seqs, list(Law).index(q.law)))


def main() -> int:
    """Verify every queue; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.tools.verify", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes")
    published.add_publish(parser)
    given = parser.parse_args()
    effort = QUICK if given.quick else FULL
    started_s = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        running = pool.map(verify, queues(), repeat(effort), count())
        shown = Console(stderr=True)
        lines = list(track(running, "verifying", total=len(queues()), console=shown))
    console = Console()
    console.width = max(console.width, 150)
    console.print(as_table(lines))
    for line in lines:
        for problem in line["problems"]:
            print(f"{line['queue']}, {line['law']}, load {line['load']}: {problem}")
    content = {"lines": lines, "took_s": round(time.perf_counter() - started_s, 1)}
    folder = published.place("verify", publish=given.publish)
    published.write(folder / "summary.json", json.dumps(content, indent=1) + "\n")
    return 0 if all(line["holds"] for line in lines) else 1


def as_table(lines: Sequence[Mapping[str, Any]]) -> Table:
    """One row per queue; all differences are relative to the closed form."""
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        caption_justify="left",
        title="Queues on the simulator against their closed forms (mean service time 1 s)",
        caption="+- : standard error. |gap|: largest difference of a response time from the "
        "recursion on the same sample. Alone: engine requests only.",
    )
    for name in ("queue", "lengths", "load", "mean"):
        table.add_column(name, no_wrap=True)
    right = ("closed form s", "estimate s", "off", "+-", "|gap| s", "alone", "+-", "engine", "all")
    for name in (*right, "holds"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        expected_s, alone = line["expected_s"], line["engine_alone"]
        table.add_row(
            *(line["queue"], line["law"], f"{line['load']:g}", line["figure"]),
            *(f"{expected_s:.6f}", f"{line['estimate_s']:.6f}", f"{line['difference']:+.4%}"),
            *(f"{line['standard_error_s'] / expected_s:.4%}", f"{line['max_gap_s']:.0e}"),
            "-" if alone is None else f"{alone:+.2%}",
            "-" if alone is None else f"{line['engine_alone_error']:.2%}",
            *(f"{line['engine_requests']:,}", f"{line['recursion_requests']:.0e}"),
            "yes" if line["holds"] else "NO",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
