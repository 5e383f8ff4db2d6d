"""Measured runs of a scenario beside simulated ones.

    python -m harness.tools.fidelity.real_runs SCENARIO

For scenarios with engines on an axis. Prints, and writes fidelity_runs/<scenario>.json: for
every system (or, where that is the same for all, every policy) the figures on real engines and on
the simulator, means over seeds, and the error. Every measured run is simulated again with the
engine as it was and, where designed batches around the run say how fast the machine was, at that
speed (`twins`); `as_profiled` is by the profile as it is. A figure is one of a run's summary, or a
function of its folder as `module:function`. With `--reference NAME` also how much of its `--saved`
figure every other one saves, with a 95% interval over seeds. Of four systems or more also the rank
correlation of their order on both engines. Where runs kept their iterations (`record.iterations`),
also whether both engines ran the same batches.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from harness.config.names import unknown_name
from harness.report.agreement import late_text
from harness.report.real_texts import JCT, order_text, same_batches_text, saving_text
from harness.runs import published
from harness.runs.cell_lists import read_cells
from harness.runs.provenance import machine
from harness.runs.stats import mean_of, paired_ratio
from harness.runs.table import POLICY, SYSTEM
from harness.tools.fidelity.speed import Speed, speeds_text
from harness.tools.fidelity.twins import ENGINES, twins

LOG, SEED = "iterations.parquet", "config.seed"
COMPARED = (
    *("prefill_requests", "prefill_tokens", "prefill_attended"),
    *("decode_requests", "context_tokens", "longest_tokens", "held_tokens"),
)
"""Columns of the log that say what an iteration computed and how much KV requests held."""
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
    found: list[dict[str, object]] = []
    for system, part in rows.groupby(named_by(rows), sort=True):
        real, simulated = _sides(part)
        seeds = sorted(real[SEED])
        if not seeds or seeds != sorted(simulated[SEED]):
            raise ValueError(
                f"{system} has {len(real)} measured and {len(simulated)} simulated runs"
            )
        for figure in figures:
            ours, truth = float(simulated[figure].mean()), mean_of(real[figure])
            found.append(
                {
                    **{"system": str(system), "seeds": len(seeds), "figure": figure},
                    "measured": _rounded(truth.value),
                    "low": _rounded(truth.low),
                    "high": _rounded(truth.high),
                    "simulated": _rounded(ours),
                    "error": round(ours / truth.value - 1.0, 4) if truth.value else None,
                }
            )
    return found


def _sides(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measured and simulated runs."""
    is_measured = rows["engine"].str.startswith("measured")
    return rows[is_measured], rows[~is_measured]


def _rounded(value: float | None) -> float | None:
    """To five significant digits."""
    return None if value is None else float(f"{value:.5g}")


def named_by(rows: pd.DataFrame) -> str:
    """What tells the runs apart."""
    return POLICY if rows[SYSTEM].nunique() == 1 and POLICY in rows else SYSTEM


def savings(rows: pd.DataFrame, reference: str, figure: str = JCT) -> list[dict[str, object]]:
    """Share of a figure of the reference that each other one saves, seed by seed, on both engines.

    Raises ValueError for a reference that was not run, and for a figure that no run has.
    """
    if figure not in rows:
        raise ValueError(unknown_name("figure of a run", figure, dict.fromkeys(map(str, rows))))
    name = named_by(rows)
    if reference not in set(rows[name]):
        raise ValueError(f"no run of {reference}, only of {', '.join(sorted(set(rows[name])))}")
    found: list[dict[str, object]] = []
    for other in sorted(set(rows[name]) - {reference}):
        entry: dict[str, object] = {"system": other, "over": reference, "figure": figure}
        for kind, part in zip(("measured", "simulated"), _sides(rows), strict=True):
            seconds = part.set_index([name, SEED])[figure]
            left = paired_ratio(*(seconds[one].sort_index() for one in (other, reference)))
            ends = (None if end is None else 1.0 - end for end in (left.high, left.low))
            entry[kind] = [1.0 - left.value, *ends]
            entry["seeds"] = left.count
        found.append(entry)
    return found


def order_agreement(rows: pd.DataFrame, figures: Sequence[str]) -> list[dict[str, object]]:
    """Spearman's rank correlation of the systems' means on both engines, for each figure.

    The 95% interval is a bootstrap over seeds. Empty for fewer systems than `LEAST_RANKED`.
    """
    name = named_by(rows)
    if rows[name].nunique() < LEAST_RANKED:
        return []
    found: list[dict[str, object]] = []
    rng = np.random.default_rng(0)
    for figure in figures:
        sides = [it.pivot(index=SEED, columns=name, values=figure) for it in _sides(rows)]
        seeds = sides[0].index.intersection(sides[1].index)
        drawn = (rng.choice(seeds, len(seeds)) for _ in range(DRAWS if len(seeds) > 1 else 0))
        low, high = np.quantile([_rank_correlation(sides, one) for one in drawn] or [np.nan], ENDS)
        found.append(
            {
                **{"figure": figure, "systems": int(sides[0].shape[1]), "seeds": len(seeds)},
                "rank_correlation": _rounded(_rank_correlation(sides, seeds)),
                "low": None if np.isnan(low) else _rounded(float(low)),
                "high": None if np.isnan(high) else _rounded(float(high)),
            }
        )
    return found


def _rank_correlation(sides: Sequence[pd.DataFrame], seeds: Any) -> float:
    first, second = (side.loc[seeds].mean() for side in sides)
    return float(first.corr(second, method="spearman"))


def compared_batches(rows: pd.DataFrame, name: str) -> list[dict[str, object]]:
    """One entry per value of the column `name`, over the seeds of its runs with both logs.

    `equal` counts the seeds with the same iterations from the first to the last, `iterations` those
    measured and `until` those before the first that differs, over all seeds; `exact` is whether
    every request has the same number of answer tokens on both engines.
    """
    entries: list[dict[str, object]] = []
    for system, part in rows.groupby(name, sort=True):
        real, simulated = (
            {seed: Path(folder) for seed, folder in zip(some[SEED], some["folder"], strict=True)}
            for some in _sides(part)
        )
        pairs = [(real[seed], simulated[seed]) for seed in sorted(real)]
        if not all((folder / LOG).is_file() for pair in pairs for folder in pair):
            continue
        logs = [[every_iteration(pd.read_parquet(it / LOG)) for it in pair] for pair in pairs]
        entries.append(
            {
                **{"system": str(system), "seeds": len(pairs)},
                "equal": sum(np.array_equal(one, other) for one, other in logs),
                "iterations": sum(len(one) for one, _ in logs),
                "until": sum(first_difference(*log) for log in logs),
                "exact": all(_answers(one).equals(_answers(other)) for one, other in pairs),
            }
        )
    return entries


def first_difference(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """The number of the first iteration that differs, or that only one has."""
    count = min(len(one), len(other))
    differ = np.flatnonzero((one[:count] != other[:count]).any(axis=1))
    return int(differ[0]) if len(differ) else count


def every_iteration(log: pd.DataFrame) -> NDArray[np.int64]:
    """Columns `COMPARED`, a row per iteration; a row of the log is a run of equal iterations.

    In such a run each decoding request grows by a token per iteration.
    """
    count = log["iterations"].to_numpy(np.int64)
    later = np.arange(count.sum()) - np.repeat(count.cumsum() - count, count)
    rows = log.loc[log.index.repeat(count), list(COMPARED)].astype(np.int64)
    decodes = rows["decode_requests"].to_numpy()
    for column in ("context_tokens", "held_tokens"):
        rows[column] += later * decodes
    rows["longest_tokens"] += later * (decodes > 0)
    return rows.to_numpy()


def _answers(folder: Path) -> pd.Series:
    requests = pd.read_parquet(folder / "requests.parquet", columns=["request", "output_tokens"])
    return requests.sort_values("request", ignore_index=True)["output_tokens"].astype(np.int64)


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
    if "late" in content:
        console.print(content["speed"], content["late"], sep="\n", highlight=False)


def with_functions(rows: pd.DataFrame, figures: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Rows with a column for each `module:function` of figures, and the names of the columns.

    The function is given the folder of a run. Raises ValueError for one that is not there.
    """
    names = []
    for figure in figures:
        module, is_function, name = figure.partition(":")
        if is_function:
            try:
                function = getattr(import_module(module), name)
            except (ImportError, AttributeError, ValueError):
                function = None
            if not callable(function):
                raise ValueError(f"--figures: there is no function {figure}")
            rows = rows.assign(**{name: [function(Path(it)) for it in rows["folder"]]})
        names.append(name or figure)
    return rows, names


def pairs_of(rows: pd.DataFrame) -> dict[Path, Path]:
    """By folder of a measured run, that of the simulated one of the same system and seed."""
    place = [named_by(rows), SEED]
    real, simulated = (side.set_index(place)["folder"].to_dict() for side in _sides(rows))
    return {Path(real[key]): Path(simulated[key]) for key in real if key in simulated}


def with_twins(rows: pd.DataFrame, found: Mapping[Path, Mapping[str, Any]]) -> pd.DataFrame:
    """The measured runs, and their twins in the place of the simulated ones."""
    real, _ = _sides(rows)
    twin_rows = pd.DataFrame([dict(row) for row in found.values()])
    return pd.concat([real, twin_rows[[it for it in twin_rows if it in rows]]], ignore_index=True)


def content_of(
    rows: pd.DataFrame, figures: Sequence[str], reference: str | None, saved: str
) -> dict[str, Any]:
    """What is written. Raises ValueError where runs or figures are missing."""
    pairs = pairs_of(rows)
    if not any((measured / ENGINES).is_file() for measured in pairs):
        return _content(*with_functions(rows, figures), reference, saved)
    with twins(pairs, at_speed=False) as found:
        plain = compared(*with_functions(with_twins(rows, found), figures))
    with twins(pairs, at_speed=True) as found:
        content = _content(*with_functions(with_twins(rows, found), figures), reference, saved)
        content["speeds"] = [
            {"run": measured.name, "service": service, **speed}
            for measured, row in found.items()
            for service, speed in row["speed"].items()
        ]
    for row, by_profile in zip(content["rows"], plain, strict=True):
        row["as_profiled"] = by_profile["simulated"]
    content["resolved"] = resolved_of(pairs)
    speeds = [Speed(row["prefill"], row["decode"]) for row in content["speeds"]]
    return content | {"speed": speeds_text(speeds), "late": late_text(lags_of(pairs))}


def resolved_of(measured: Iterable[Path]) -> list[dict[str, Any]]:
    """How vLLM resolved the configuration in these runs: each that differs, and how many had it.

    Raises ValueError where one does not say.
    """
    counts: Counter[str] = Counter()
    for folder in measured:
        if not (folder / ENGINES).is_file():
            raise ValueError(f"run {folder.name} has no {ENGINES}, which others have: run it again")
        counts[(folder / ENGINES).read_text(encoding="utf-8")] += 1
    return [{"runs": count, "groups": json.loads(text)} for text, count in counts.items()]


def lags_of(measured: Iterable[Path]) -> list[tuple[float, float]]:
    """Of each run, how late requests were taken in on average, and the mean TTFT, in seconds."""
    columns = ["lag_s", "arrival_s", "first_token_s"]
    every = (pd.read_parquet(folder / "requests.parquet", columns=columns) for folder in measured)
    return [
        (float(it["lag_s"].mean()), float((it["first_token_s"] - it["arrival_s"]).mean()))
        for it in every
    ]


def _content(
    rows: pd.DataFrame, figures: Sequence[str], reference: str | None, saved: str
) -> dict[str, Any]:
    engines = sorted(e for e in set(rows["engine"]) if e.startswith("measured"))
    return {
        "engine": "; ".join(engines),
        "machine": machine(),
        "rows": compared(rows, figures),
        "savings": savings(rows, reference, saved) if reference else [],
        "batches": compared_batches(rows, named_by(rows)),
        "order": order_agreement(rows, [it for it in figures if it in rows]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print and write the comparison; the exit status."""
    parser = argparse.ArgumentParser(description="Measured runs beside simulated ones.")
    parser.add_argument("scenario", help="a folder of results")
    published.add_publish(parser)
    parser.add_argument("--reference", help="which system the others are held against")
    parser.add_argument("--saved", default=JCT, help="the figure of it, of which they save a share")
    said = f"of a run's summary, {THROUGHPUT}, or module:function of a run's folder"
    parser.add_argument("--figures", nargs="+", default=FIGURES, help=said)
    given = parser.parse_args(arguments)
    try:
        runs = published.RESULTS / given.scenario
        rows = read_cells(runs, "paper").reference
        if rows.empty:
            raise ValueError(f"no run of {given.scenario} is there; run it first")
        content = content_of(rows, given.figures, given.reference, given.saved)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    _print(content)
    folder = published.place("fidelity_runs", publish=given.publish, results=published.RESULTS)
    published.write(folder / f"{given.scenario}.json", json.dumps(content, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
