"""Measured runs of a scenario beside simulated ones.

    python -m harness.tools.fidelity.real_runs SCENARIO

For scenarios with engines on an axis. Prints, and writes fidelity_runs/<scenario>.json: for
every system (or, where that is the same for all, every policy) the figures on real engines and on
the simulator, means over seeds, and the error. A measured run's folder says how vLLM resolved its
configuration and how much KV it had (engines.json), and how fast the machine was before and after
it (speed.parquet). Every one is simulated again, as a twin, with the engine as it was and, where
designed batches say how fast the machine was, at that speed; `as_profiled` is by the profile as it
is. Policies and planners of a twin believe the profile, as those of the measured run did. A figure
is one of a run's summary, or a function of its folder as `module:function`. With `--reference NAME`
also how much of its `--saved` figure every other one saves, with a 95% interval over seeds. Of four
systems or more also the rank correlation of their order on both engines. Where runs kept their
iterations (`record.iterations`), also whether both engines ran the same batches.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console

from harness.config.engine_limits import LIMITS
from harness.config.names import unknown_name
from harness.config.scratch import TEMPORARY
from harness.engines.simulator.loop import Simulator
from harness.report.agreement import late_text
from harness.report.real_texts import JCT, order_text, same_batches_text, saving_text
from harness.runs import comparison, published
from harness.runs.building import cell_of
from harness.runs.cell_lists import read_cells
from harness.runs.cells import compute
from harness.runs.comparison import SEED, key_of
from harness.runs.config import stored_configuration
from harness.runs.limits import POLICY
from harness.runs.provenance import machine
from harness.runs.record import config_of, read_rows
from harness.runs.sweep import keep
from harness.runs.table import SYSTEM, print_table
from harness.tools.fidelity.real_engine import kv_of
from harness.tools.fidelity.speed import AtSpeed, Speed, speeds_in, speeds_text

ENGINES, SPEED, LOG = "engines.json", "speed.parquet", "iterations.parquet"
KIND, MEASURED, SIMULATED = "kind", "measured", "simulated"
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

Entry = dict[str, object]


def compared(rows: pd.DataFrame, figures: Sequence[str] = FIGURES) -> list[Entry]:
    """One entry per system and figure; `low` and `high` end the 95% interval of what was measured.

    Raises ValueError where a system was not run on both, with the same seeds, and for a figure that
    no run has.
    """
    rows = rows.assign(**{THROUGHPUT: rows["requests"] / rows["inference_s"]})
    system = named_by(rows)
    for name, part in rows.groupby(system):
        real, simulated = _sides(part)
        if sorted(real[SEED]) != sorted(simulated[SEED]):
            raise ValueError(f"{name} has {len(real)} measured and {len(simulated)} simulated runs")
    found = _against(rows.sort_values(system), figures, by=KIND, reference=MEASURED, at=[system])
    sides = (found[found[KIND] == kind].to_dict("records") for kind in (MEASURED, SIMULATED))
    return [
        {
            **{"system": str(real[key_of(system)]), "seeds": real["seeds"]},
            **{"figure": real["figure"], "measured": _rounded(real["value"])},
            **{end: _rounded(real[end]) for end in ("low", "high")},
            "simulated": _rounded(ours["value"]),
            "error": round(ours["value"] / ours["base"] - 1.0, 4) if ours["base"] else None,
        }
        for real, ours in zip(*sides, strict=True)
    ]


def _against(rows: pd.DataFrame, figures: Sequence[str], **sides: Any) -> pd.DataFrame:
    """`harness.runs.comparison.compared`, with the kind of engine of each run in column `KIND`."""
    if unknown := [name for name in figures if name not in rows]:
        raise ValueError(unknown_name("figure of a run", unknown[0], dict.fromkeys(map(str, rows))))
    kinds = np.where(_is_measured(rows), MEASURED, SIMULATED)
    return comparison.compared(rows.assign(**{KIND: kinds}), figures, **sides)


def _is_measured(rows: pd.DataFrame) -> "pd.Series[bool]":
    return rows["engine"].str.startswith(MEASURED)


def _sides(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measured and simulated runs."""
    return rows[_is_measured(rows)], rows[~_is_measured(rows)]


def _rounded(value: float) -> float | None:
    """To five significant digits; None for NaN."""
    return None if np.isnan(value) else float(f"{value:.5g}")


def named_by(rows: pd.DataFrame) -> str:
    """What tells the runs apart."""
    return POLICY if rows[SYSTEM].nunique() == 1 and POLICY in rows else SYSTEM


def savings(rows: pd.DataFrame, reference: str, figure: str = JCT) -> list[Entry]:
    """Share of a figure of the reference that each other one saves, seed by seed, on both engines.

    Raises ValueError for a reference that was not run, and for a figure that no run has.
    """
    name = named_by(rows)
    if reference not in set(rows[name]):
        raise ValueError(f"no run of {reference}, only of {', '.join(sorted(set(rows[name])))}")
    found = _against(rows, [figure], by=name, reference=reference, at=[KIND])
    ends = found[["ratio", "ratio_high", "ratio_low"]].rsub(1.0).to_numpy().tolist()
    found["saved"] = [[None if np.isnan(end) else end for end in row] for row in ends]
    return [
        {
            **{"system": other, "over": reference, "figure": figure},
            **part.set_index(KIND)["saved"],
            "seeds": int(part["seeds"].iloc[0]),
        }
        for other, part in found.groupby(key_of(name))
        if other != reference
    ]


def order_agreement(rows: pd.DataFrame, figures: Sequence[str]) -> list[Entry]:
    """Spearman's rank correlation of the systems' means on both engines, for each figure.

    The 95% interval is a bootstrap over seeds. Empty for fewer systems than `LEAST_RANKED`.
    """
    name, rng = named_by(rows), np.random.default_rng(0)
    found: list[Entry] = []
    for figure in figures if rows[name].nunique() >= LEAST_RANKED else ():
        sides = [it.pivot(index=SEED, columns=name, values=figure) for it in _sides(rows)]
        seeds = sides[0].index.intersection(sides[1].index)
        drawn = (rng.choice(seeds, len(seeds)) for _ in range(DRAWS if len(seeds) > 1 else 0))
        low, high = np.quantile([_rank_correlation(sides, one) for one in drawn] or [np.nan], ENDS)
        entry: Entry = {"figure": figure, "systems": int(sides[0].shape[1]), "seeds": len(seeds)}
        entry["rank_correlation"] = _rounded(_rank_correlation(sides, seeds))
        found.append(entry | {"low": _rounded(low), "high": _rounded(high)})
    return found


def _rank_correlation(sides: Sequence[pd.DataFrame], seeds: Any) -> float:
    first, second = (side.loc[seeds].mean() for side in sides)
    return float(first.corr(second, method="spearman"))


def compared_batches(rows: pd.DataFrame, name: str) -> list[Entry]:
    """One entry per value of the column `name`, over the seeds of its runs with both logs.

    `equal` counts the seeds with the same iterations from the first to the last, `iterations` those
    measured and `until` those before the first that differs, over all seeds; `exact` is whether
    every request has the same number of answer tokens on both engines.
    """
    entries: list[Entry] = []
    for system, part in rows.groupby(name, sort=True):
        pairs = pairs_of(part, name).items()
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
    rows = log.loc[log.index.repeat(log["iterations"]), list(COMPARED)].astype(np.int64)
    later, decodes = rows.groupby(level=0).cumcount(), rows["decode_requests"]
    for column in ("context_tokens", "held_tokens"):
        rows[column] += later * decodes
    rows["longest_tokens"] += later * (decodes > 0)
    return rows.to_numpy()


def _answers(folder: Path) -> pd.Series:
    requests = pd.read_parquet(folder / "requests.parquet", columns=["request", "output_tokens"])
    return requests.sort_values("request", ignore_index=True)["output_tokens"].astype(np.int64)


def with_functions(rows: pd.DataFrame, figures: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Rows with a column for each `module:function` of figures, and the names of the columns.

    The function is given the folder of a run. Raises ValueError for one that is not there.
    """
    for figure in figures:
        if ":" in figure:
            try:
                function = resolve_name(figure)
            except (ImportError, AttributeError, ValueError):
                raise ValueError(f"--figures: there is no function {figure}") from None
            name = figure.rpartition(":")[2]
            rows = rows.assign(**{name: [function(Path(it)) for it in rows["folder"]]})
    return rows, [figure.rpartition(":")[2] for figure in figures]


def pairs_of(rows: pd.DataFrame, name: str) -> dict[Path, Path]:
    """By folder of a measured run, that of the simulated one of the same `name` and seed."""
    sides = (side.set_index([name, SEED])["folder"].map(Path) for side in _sides(rows))
    both = pd.concat(sides, axis=1, join="inner").sort_index()
    return dict(both.itertuples(index=False, name=None))


def as_resolved(plain: Mapping[str, Any], measured: Path) -> dict[str, Any]:
    """A simulated cell's configuration with the limits and the KV that a real engine had.

    As it is where nothing was kept of engines. Raises ValueError where groups had different KV.
    """
    if not (measured / ENGINES).is_file():
        return dict(plain)
    groups = json.loads((measured / ENGINES).read_text(encoding="utf-8")).values()
    found = [service for group in groups for service in group.values()]
    kv = pd.DataFrame(map(kv_of, found))
    if kv["kv_bytes"].nunique() != 1:
        raise ValueError(
            f"{measured.name}: its groups have {sorted(set(kv['kv_bytes']))} bytes of KV, and "
            "simulated groups have the same"
        )
    limits = {name: found[0][name] for name in LIMITS}
    hardware = plain["hardware"] | {name: int(least) for name, least in kv.min().items()}
    return {**plain, "engine": plain["engine"] | limits, "hardware": hardware}


@contextmanager
def twins(pairs: Mapping[Path, Path], *, at_speed: bool) -> Iterator[dict[Path, dict[str, Any]]]:
    """By measured folder, the row of its twin, whose folder is there while this lasts.

    `pairs` has the folder of the simulated run of the same cell for each. With `at_speed`
    iterations take as many times longer as the machine was slower than its profile.
    """
    with TemporaryDirectory(prefix=TEMPORARY) as temporary:
        yield {
            measured: _twin(measured, like, Path(temporary) / measured.name, at_speed=at_speed)
            for measured, like in pairs.items()
        }


def _twin(measured: Path, like: Path, results: Path, *, at_speed: bool) -> dict[str, Any]:
    plain = as_resolved(config_of(like), measured)
    cell = cell_of(stored_configuration(plain, results=str(results), name="twin"))
    path = measured / SPEED
    speeds = speeds_in(pd.read_parquet(path), cell.costs) if path.is_file() else {}
    if at_speed and speeds:
        assert isinstance(cell.engine, Simulator)
        cell = replace(cell, engine=replace(cell.engine, costs=AtSpeed(cell.costs, speeds)))
    keep(cell, compute(cell))
    (row,) = read_rows(cell.folder.parent).values()
    return {**row, "speed": {name: speed._asdict() for name, speed in speeds.items()}}


def with_twins(rows: pd.DataFrame, found: Mapping[Path, Mapping[str, Any]]) -> pd.DataFrame:
    """The measured runs, and their twins in the place of the simulated ones."""
    twin_rows = pd.DataFrame([dict(row) for row in found.values()])
    own = [name for name in twin_rows if name in rows]
    return pd.concat([rows[_is_measured(rows)], twin_rows[own]], ignore_index=True)


def content_of(
    rows: pd.DataFrame, figures: Sequence[str], reference: str | None, saved: str
) -> dict[str, Any]:
    """What is written. Raises ValueError where runs or figures are missing."""
    pairs = pairs_of(rows, named_by(rows))
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
    return {
        "engine": "; ".join(sorted(set(rows.loc[_is_measured(rows), "engine"]))),
        "machine": machine(),
        "rows": compared(rows, figures),
        "savings": savings(rows, reference, saved) if reference else [],
        "batches": compared_batches(rows, named_by(rows)),
        "order": order_agreement(rows, [it for it in figures if it in rows]),
    }


def _print(content: Mapping[str, Any]) -> None:
    """The table, then savings, orders and batches as sentences."""
    console = Console(width=None if Console().is_terminal else 120, highlight=False)
    rows = pd.DataFrame(content["rows"])
    rows["error"] = ["-" if it != it else f"{it:+.1%}" for it in rows["error"].astype(float)]
    table = rows.set_index(["system", "figure"])[["seeds", "measured", "simulated", "error"]]
    print_table(table, console, f"{content['engine']}, beside simulated; means over seeds")
    texts = {"savings": saving_text, "order": order_text, "batches": same_batches_text}
    for part, text in texts.items():
        for row in content[part]:
            console.print(text(row))
    if "late" in content:
        console.print(content["speed"], content["late"], sep="\n")


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
        rows = read_cells(published.RESULTS / given.scenario, "paper").reference
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
