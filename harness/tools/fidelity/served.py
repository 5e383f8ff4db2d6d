"""How far simulated servers are from measured ones: `python -m harness.tools.fidelity.served`.

Rows are closed-loop benchmarks of vLLM servers (`silicon/served.csv.gz` of the data, or --rows).
Each is served on the simulator by as many clients, with the kernels of its GPU and the terms of its
kind of engine, and mean TPOT and TTFT are compared. Terms are fitted on two thirds of the settings
and tested on the third, and on all families or GPUs but one and tested on that; rows of another
file (--rows) are tested with the terms that are stored. With --publish the table of the pages is
written, with --fit the terms and the errors that runs print.

Rows that are left out are counted by reason (`served_rows`); the errors with those of them that
can be simulated stand beside.
"""

import argparse
import json
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from scipy.optimize import nnls

from harness.costs.engine_kinds import ENGINES, EngineKind, engine_kind
from harness.costs.model_facts import model_facts
from harness.costs.served_errors import SERVED_ERRORS, kernel_shape
from harness.engines.simulator.warm_up import warm_up
from harness.runs import published
from harness.runs.table import print_table
from harness.tools.fidelity.lines import sources
from harness.tools.fidelity.served_rows import (
    DISTINCT,
    FIGURES,
    NEVER,
    config_path,
    rows_of,
    settings_of,
    simulated,
)
from harness.tools.fitting.stored import as_text, rounded

REWEIGHTED, SMALL_ERROR = 15, 0.03
"""Passes of the fit, and the relative error below which errors count as squares."""
DEFAULTS = {"prompt_kernels": 1.0}
"""Of a term that no row has, beside 0."""
STEPS = {
    "layer_s": 1e-6,
    "head_norm_s": 1e-6,
    "iteration_s": 1e-3,
    "prompt_kernels": 0.1,
    "prompt_s": 1e-3,
    "intake_token_s": 1e-6,
}
"""By which a term that is 0 is changed."""
WEIGHTS = {"tpot": 1.0, "ttft": 0.5}
"""Of errors: those of TTFT are several times as noisy between runs of a setting."""
BASE = "vllm-async"
FITTED = {
    BASE: ("layer_s", "head_norm_s", "prompt_kernels", "prompt_s", "intake_token_s"),
    "vllm-0.17": ("head_norm_s",),
    "vllm-0.12": ("iteration_s", "prompt_s", "intake_token_s"),
}
"""Terms of each kind of engine that are fitted; the others are those of vllm-async."""

GROUPS = ("gpu", "family", "precision", "engine", "tp", "ep", "clients", "isl")
"""Columns of rows by which errors are told."""

Values = Mapping[tuple[str, str], float]
"""By kind of engine and term."""
Folds = Mapping[tuple[str, str], pd.DataFrame]
"""Relative errors of rows that a fit had not seen, by kind and name of what was left out."""


def stored_values() -> Values:
    """The fitted terms as their files have them."""
    return {
        (kind, term): engine_kind(kind).value(term)
        for kind, terms in FITTED.items()
        for term in terms
    }


def engine_with(kind: str, values: Values) -> EngineKind:
    """A kind with these values; what it does not fit for itself it has of vllm-async."""
    own = {term: value for (of, term), value in values.items() if of == BASE}
    own |= {term: value for (of, term), value in values.items() if of == kind}
    return engine_kind(kind).with_values(own)


def run_all(rows: pd.DataFrame, values: Values, *, tables: bool = True) -> pd.DataFrame:
    """Simulated `tpot` and `ttft` of each row in its engine, on all cores; alike rows once."""
    engines = {kind: engine_with(kind, values) for kind in rows["engine"].unique()}
    keys = [*zip(settings_of(rows), rows["engine"], strict=True)]
    settings, kinds = zip(*dict.fromkeys(keys), strict=True)
    run = partial(simulated, tables=tables)
    with ProcessPoolExecutor(initializer=warm_up) as pool:
        found = pool.map(run, settings, [engines[kind] for kind in kinds], chunksize=16)
        by_key = dict(zip(zip(settings, kinds, strict=True), found, strict=True))
    return pd.DataFrame([by_key[key] for key in keys], rows.index, FIGURES)


@dataclass(frozen=True)
class Linear:
    """Figures of rows as linear in the terms, by differences of simulated runs.

    In a closed loop what an iteration costs hardly changes which requests it has, so means are
    linear in the terms. `at` are the terms of `base`, `slope` has a column for each.
    """

    at: Values
    base: pd.DataFrame
    slope: Mapping[tuple[str, str], pd.DataFrame]

    def fitted(self, rows: pd.DataFrame) -> Values:
        """Terms, none below 0, that make the sum of relative errors of these rows small."""
        names = [name for name in self.at if (self.slope[name].loc[rows.index] != 0).any(axis=None)]
        unseen = {
            name: DEFAULTS.get(name[1], 0.0)
            for name in self.at
            if name not in names and not (name[0] != BASE and (BASE, name[1]) in self.at)
        }
        measured = rows[[*FIGURES]]

        def relative(frame: pd.DataFrame) -> "np.ndarray[Any, np.dtype[np.float64]]":
            """To what was measured, all TPOT and then all TTFT, weighted."""
            of_rows = frame.loc[rows.index] / measured * pd.Series(WEIGHTS)
            return of_rows.to_numpy(np.float64).ravel("F")

        matrix = np.stack([relative(self.slope[name]) for name in names], axis=1)
        at = np.array([self.at[name] for name in names])
        wanted = relative(measured) - relative(self.base) + matrix @ at
        of_rows = np.ones(len(wanted))
        for _ in range(REWEIGHTED):  # squares so weighted that they are errors without sign
            found, _ = nnls(matrix * of_rows[:, None], wanted * of_rows)
            of_rows = 1.0 / np.sqrt(np.maximum(np.abs(wanted - matrix @ found), SMALL_ERROR))
        return {**unseen, **dict(zip(names, map(float, found), strict=True))}


def linear(rows: pd.DataFrame, at: Values) -> Linear:
    """The figures of rows around some terms."""
    base, slope = run_all(rows, at), {}
    for name, value in at.items():
        step = value / 4 or STEPS[name[1]]
        slope[name] = (run_all(rows, {**at, name: value + step}) - base) / step
    return Linear(at, base, slope)


def folds(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.Index]]:
    """Kind of fold, its name, and the rows that the fit does not see.

    Settings that differ in clients only stay together.
    """
    names = rows[[name for name in DISTINCT if name != "clients"]].astype(str).agg("/".join, axis=1)
    third = names.map(lambda name: zlib.crc32(name.encode()) % 3)
    for number in range(3):
        yield "third", str(number), rows.index[third == number]
    for column in ("family", "gpu"):
        for value in rows[column].unique() if rows[column].nunique() > 1 else ():
            yield column, str(value), rows.index[rows[column] == value]


def errors_of(rows: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """Relative errors of both figures."""
    return found[list(FIGURES)] / rows[list(FIGURES)] - 1.0


def tested(rows: pd.DataFrame) -> tuple[Values, Folds]:
    """Terms fitted to all rows, and by fold the errors of rows that the fit had not seen."""
    around = linear(rows, stored_values())
    found = {}
    for kind, name, out in folds(rows):
        test = rows.loc[out]
        found[kind, name] = errors_of(test, run_all(test, around.fitted(rows.drop(out))))
    return around.fitted(rows), found


def of_folds(found: Folds, kind: str) -> pd.DataFrame:
    """The errors of all folds of a kind."""
    return pd.concat([errors for (fold, _), errors in found.items() if fold == kind])


def summary(errors: pd.DataFrame) -> dict[str, float]:
    """Median error, bias and P90 of both figures, as shares."""
    found: dict[str, float] = {"settings": len(errors)}
    for figure in FIGURES:
        size = errors[figure].abs()
        found |= {
            f"{figure}_median": float(size.median()),
            f"{figure}_bias": float(errors[figure].median()),
            f"{figure}_p90": float(size.quantile(0.9)),
        }
    return found


Told = dict[str, object]


def line_of(errors: pd.DataFrame, basis: str, group: str = "all", value: str = "") -> Told:
    """A line of the table."""
    return {"basis": basis, "group": group, "value": value, **summary(errors)}


def by_group(rows: pd.DataFrame, errors: pd.DataFrame, basis: str) -> list[Told]:
    """A line for all rows, and for every value of each group."""
    return [line_of(errors, basis)] + [
        line_of(errors.loc[index], basis, column, str(value))
        for column in GROUPS
        for value, index in rows.groupby(column).groups.items()
    ]


def print_lines(lines: pd.DataFrame, title: str) -> None:
    """A table of lines, percent."""
    table = lines.set_index(["basis", "group", "value"])
    for figure in FIGURES:
        for name in ("median", "bias", "P90"):
            form = "{:+.1%}" if name == "bias" else "{:.1%}"
            errors = table.pop(f"{figure}_{name.lower()}")
            table[f"{figure.upper()} {name}"] = errors.map(form.format)
    print_table(table, Console(), title)


def write_fit(rows: pd.DataFrame, values: Values, found: Folds) -> None:
    """The terms into the files of their kinds, and the errors that are printed beside seconds."""
    for kind in FITTED:
        path = ENGINES / f"{kind}.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        for term, entry in content["terms"].items():
            if (kind, term) in values or (BASE, term) in values:
                value = values.get((kind, term), values.get((BASE, term), 0.0))
                entry["value"] = rounded(value, 4)
        path.write_text(as_text(content), encoding="utf-8")
    thirds = of_folds(found, "third")
    measured = [
        {
            **{"model": config, "gpu": gpu},
            "shape": kernel_shape(model_facts(config_path(str(config)))),
            "tensor_parallel": sorted(map(int, some["tp"].unique())),
            **_medians(thirds.loc[some.index]),
        }
        for (config, gpu), some in rows.groupby(["config", "gpu"])
    ]
    content = {
        "source": "python -m harness.tools.fidelity.served --fit: measured servers of "
        "ai-dynamo/aiconfigurator@095f58a; settings that the fit had not seen",
        "measured": measured,
        "family_left_out": _medians(of_folds(found, "family")),
        "gpu_left_out": _medians(of_folds(found, "gpu")),
        "formulas": _medians(errors_of(rows, run_all(rows, values, tables=False))),
    }
    SERVED_ERRORS.write_text(as_text(content), encoding="utf-8")


def _medians(errors: pd.DataFrame) -> dict[str, float]:
    """What `served_errors` stores of some rows."""
    size = errors.abs().median()
    figures = {figure: rounded(float(size[figure]), 3) for figure in FIGURES}
    return {"settings": len(errors), **figures}


def fitted_lines(rows: pd.DataFrame, *, write: bool) -> list[Told]:
    """Lines of settings, families and GPUs that a fit has not seen; its terms are printed."""
    values, found = tested(rows)
    print("fitted:", ", ".join(f"{kind} {term} {v:.4g}" for (kind, term), v in values.items()))
    if write:
        write_fit(rows, values, found)
    thirds = of_folds(found, "third").loc[rows.index]
    return by_group(rows, thirds, "fitted on other settings") + [
        line_of(errors, f"fitted without this {kind}", kind, name)
        for (kind, name), errors in found.items()
        if kind != "third"
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.tools.fidelity.served", description=__doc__
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="measurements")
    parser.add_argument("--rows", type=Path, help="another file of the same columns, stored terms")
    parser.add_argument("--fit", action="store_true", help="write fitted terms and their errors")
    published.add_publish(parser)
    options = parser.parse_args(arguments)
    path = options.rows or options.data / sources()["served"]["file"]
    try:
        everything = rows_of(path)
    except (OSError, EOFError, ValueError, KeyError) as error:
        print(f"{path} cannot be read as rows of measured servers: {error}", file=sys.stderr)
        return 2
    why, stored = everything["why"], stored_values()
    left_out = why[why.ne("")].value_counts()
    for reason, count in left_out.items():
        print(f"left out: {count} rows, {reason}")
    rows = everything[why.eq("")]
    if rows.empty:
        print(f"{path} has no row of a vLLM server that can be simulated", file=sys.stderr)
        return 2
    lines = by_group(rows, errors_of(rows, run_all(rows, stored)), "stored terms")
    if options.rows is None:
        lines = [*fitted_lines(rows, write=options.fit), lines[0]]
    able = everything[~why.isin(NEVER)]
    said = "stored terms, rows included that are left out"
    table = pd.DataFrame([*lines, line_of(errors_of(able, run_all(able, stored)), said)])
    print_lines(table, "simulated against measured servers, relative errors")
    if options.rows is None:
        folder = published.place("fidelity", publish=options.publish)
        counts = left_out.rename_axis("value").reset_index(name="settings")
        whole = pd.concat([table, counts.assign(basis="", group="left out")])
        published.write(folder / "served.csv", whole.to_csv(index=False, float_format="%.4g"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
