"""What a paper claims beside what was run here: `python -m harness.claims <paper> [--strict]`.

Reads results/claims/<paper>.yaml and the run folders it points to, prints one row per claim and
writes results/claims/<paper>_verdicts.json, or with --variant code, which holds the claims against
runs of the authors' program, <paper>_verdicts_code.json. With --strict it fails where a claim is
not reproduced or was not run.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.claims.judge import verdict_of
from harness.claims.reading import read_claims
from harness.claims.settling import Verdict
from harness.runs.config import VARIANTS
from harness.runs.record import ROOT, read_summaries


def _figure(paper: object) -> str:
    """A figure of the paper as text."""
    if isinstance(paper, list):
        return " to ".join(str(value) for value in paper)
    if isinstance(paper, dict):
        return ", ".join(f"{key} {value}" for key, value in paper.items())
    return str(paper)


LEAST_WIDTH = 150  # characters; a pipe reports 80, which no column of sentences survives
COLOURS = {
    Verdict.REPRODUCED: "green",
    Verdict.DEPENDS: "yellow",
    Verdict.DIRECTION: "yellow",
    Verdict.NOT_REPRODUCED: "red",
}


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="Claims of the paper beside what was run here", title_justify="left")
    table.add_column("claim", no_wrap=True)
    table.add_column("paper", overflow="fold", ratio=3)
    table.add_column("ours [95% over seeds]", overflow="fold", ratio=4)
    table.add_column("verdict", no_wrap=True)
    table.add_column("note", overflow="fold", ratio=5)
    for row in rows:
        style = COLOURS.get(row["verdict"], "dim")
        table.add_row(
            row["id"], _figure(row["paper"]), row["ours"], row["verdict"], row["note"], style=style
        )
    console = Console()
    console.width = max(console.width, LEAST_WIDTH)
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and write the verdicts; the exit status."""
    parser = argparse.ArgumentParser(description="Hold a paper's claims against the runs.")
    parser.add_argument("paper", help="a file of results/claims, without .yaml")
    parser.add_argument("--strict", action="store_true", help="fail unless every check holds")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="where the runs are")
    parser.add_argument("--variant", choices=VARIANTS, default="paper")
    given = parser.parse_args(arguments)
    folder = given.results / "claims"
    try:
        claims = read_claims(folder / f"{given.paper}.yaml")
        summaries = cache(lambda scenario: read_summaries(given.results / scenario))
        rows = [verdict_of(claim, summaries, given.variant) for claim in claims]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    name = "verdicts" if given.variant == "paper" else f"verdicts_{given.variant}"
    (folder / f"{given.paper}_{name}.json").write_text(json.dumps(rows, indent=2) + "\n")
    _print(rows)
    bad = (Verdict.NOT_REPRODUCED, Verdict.NOT_RUN)
    return int(given.strict and any(row["verdict"] in bad for row in rows))
