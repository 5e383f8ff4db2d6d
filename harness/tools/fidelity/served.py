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
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from harness.costs.engine_kinds import ENGINES, EngineKind, engine_kind
from harness.costs.model_facts import model_facts
from harness.costs.served_errors import SERVED_ERRORS, kernel_shape
from harness.runs import published
from harness.tools.fidelity.served_rows import (
    DISTINCT,
    FIGURES,
    NEVER,
    ROWS,
    config_path,
    rows_of,
    run_all,
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
TTFT_WEIGHT = 0.5
"""Of an error of TTFT beside one of TPOT: several times as noisy between runs of a setting."""
BASE = "vllm-async"
FITTED = {
    BASE: ("layer_s", "head_norm_s", "prompt_kernels", "prompt_s", "intake_token_s"),
    "vllm-0.17": ("head_norm_s",),
    "vllm-0.12": ("iteration_s", "prompt_s", "intake_token_s"),
}
"""Terms of each kind of engine that are fitted; the others are those of vllm-async."""

Values = Mapping[tuple[str, str], float]
"""By kind of engine and term."""


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
        weights = {"tpot": 1.0, "ttft": TTFT_WEIGHT}
        columns, target = [], []
        for figure, weight in weights.items():
            measured = rows[figure]
            without = self.base.loc[rows.index, figure] - sum(
                self.slope[name].loc[rows.index, figure] * self.at[name] for name in names
            )
            slopes = [self.slope[name].loc[rows.index, figure] / measured for name in names]
            columns.append(np.stack(slopes, axis=1) * weight)
            target.append((1.0 - without / measured).to_numpy() * weight)
        matrix, wanted = np.vstack(columns), np.concatenate(target)
        of_rows = np.ones(len(wanted))
        for _ in range(REWEIGHTED):  # squares so weighted that they are errors without sign
            found, _ = nnls(matrix * of_rows[:, None], wanted * of_rows)
            of_rows = 1.0 / np.sqrt(np.maximum(np.abs(wanted - matrix @ found), SMALL_ERROR))
        return {**unseen, **dict(zip(names, map(float, found), strict=True))}


def linear(rows: pd.DataFrame, at: Values) -> Linear:
    """The figures of rows around some terms."""

    def run(values: Values) -> pd.DataFrame:
        return run_all(rows, [engine_with(kind, values) for kind in rows["engine"]])

    base, slope = run(at), {}
    for name, value in at.items():
        step = value / 4 or STEPS[name[1]]
        slope[name] = (run({**at, name: value + step}) - base) / step
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


def cross_validated(rows: pd.DataFrame) -> tuple[Values, dict[tuple[str, str], pd.DataFrame]]:
    """Terms fitted to all rows, and by fold the errors of rows that the fit had not seen."""
    around = linear(rows, stored_values())
    found = {}
    for kind, name, out in folds(rows):
        values = around.fitted(rows.drop(out))
        test = rows.loc[out]
        simulated_there = run_all(test, [engine_with(it, values) for it in test["engine"]])
        found[kind, name] = errors_of(test, simulated_there)
    return around.fitted(rows), found


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


GROUPS = ("gpu", "family", "precision", "engine", "tp", "ep", "clients", "isl")


def by_group(rows: pd.DataFrame, errors: pd.DataFrame, basis: str) -> pd.DataFrame:
    """A line for all rows, and for every value of each group."""
    lines = [{"basis": basis, "group": "all", "value": "", **summary(errors)}]
    for column in GROUPS:
        for value, index in rows.groupby(column).groups.items():
            lines.append(
                {"basis": basis, "group": column, "value": str(value), **summary(errors.loc[index])}
            )
    return pd.DataFrame(lines)


def print_lines(lines: pd.DataFrame, title: str) -> None:
    """A table of lines, percent."""
    table = Table(title=title)
    for name in ("basis", "group", "value", "settings"):
        table.add_column(name)
    for figure in FIGURES:
        for name in ("median", "bias", "P90"):
            table.add_column(f"{figure.upper()} {name}", justify="right")
    for row in lines.to_dict("records"):
        cells = [
            f"{100 * row[f'{figure}_{name}']:{'+' if name == 'bias' else ''}.1f}%"
            for figure in FIGURES
            for name in ("median", "bias", "p90")
        ]
        table.add_row(
            str(row["basis"]), str(row["group"]), str(row["value"]), str(row["settings"]), *cells
        )
    Console(width=None if Console().is_terminal else 160).print(table)


def tested(rows: pd.DataFrame) -> tuple[Values, pd.DataFrame, dict[tuple[str, str], pd.DataFrame]]:
    """Fitted terms, the lines of all folds, and the errors by fold."""
    values, found = cross_validated(rows)
    thirds = pd.concat([errors for (kind, _), errors in found.items() if kind == "third"])
    lines = [by_group(rows, thirds.loc[rows.index], "fitted on other settings")]
    for fold in ("family", "gpu"):
        for (kind, name), errors in found.items():
            if kind == fold:
                about = {"basis": f"fitted without this {fold}", "group": fold, "value": name}
                lines.append(pd.DataFrame([{**about, **summary(errors)}]))
    return values, pd.concat(lines, ignore_index=True), found


def beside(everything: pd.DataFrame, values: Values) -> pd.DataFrame:
    """Lines of all rows that can be simulated, those included that are left out otherwise."""
    rows = everything[~everything["why"].isin(NEVER)]
    found = run_all(rows, [engine_with(it, values) for it in rows["engine"]])
    line = {"basis": "stored terms, rows included that are left out", "group": "all", "value": ""}
    return pd.DataFrame([{**line, **summary(errors_of(rows, found))}])


def write_fit(
    rows: pd.DataFrame, values: Values, found: Mapping[tuple[str, str], pd.DataFrame]
) -> None:
    """The terms into the files of their kinds, and the errors that are printed beside seconds."""
    for kind in FITTED:
        path = ENGINES / f"{kind}.json"
        content = json.loads(path.read_text(encoding="utf-8"))
        for term, entry in content["terms"].items():
            if (kind, term) in values or (BASE, term) in values:
                value = values.get((kind, term), values.get((BASE, term), 0.0))
                entry["value"] = rounded(value, 4)
        path.write_text(as_text(content), encoding="utf-8")
    formulas = run_all(rows, [engine_with(it, values) for it in rows["engine"]], tables=False)
    thirds = pd.concat([errors for (kind, _), errors in found.items() if kind == "third"])
    measured = []
    for (config, gpu), some in rows.groupby(["config", "gpu"]):
        about = {
            "model": config,
            "gpu": gpu,
            "shape": kernel_shape(model_facts(config_path(str(config)))),
        }
        degrees = sorted(map(int, some["tp"].unique()))
        measured.append({**about, "tensor_parallel": degrees, **_medians(thirds.loc[some.index])})
    outs = {
        kind: _medians(pd.concat([errors for (fold, _), errors in found.items() if fold == kind]))
        for kind in ("family", "gpu")
    }
    content = {
        "source": "python -m harness.tools.fidelity.served --fit: measured servers of "
        "ai-dynamo/aiconfigurator@095f58a; settings that the fit had not seen",
        "measured": measured,
        "family_left_out": outs["family"],
        "gpu_left_out": outs["gpu"],
        "formulas": _medians(errors_of(rows, formulas)),
    }
    SERVED_ERRORS.write_text(as_text(content), encoding="utf-8")


def _medians(errors: pd.DataFrame) -> dict[str, float]:
    """What `served_errors` stores of some rows."""
    size = errors.abs().median()
    figures = {figure: rounded(float(size[figure]), 3) for figure in FIGURES}
    return {"settings": len(errors), **figures}


def _counted(everything: pd.DataFrame) -> pd.DataFrame:
    """How many rows are left out, by reason."""
    counts = everything.loc[everything["why"].ne(""), "why"].value_counts()
    about = {"basis": "", "group": "left out", "value": counts.index, "settings": counts.to_numpy()}
    return pd.DataFrame(about)


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
    path = options.rows or options.data / ROWS
    try:
        everything = rows_of(path)
    except (OSError, EOFError, ValueError, KeyError) as error:
        print(f"{path} cannot be read as rows of measured servers: {error}", file=sys.stderr)
        return 2
    for line in _counted(everything).to_dict("records"):
        print(f"left out: {line['settings']} rows, {line['value']}")
    rows, values = everything[everything["why"].eq("")], stored_values()
    if rows.empty:
        print(f"{path} has no row of a vLLM server that can be simulated", file=sys.stderr)
        return 2
    stored = run_all(rows, [engine_with(it, values) for it in rows["engine"]])
    lines = [by_group(rows, errors_of(rows, stored), "stored terms")]
    if options.rows is None:
        fitted, of_folds, found = tested(rows)
        lines = [of_folds, lines[0].head(1)]
        print("fitted:", ", ".join(f"{kind} {term} {v:.4g}" for (kind, term), v in fitted.items()))
        if options.fit:
            write_fit(rows, fitted, found)
    table = pd.concat([*lines, beside(everything, values)], ignore_index=True)
    print_lines(table, "simulated against measured servers, relative errors")
    if options.rows is None:
        folder = published.place("fidelity", publish=options.publish)
        whole = pd.concat([table, _counted(everything)])
        published.write(folder / "served.csv", whole.to_csv(index=False, float_format="%.4g"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
