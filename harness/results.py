"""What was run: `python -m harness results verify | list | index | compare A B`.

    verify [SCENARIO ...]      every run folder against its manifest; exit code 1 where one is not
                               as it was written
    list [SCENARIO ...]        scenario, run, setting, engine, program and date
    index [SCENARIO ...]       write RESULTS/index.parquet: a row per run with its configuration,
                               figures and provenance, which Weights & Biases has, too
    compare A B                figures of A over those of B, paired by seed, with 95% intervals

A and B are PLACE or PLACE:KEY=VALUE,...: the folder of a scenario or of a run, or its name below
the results, and which of its runs, as in `ensembling:system=max_heuristic,seed=0`. Of
several runs of one configuration the newest is compared. Bad input ends in one sentence and exit
code 2.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from harness.config.names import unknown_name
from harness.runs.compare import (
    SAME,
    SEED,
    also_differ,
    axes,
    compared,
    key_of,
    scenario_runs,
    selection,
)
from harness.runs.figures import FIGURES
from harness.runs.limits import unlike_limits
from harness.runs.published import RESULTS
from harness.runs.record import damage_of, read_summaries
from harness.runs.stats import Estimate
from harness.runs.trace_intervals import BLOCK, KEY


def scenarios(results: Path, names: Sequence[str]) -> Iterator[Path]:
    """Folders of scenarios, those named or all that have runs. ValueError for one that is not."""
    if not results.is_dir():
        raise ValueError(f"--results {results} is no folder")
    known = {path.name: path for path in sorted(results.glob("[!.]*")) if scenario_runs(path)}
    for name in names or known:
        if name not in known:
            raise ValueError(f"{unknown_name('scenario with runs', name, known)} (below {results})")
        yield known[name]


def verify(given: argparse.Namespace) -> int:
    """Hold every run against its manifest; 1 where one is damaged."""
    whole = damaged = 0
    for scenario in scenarios(given.results, given.scenarios):
        for folder in scenario_runs(scenario):
            if damage := damage_of(folder):
                print(f"{scenario.name}/{folder.name} {damage}")
                damaged += 1
            else:
                whole += 1
    print(f"{whole} runs are as they were written, {damaged} are not")
    return 1 if damaged else 0


def listed(given: argparse.Namespace) -> int:
    """Print a line per run."""
    lines = []
    for scenario in scenarios(given.results, given.scenarios):
        rows = read_summaries(scenario)
        names = [*axes(rows), *([SEED] if SEED in rows else [])]
        for run, row in rows.iterrows():
            said = " ".join(f"{key_of(name)}={row[name]}" for name in names)
            date = str(row["started"])[:19]
            lines.append((scenario.name, run, said, row["engine"], row["code"], date))
    _print(pd.DataFrame(lines, columns=["scenario", "run", "setting", "engine", "code", "date"]))
    return 0


def index(given: argparse.Namespace) -> int:
    """Write one table of all runs; columns of one type: numbers, else texts."""
    parts = [
        read_summaries(scenario).rename_axis("run").reset_index().assign(scenario=scenario.name)
        for scenario in scenarios(given.results, given.scenarios)
    ]
    if not parts:
        raise ValueError(f"there are no runs below {given.results}")
    rows = pd.concat(parts, ignore_index=True)
    for name in rows.select_dtypes(exclude="number"):
        rows[name] = [None if it is None or it != it else str(it) for it in rows[name]]
    path = given.results / "index.parquet"
    rows.set_index(["scenario", "run"]).to_parquet(path)
    print(f"wrote {path}: {len(rows)} runs of {len(parts)} scenarios")
    return 0


def compare(given: argparse.Namespace) -> int:
    """Print the figures of one selection over those of another."""
    sides = [selection(text, given.results) for text in (given.a, given.b)]
    one, other = (side.rows() for side in sides)
    numbers = one.select_dtypes("number").columns.intersection(
        other.select_dtypes("number").columns, sort=False
    )
    known = [name for name in map(str, numbers) if not name.startswith("config.")]
    figures = given.figures or [
        name
        for name, figure in FIGURES.items()
        if figure.header and name in known and one[name].notna().any()
    ]
    if absent := [name for name in figures if name not in known]:
        raise ValueError(unknown_name("figure of both", absent[0], dict.fromkeys(known)))
    found = compared(one, other, figures)
    if limits := unlike_limits(pd.concat([one, other])):
        print(limits)
    if also := also_differ(one, other, [key for side in sides for key in side.where]):
        print(also)
    is_same = not found.pop(SAME).eq(False).any()
    if not is_same:
        print("A and B served other requests: A / B is of two loads, not of one trace")
    for name in ("A", "B"):
        found[name] = [f"{value:,.4g}" for value in found[name]]
    is_trace = f"{KEY}.{BLOCK}" in one and bool(one[f"{KEY}.{BLOCK}"].notna().all())
    found["A / B"] = [_ratio(ratio, is_trace=is_trace) for ratio in found["A / B"]]
    _print(found)
    print(_about_ratios(one, is_one=is_same))
    for name, text, rows in (("A", given.a, one), ("B", given.b, other)):
        print(f"{name}: {text}, {len(rows)} runs, the newest of {str(rows['started'].max())[:19]}")
    return 0


def _about_ratios(rows: pd.DataFrame, *, is_one: bool) -> str:
    """What the intervals are of; `is_one`: where A is of a trace, B served the same requests."""
    if not is_one:
        return "A / B: of runs that served other requests, without an interval"
    block = rows.get(f"{KEY}.{BLOCK}", pd.Series(dtype=float)).dropna()
    if block.empty:
        return "A / B: geometric mean over seeds of the ratio, with its 95% interval"
    if not block.max():
        return "A / B: of one trace, which is too short for an interval"
    return f"A / B: of one trace, with the 95% interval over blocks of {block.max():,.0f} requests"


def _ratio(ratio: Estimate | None, *, is_trace: bool) -> str:
    if ratio is None:
        return "-"
    has_none = is_trace and ratio.low is None
    return f"{ratio.value:.3f} (no interval)" if has_none else ratio.text(3)


def _print(frame: pd.DataFrame) -> None:
    """A table as wide as it needs to be."""
    lines = [[str(name) for name in frame], *frame.astype(str).to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness results", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "verify": verify,
        "list": listed,
        "index": index,
        "compare": compare,
    }
    for name in actions:
        command = commands.add_parser(name)
        command.add_argument("--results", type=Path, default=RESULTS, help="folder of results")
        if name == "compare":
            command.add_argument("a", metavar="A")
            command.add_argument("b", metavar="B")
            command.add_argument("--figures", nargs="+", help="columns of summaries")
        else:
            command.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    given = parser.parse_args(arguments)
    try:
        return actions[given.command](given)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
