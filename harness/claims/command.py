"""What a paper claims beside what was run here: `python -m harness.claims <paper> [--strict]`.

Reads results/claims/<paper>.yaml and the run folders it points to, prints one row per claim and
writes <paper>_verdicts.json, or with --variant code, which holds the claims against runs of the
authors' program, <paper>_verdicts_code.json: below results/local/claims, or with --publish below
results/claims. With --strict it fails where a claim is not reproduced, cannot be told or was not
run.
"""

import argparse
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.claims.judge import verdict_of
from harness.claims.reading import read_claims
from harness.claims.settling import Verdict
from harness.runs import published
from harness.runs.cell_lists import Runs, reader
from harness.runs.config import VARIANTS

Rows = Sequence[Mapping[str, Any]]

LEAST_WIDTH = 150  # characters; a pipe reports 80, which no column of sentences survives
COLOURS = {
    Verdict.REPRODUCED: "green",
    Verdict.DEPENDS: "yellow",
    Verdict.DIRECTION: "yellow",
    Verdict.NOT_REPRODUCED: "red",
}


def verdict_file(name: str, variant: str) -> str:
    """Name of the file of verdicts of a paper, or of one of its figures."""
    return f"{name}_verdicts.json" if variant == "paper" else f"{name}_verdicts_{variant}.json"


def judged(
    paper: str,
    *,
    results: Path,
    variant: str,
    runs: Runs,
    only: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Verdicts of a paper's claims, or of these alone. ValueError for bad claims and runs."""
    claims = read_claims(results / "claims" / f"{paper}.yaml")
    return [
        verdict_of(claim, lambda scenario: runs(scenario, variant), variant)
        for claim in claims
        if not only or claim.id in only
    ]


def published_verdicts(paper: str, *, results: Path, variant: str) -> dict[str, str]:
    """The published verdicts of a paper by claim. ValueError where their file holds others."""
    known = results / "claims" / verdict_file(paper, variant)
    if not known.is_file():
        return {}
    return {row["id"]: row["verdict"] for row in read_verdicts(known)}


def read_verdicts(path: Path) -> Rows:
    """What a file of verdicts holds. ValueError where it was changed into something else."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        words = [row[word] for row in rows for word in ("id", "verdict")]
        lists = [row.get("specifications", []) for row in rows]
        if not isinstance(rows, list) or not all(isinstance(word, str) for word in words):
            raise TypeError("each has an id and a verdict, which are texts")
        if not all(isinstance(one, list) for one in lists):
            raise TypeError("specifications are a list")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} holds no verdicts ({type(error).__name__}: {error}); git has what it held"
        ) from None
    found: Rows = rows
    return found


def report(
    rows: Rows,
    before: Mapping[str, str],
    *,
    name: str,
    results: Path,
    variant: str,
    publish: bool,
) -> None:
    """Print verdicts beside those published `before` and write them, to the file of a `name`."""
    _print(rows, before, variant)
    folder = published.place("claims", publish=publish, results=results)
    published.write(folder / verdict_file(name, variant), json.dumps(rows, indent=2) + "\n")


def _print(rows: Rows, before: Mapping[str, str], variant: str) -> None:
    what = "" if variant == "paper" else f" ({variant})"
    table = Table(title=f"What the paper claims, and what was run here{what}", title_justify="left")
    table.add_column("claim", no_wrap=True)
    table.add_column("paper", overflow="fold", ratio=3)
    table.add_column("ours here [95% over seeds]", overflow="fold", ratio=4)
    table.add_column("verdict here", no_wrap=True)
    table.add_column("published verdict", no_wrap=True)
    for row in rows:
        known = before.get(row["id"], "-")
        cells = (row["id"], _figure(row["paper"]), row["ours"], row["verdict"], known)
        table.add_row(*map(escape, cells), style=COLOURS.get(row["verdict"], "dim"))
    console = Console()
    console.width = max(console.width, LEAST_WIDTH)
    console.print(table)


def _figure(paper: object) -> str:
    """A figure of the paper as text."""
    if isinstance(paper, list):
        return " to ".join(str(value) for value in paper)
    if isinstance(paper, dict):
        return ", ".join(f"{key} {value}" for key, value in paper.items())
    return str(paper)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and write the verdicts; the exit status."""
    parser = argparse.ArgumentParser(description="Hold a paper's claims against the runs.")
    parser.add_argument("paper", help="a file of results/claims, without .yaml")
    parser.add_argument("--strict", action="store_true", help="fail unless every check holds")
    parser.add_argument(
        "--results", type=Path, default=published.RESULTS, help="where the runs are"
    )
    parser.add_argument("--variant", choices=VARIANTS, default="paper")
    published.add_publish(parser)
    given = parser.parse_args(arguments)
    paper, results, variant = given.paper, given.results, given.variant
    try:
        before = published_verdicts(paper, results=results, variant=variant)
        rows = judged(paper, results=results, variant=variant, runs=reader(results))
        report(rows, before, name=paper, results=results, variant=variant, publish=given.publish)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    bad = (Verdict.NOT_REPRODUCED, Verdict.UNTOLD, Verdict.NOT_RUN)
    return int(given.strict and any(row["verdict"] in bad for row in rows))
