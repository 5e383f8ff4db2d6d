"""Measured runs of a scenario beside simulated ones.

    python -m harness.fidelity.real_runs SCENARIO

For scenarios with engines on an axis. Prints, and writes fidelity_runs/<scenario>.json: for
every system (or, where that is the same for all, every policy) the figures on real engines and on
the simulator, means over seeds, and the error. With `--reference NAME` also how much of its mean
JCT every other one saves, with a 95% interval over seeds. Of four systems or
more also the rank correlation of their order on both engines. Where runs kept their iterations
(`record.iterations`), also whether both engines ran the same batches.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from harness.costs.model_facts import unknown_name
from harness.fidelity.batch_logs import SEED, compared_batches, same_batches_text
from harness.paths import ROOT
from harness.runs import published
from harness.runs.cell_lists import read_cells
from harness.runs.provenance import machine
from harness.runs.stats import mean_of, paired_ratio
from harness.runs.table import POLICY, SYSTEM

JCT = "jct_s_mean"
THROUGHPUT = "requests_per_s"
"""Requests over the seconds to the last answer, beside the figures of a run's summary."""
LEAST_RANKED = 4
"""Systems of which an order says something."""
DRAWS, ENDS = 1000, (0.025, 0.975)
FIGURES = ("inference_s", JCT, "jct_s_p99", "gpu_busy_s", "gpu_loading_s", "gpu_idle_s")


def compared(rows: pd.DataFrame, figures: Sequence[str] = FIGURES) -> list[dict[str, object]]:
    """One entry per system and figure; `low` and `high` end the 95% interval of what was measured.

    Raises ValueError where a system was not run on both, with the same seeds, and for a figure that
    no run has.
    """
    rows = rows.assign(**{THROUGHPUT: rows["requests"] / rows["inference_s"]})
    if unknown := [name for name in figures if name not in rows]:
        raise ValueError(unknown_name("figure of a run", unknown[0], dict.fromkeys(map(str, rows))))
    is_measured = rows["engine"].str.startswith("measured")
    found: list[dict[str, object]] = []
    for system, part in rows.groupby(named_by(rows), sort=True):
        real, simulated = part[is_measured[part.index]], part[~is_measured[part.index]]
        seeds = sorted(real[SEED])
        if not seeds or seeds != sorted(simulated[SEED]):
            raise ValueError(
                f"{system} has {len(real)} measured and {len(simulated)} simulated runs"
            )
        for figure in figures:
            ours, found_real = float(simulated[figure].mean()), mean_of(real[figure])
            truth = found_real.value
            found.append(
                {
                    "system": str(system),
                    "seeds": len(seeds),
                    "figure": figure,
                    "measured": _rounded(truth),
                    "low": _rounded(found_real.low),
                    "high": _rounded(found_real.high),
                    "simulated": _rounded(ours),
                    "error": round(ours / truth - 1.0, 4) if truth else None,
                }
            )
    return found


def _rounded(value: float | None) -> float | None:
    """To five significant digits."""
    return None if value is None else float(f"{value:.5g}")


def named_by(rows: pd.DataFrame) -> str:
    """What tells the runs apart."""
    return POLICY if rows[SYSTEM].nunique() == 1 and POLICY in rows else SYSTEM


def savings(rows: pd.DataFrame, reference: str) -> list[dict[str, object]]:
    """Share of the reference's mean JCT that each other one saves, seed by seed, on both engines.

    Raises ValueError for a reference that was not run.
    """
    name, is_measured = named_by(rows), rows["engine"].str.startswith("measured")
    if reference not in set(rows[name]):
        raise ValueError(f"no run of {reference}, only of {', '.join(sorted(set(rows[name])))}")
    found: list[dict[str, object]] = []
    for other in sorted(set(rows[name]) - {reference}):
        entry: dict[str, object] = {"system": other, "over": reference}
        for kind, part in (("measured", rows[is_measured]), ("simulated", rows[~is_measured])):
            jct_s = part.set_index([name, SEED])[JCT]
            left = paired_ratio(*(jct_s[one].sort_index() for one in (other, reference)))
            ends = (None if end is None else 1.0 - end for end in (left.high, left.low))
            entry[kind] = [1.0 - left.value, *ends]
            entry["seeds"] = left.count
        found.append(entry)
    return found


def saving_text(row: Mapping[str, Any]) -> str:
    """One saving as a sentence."""
    kinds = (
        f"{kind} {value:.1%}" + ("" if low is None else f" [{low:.1%}, {high:.1%}]")
        for kind in ("measured", "simulated")
        for value, low, high in (row[kind],)
    )
    return (
        f"{row['system']} saves of {row['over']}'s mean JCT: {', '.join(kinds)} "
        f"({row['seeds']} seeds)"
    )


def order_agreement(rows: pd.DataFrame, figures: Sequence[str]) -> list[dict[str, object]]:
    """Spearman's rank correlation of the systems' means on both engines, for each figure.

    The 95% interval is a bootstrap over seeds. Empty for fewer systems than `LEAST_RANKED`.
    """
    name, is_measured = named_by(rows), rows["engine"].str.startswith("measured")
    if rows[name].nunique() < LEAST_RANKED:
        return []
    found: list[dict[str, object]] = []
    rng = np.random.default_rng(0)
    for figure in figures:
        sides = [
            part.pivot(index=SEED, columns=name, values=figure).astype(float)
            for part in (rows[is_measured], rows[~is_measured])
        ]
        seeds = sides[0].index.intersection(sides[1].index)
        drawn = (rng.choice(seeds, len(seeds)) for _ in range(DRAWS if len(seeds) > 1 else 0))
        low, high = np.quantile([_rank_correlation(sides, one) for one in drawn] or [np.nan], ENDS)
        found.append(
            {
                "figure": figure,
                "systems": int(sides[0].shape[1]),
                "seeds": len(seeds),
                "rank_correlation": _rounded(_rank_correlation(sides, seeds)),
                "low": None if np.isnan(low) else _rounded(float(low)),
                "high": None if np.isnan(high) else _rounded(float(high)),
            }
        )
    return found


def _rank_correlation(sides: Sequence[pd.DataFrame], seeds: Any) -> float:
    """Of the means over these seeds."""
    first, second = (side.loc[seeds].mean().rank() for side in sides)
    return float(np.corrcoef(first, second)[0, 1])


def order_text(row: Mapping[str, Any]) -> str:
    """One rank correlation as a sentence."""
    ends = "" if row["low"] is None else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return (
        f"order of {row['systems']} systems by {row['figure']}, measured and simulated: rank "
        f"correlation {row['rank_correlation']:.2f}{ends} ({row['seeds']} seeds)"
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measured runs beside simulated ones.")
    parser.add_argument("scenario", help="a folder of results")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="where the runs are")
    published.add_publish(parser)
    parser.add_argument("--reference", help="whose mean JCT the others are held against")
    said = f"of a run's summary, or {THROUGHPUT}"
    parser.add_argument("--figures", nargs="+", default=FIGURES, help=said)
    return parser.parse_args(arguments)


def _print(content: Mapping[str, Any]) -> None:
    """The table, then savings, orders and batches as sentences."""
    table = Table(title=f"{content['engine']}, beside simulated; means over seeds")
    for name in ("system", "seeds", "figure", "measured", "simulated", "error"):
        table.add_column(name, justify="left" if name in ("system", "figure") else "right")
    for row in content["rows"]:
        off = "-" if row["error"] is None else f"{row['error']:+.1%}"
        cells = (row[n] for n in ("system", "seeds", "figure", "measured", "simulated"))
        table.add_row(*map(str, cells), off)
    console = Console(width=None if Console().is_terminal else 120)
    console.print(table)
    for row in content["savings"]:
        console.print(saving_text(row))
    for row in content["order"]:
        console.print(order_text(row), highlight=False)
    for row in content["batches"]:
        console.print(same_batches_text(row))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and write the comparison; the exit status."""
    given = _options(arguments)
    try:
        rows = read_cells(given.results / given.scenario, "paper").reference
        if rows.empty:
            raise ValueError(f"no run of {given.scenario} is there; run it first")
        found = compared(rows, given.figures)
        saved = savings(rows, given.reference) if given.reference else []
        batches = compared_batches(rows, named_by(rows))
        order = order_agreement(rows, [it for it in given.figures if it in rows])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    engines = sorted(e for e in set(rows["engine"]) if e.startswith("measured"))
    content = {
        "engine": "; ".join(engines),
        "machine": machine(),
        "rows": found,
        "savings": saved,
        "batches": batches,
        "order": order,
    }
    _print(content)
    folder = published.place("fidelity_runs", publish=given.publish, results=given.results)
    published.write(folder / f"{given.scenario}.json", json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
