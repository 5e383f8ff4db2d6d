"""How far simulated servers are from measured ones: `python -m harness.fidelity.served`.

Rows are closed-loop benchmarks of vLLM servers (`silicon/served.csv.gz` of the data, or --rows). Each
is served on the simulator by the same clients, with the kernels of its GPU and the terms of its
kind of engine, and mean TPOT and TTFT are compared. The terms are fitted on two thirds of the
settings and tested on the third, and on all families or GPUs but one and tested on that. With
--publish the table of the pages is written, with --fit the terms and their errors as well.

What leaves a row out is decided by what it says of itself, before anything is simulated
(`left_out`); the result with most of these rows stands beside.
"""

import argparse
import json
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from baselines.fcfs import Fcfs
from baselines.fixed_placement import FixedPlacement
from baselines.round_robin import RoundRobin
from harness.config.paths import ROOT
from harness.costs.engine_kinds import ENGINES, UNITS, EngineKind, engine_kind
from harness.costs.kernels import Kernels
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import model_facts
from harness.costs.served_errors import SERVED_ERRORS, shape_of
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.engines.simulator.warm_up import warm_up
from harness.fitting.stored import as_text, rounded
from harness.interface.decisions import ContinuousBatching
from harness.interface.entities import Cluster, GpuId, ServiceId
from harness.interface.policies import System
from harness.runs import published
from harness.workloads.arrivals import ClosedLoop
from harness.workloads.workload import Workload, services_of

ROWS = Path("silicon/served.csv.gz")
MODELS = ROOT / "scenarios" / "models"

FAMILIES = {
    "Llama-3.1-70B": "llama-3.1-70b",
    "Llama-3.3-70B": "llama-3.1-70b",
    "Llama-3.1-8B": "llama-3.1-8b",
    "Qwen3-235B-A22B": "qwen3-235b-a22b",
    "Qwen3-32B": "qwen3-32b",
    "MiniMax-M2": "minimax-m2.5",
    "gpt-oss-120b": "gpt-oss-120b",
    "DeepSeek-R1": "deepseek-v3",
    "DeepSeek-V3": "deepseek-v3",
    "Kimi-K2": "kimi-k2.5",
}
"""Part of a model's path -> its folder of scenarios/models, without the precision."""
PRECISIONS = {"": "bf16", "fp8": "fp8", "fp8_block": "fp8", "fp4": "fp4", "int4": "int4"}
CONFIGS = {
    ("llama-3.1-70b", "bf16"): "llama-3.1-70b",
    ("llama-3.1-70b", "fp8"): "llama-3.1-70b-fp8",
    ("llama-3.1-70b", "fp4"): "llama-3.1-70b-nvfp4",
    ("llama-3.1-8b", "fp8"): "llama-3.1-8b-fp8",
    ("qwen3-235b-a22b", "fp8"): "qwen3-235b-a22b-fp8",
    ("qwen3-32b", "bf16"): "qwen3-32b",
    ("qwen3-32b", "fp8"): "qwen3-32b-fp8",
    ("minimax-m2.5", "fp8"): "minimax-m2.5",
    ("minimax-m2.5", "fp4"): "minimax-m2.5-nvfp4",
    ("gpt-oss-120b", "fp4"): "gpt-oss-120b",
    ("deepseek-v3", "fp8"): "deepseek-v3",
    ("kimi-k2.5", "int4"): "kimi-k2.5-int4",
    ("kimi-k2.5", "fp4"): "kimi-k2.5-nvfp4",
}
"""Family and precision -> the folder of its config."""
GPUS = {
    "h100_sxm": "H100-80G",
    "h200_sxm": "H200-141G",
    "b200_sxm": "B200-180G",
    "b300_sxm": "B300-288G",
    "gb200": "B200-180G",
    "gb200_sxm": "B200-180G",
    "gb300": "B300-288G",
    "gb300_sxm": "B300-288G",
    "a100_sxm": "A100-80G",
    "l40s": "L40S-48G",
}
"""System of a row -> GPU; those with a Grace CPU have the kernels of the GPU beside it."""
KV_8_BITS = {("", "B200-180G"), ("", "B300-288G"), ("llama-3.1-70b", "H200-141G")}
"""Family ("" for all) and GPU of servers that keep KV in 8 bits, which no row says.

On these some rows hold more tokens, without a queue, than there is room for in 16 bits.
"""
UNSTATED = {("llama-3.1-8b", "fp8"), ("qwen3-32b", "fp8"), ("qwen3-235b-a22b", "fp8")}
"""Rows of a search for a throughput: batches of 7, 11 or 112, sizes that do not go together."""
MOST_TTFT_MS = 20_000.0
MOST_CLIENTS = 256
DOUBLE, PIPELINE = "exact double of another row", "pipeline parallel"
SPREAD = "data-parallel attention (no table of all-to-all)"
NO_CONFIG, NO_GPU = "no config of the model", "no facts of the GPU"
UNFIT = "no room on the GPUs of the row"
NEVER = (NO_CONFIG, NO_GPU, DOUBLE, PIPELINE, SPREAD, UNFIT)
"""Reasons for which a row is never simulated; rows of other reasons are counted beside."""
DISTINCT = ["family", "gpu", "precision", "tp", "ep", "isl", "osl", "clients"]
"""What makes a setting."""
LEAST_SHARE = 0.8
"""Prompts and answers have this share of isl and osl and up (InferenceMAX)."""
ROUNDS = 10
"""Requests of each client."""
SEED = 0
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
    "vllm-0.12": ("iteration_s", "intake_token_s"),
}
"""Terms of each kind of engine that are fitted; the others are those of vllm-async."""
FIGURES = ("tpot", "ttft")


@dataclass(frozen=True, slots=True)
class Setting:
    """One row, as it is simulated."""

    config: str
    gpu: str
    kv_number_bytes: int
    tensor_parallel: int
    expert_parallel: bool
    isl: int
    osl: int
    clients: int


def rows_of(path: Path) -> pd.DataFrame:
    """The rows of vLLM's aggregated servers with what the simulation needs, `why` left out or ""."""
    rows = pd.read_csv(path)
    rows = rows[(rows["backend"] == "vllm") & (rows["mode"] == "agg")].reset_index(drop=True)
    paths = rows["model_path"].astype(str)
    found = pd.DataFrame(
        {
            "model_path": paths,
            "system": rows["system"],
            "version": rows["backend_version"]
            .astype(str)
            .where(rows["backend_version"].notna(), ""),
            "family": paths.map(_family),
            "gpu": rows["system"].map(GPUS).fillna(""),
            "precision": rows["precision"].fillna("").map(PRECISIONS).fillna(""),
            "tp": rows["tp_size"].astype(int),
            "ep": rows["moe_ep_size"].fillna(1).clip(lower=1).astype(int),
            "isl": rows["isl"].astype(int),
            "osl": rows["osl"].astype(int),
            "clients": rows["batch_size"].astype(int),
            "tpot": rows["silicon_tpot_ms"].astype(float),
            "ttft": rows["silicon_ttft_ms"].astype(float),
        }
    )
    found["engine"] = [_kind(version) for version in found["version"]]
    found["config"] = [
        CONFIGS.get(key, "") for key in zip(found["family"], found["precision"], strict=True)
    ]
    found["why"] = _why(found, rows)
    could = found["why"].eq("") | ~found["why"].isin(NEVER)
    fits = np.array(
        [not it or _has_room(row) for it, (_, row) in zip(could, found.iterrows(), strict=True)]
    )
    found["why"] = found["why"].where(fits, UNFIT)
    return found


def _has_room(row: pd.Series) -> bool:
    """Whether a request has room beside the weights on so many GPUs."""
    setting = setting_of(row)
    costs, service = costs_of(setting, engine_kind(row["engine"])), ServiceId(_path(setting.config))
    blocks = costs.kv_blocks(service, setting.tensor_parallel)
    return blocks * costs.block_tokens(service) >= setting.isl + setting.osl


def _family(path: str) -> str:
    return next((name for part, name in FAMILIES.items() if part in path), "")


def _kind(version: str) -> str:
    """The kind of engine of a version; a row without one, or a nightly build, counts as today's."""
    parts = version.split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return "vllm-async"
    at = int(parts[0]), int(parts[1])
    return "vllm-0.12" if at < (0, 14) else "vllm-0.17" if at < (0, 18) else "vllm-async"


def _why(found: pd.DataFrame, rows: pd.DataFrame) -> "pd.Series[str]":
    """What leaves each row out, "" where nothing does; the first reason counts."""
    moe_gpus = rows["moe_tp_size"].fillna(1) * rows["moe_ep_size"].fillna(1)
    unlike = rows["moe_tp_size"].notna() & moe_gpus.gt(1) & moe_gpus.ne(found["tp"])
    unstated = [key in UNSTATED for key in zip(found["family"], found["precision"], strict=True)]
    reasons = {
        NO_CONFIG: found["config"].eq(""),
        NO_GPU: found["gpu"].eq(""),
        DOUBLE: found.round({"tpot": 6, "ttft": 6}).duplicated([*DISTINCT, "system", *FIGURES]),
        PIPELINE: rows["pp_size"].fillna(1).gt(1),
        SPREAD: rows["attention_dp_size"].fillna(1).gt(1),
        "concurrency or parallel sizes unclear": unlike | np.array(unstated),
        f"more than {MOST_CLIENTS} clients (the server's limit of requests is not stated)": found[
            "clients"
        ].gt(MOST_CLIENTS),
        "TTFT above 20 s": found["ttft"].gt(MOST_TTFT_MS),
    }
    why = pd.Series("", found.index)
    for reason, where in reasons.items():
        why = why.mask(why.eq("") & where, reason)
    return why


def setting_of(row: pd.Series) -> Setting:
    """What of a row is simulated."""
    return Setting(
        config=row["config"],
        gpu=row["gpu"],
        kv_number_bytes=1 if KV_8_BITS & {("", row["gpu"]), (row["family"], row["gpu"])} else 2,
        tensor_parallel=int(row["tp"]),
        expert_parallel=bool(row["ep"] > 1),
        isl=int(row["isl"]),
        osl=int(row["osl"]),
        clients=int(row["clients"]),
    )


def load_of(setting: Setting) -> Workload:
    """The requests of the clients of a setting."""
    count = max(ROUNDS * setting.clients, 2 * ROUNDS)
    name = f"{setting.isl},{setting.osl},{setting.clients}"
    rng = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    least = [max(1, int(LEAST_SHARE * tokens)) for tokens in (setting.isl, setting.osl)]
    facts = model_facts(_path(setting.config))
    clients = ClosedLoop(clients=setting.clients, ramp_up_s=0.0, think_s=0.0)
    return Workload(
        services=services_of([facts]),
        service=np.zeros(count, np.int64),
        arrival_s=clients.draw(count, rng),
        prompt_tokens=rng.integers(least[0], setting.isl + 1, count),
        output_tokens=rng.integers(max(2, least[1]), setting.osl + 1, count),
        max_output_tokens=np.full(count, setting.osl),
        app=np.arange(count),
        deadline_s=np.full(count, np.nan),
    )


def simulated(setting: Setting, engine: EngineKind, *, tables: bool = True) -> tuple[float, float]:
    """Mean TPOT and TTFT, milliseconds; by formulas in the place of `tables` for comparison."""
    costs = costs_of(setting, engine, tables=tables)
    gpus = tuple(GpuId(gpu) for gpu in range(setting.tensor_parallel))
    simulator = Simulator(
        cluster=Cluster(gpus, (frozenset(gpus),), costs.memory_bytes),
        costs=costs,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        loads_first=True,
    )
    rule = ContinuousBatching(
        chunked_prefill=True,
        pads_prompts=False,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_padding_tokens=0,
        watermark=0.0,
    )
    placement = FixedPlacement(
        data_parallel=1, tensor_parallel=setting.tensor_parallel, costs=costs
    )
    recorder = Recorder()
    load = load_of(setting)
    system = System("vllm", Fcfs(rule=rule), RoundRobin(), placement)
    simulator.run(load, system, recorder)
    requests = recorder.requests
    first_s = requests["first_token_s"] - requests["arrival_s"]
    further = (requests["output_tokens"] - 1).clip(lower=1)
    each_s = (requests["finished_s"] - requests["first_token_s"]) / further
    return 1e3 * float(each_s.mean()), 1e3 * float(first_s.mean())


class FormulaCosts(ProfileCosts):
    """Costs as if no GPU had a table of kernels."""

    def kernels(self, tensor_parallel: int) -> Kernels:
        """Formulas alone."""
        return replace(super().kernels(tensor_parallel), has_table=False)


def costs_of(setting: Setting, engine: EngineKind, *, tables: bool = True) -> ProfileCosts:
    """Costs of the server of a setting."""
    return (ProfileCosts if tables else FormulaCosts)(
        gpu=setting.gpu,
        profile_dir="roofline",
        memory_share=0.9,
        parts=PARTS,
        engine=engine,
        roofline=True,
        expert_parallel=setting.expert_parallel,
        kv_number_bytes=setting.kv_number_bytes,
    )


def _path(config: str) -> str:
    return str(MODELS / config / "config.json")


def run_all(
    rows: pd.DataFrame, engines: Sequence[EngineKind], *, tables: bool = True
) -> pd.DataFrame:
    """Simulated `tpot` and `ttft` of each row in its engine, on all cores; alike rows once."""
    asked = [
        (setting_of(row), engine) for (_, row), engine in zip(rows.iterrows(), engines, strict=True)
    ]
    keys = [(setting, engine.model_dump_json()) for setting, engine in asked]
    once = dict(zip(keys, asked, strict=True))
    with ProcessPoolExecutor(initializer=warm_up) as pool:
        found = pool.map(partial(_simulated, tables=tables), once.values(), chunksize=16)
        by_key = dict(zip(once, found, strict=True))
    return pd.DataFrame([by_key[key] for key in keys], rows.index, FIGURES)


def _simulated(asked: tuple[Setting, EngineKind], *, tables: bool) -> tuple[float, float]:
    return simulated(*asked, tables=tables)


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
            if (term in UNITS and (kind, term) in values) or (BASE, term) in values:
                value = values.get((kind, term), values.get((BASE, term), 0.0))
                entry["value"] = rounded(value, 4)
        path.write_text(as_text(content), encoding="utf-8")
    formulas = run_all(rows, [engine_with(it, values) for it in rows["engine"]], tables=False)
    thirds = pd.concat([errors for (kind, _), errors in found.items() if kind == "third"])
    measured = []
    for (config, gpu), some in rows.groupby(["config", "gpu"]):
        about = {"model": config, "gpu": gpu, "shape": shape_of(model_facts(_path(str(config))))}
        measured.append({**about, **_medians(thirds.loc[some.index])})
    outs = {
        kind: _medians(pd.concat([errors for (fold, _), errors in found.items() if fold == kind]))
        for kind in ("family", "gpu")
    }
    content = {
        "source": "python -m harness.fidelity.served --fit: measured servers of "
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness.fidelity.served", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="measurements")
    parser.add_argument("--rows", type=Path, help="another file of the same columns, stored terms")
    parser.add_argument("--fit", action="store_true", help="write fitted terms and their errors")
    published.add_publish(parser)
    options = parser.parse_args(arguments)
    path = options.rows or options.data / ROWS
    try:
        everything = rows_of(path)
    except (OSError, ValueError, KeyError) as error:
        print(f"{path} has no rows of measured servers: {error}", file=sys.stderr)
        return 2
    for why, count in everything.loc[everything["why"].ne(""), "why"].value_counts().items():
        print(f"left out: {count} rows, {why}")
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
        published.write(folder / "served.csv", table.to_csv(index=False, float_format="%.4g"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
