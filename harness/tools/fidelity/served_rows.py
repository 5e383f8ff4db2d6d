"""Measured servers as settings of the simulator: which rows count, and what serves each.

A row is a closed-loop benchmark of a server. What leaves a row out is decided by what it says of
itself, before anything is simulated.
"""

import re
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from harness.config.paths import ROOT
from harness.costs.engine_kinds import EngineKind, engine_kind
from harness.costs.kernels import Kernels
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import model_facts
from harness.engines.recorder import Recorder
from harness.interface.entities import ServiceId
from harness.runs.latencies import request_figures
from harness.tools.fidelity.lines import sources
from harness.tools.fidelity.real_engine import limits_of, simulator, system_of
from harness.workloads.arrivals import ClosedLoop
from harness.workloads.workload import Workload, services_of

MODELS = ROOT / "scenarios" / "models"
MOST_TTFT_MS = 20_000.0
MOST_CLIENTS = 256
DOUBLE, PIPELINE = "exact double of another row", "pipeline parallel"
SPREAD = "data-parallel attention (no table of all-to-all)"
NO_CONFIG, NO_GPU = "no config of the model", "no facts of the GPU"
UNFIT = "no room on the GPUs of the row"
BROKEN = "a size, TPOT or TTFT is missing or not above 0, or answers have one token"
NEVER = (BROKEN, NO_CONFIG, NO_GPU, DOUBLE, PIPELINE, SPREAD, UNFIT)
"""Reasons for which a row is never simulated; rows of other reasons are counted beside."""
NUMBERS = {
    **{"tp_size": "tp", "isl": "isl", "osl": "osl", "batch_size": "clients"},
    **{"silicon_tpot_ms": "tpot", "silicon_ttft_ms": "ttft"},
}
"""Numbers of a row -> what they are called here."""
COLUMNS = (
    *NUMBERS,
    *("backend", "backend_version", "model_path", "system", "precision", "mode"),
    *("pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size"),
)
"""Of a file of rows."""
DISTINCT = ["family", "gpu", "precision", "tp", "ep", "isl", "osl", "clients"]
"""What makes a setting."""
LEAST_SHARE = 0.8
"""Prompts and answers have this share of isl and osl and up (InferenceMAX)."""
ROUNDS = 10
"""Requests of each client."""
SEED = 0
FIGURES = ("tpot", "ttft")


@dataclass(frozen=True, slots=True)
class ServedSetting:
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
    """The rows of aggregated vLLM servers as they are simulated; `why` leaves one out, or is ""."""
    about, rows = sources()["served"], pd.read_csv(path)
    if missing := sorted(set(COLUMNS) - set(rows)):
        raise ValueError(f"it has no column {missing[0]}")
    rows = rows[(rows["backend"] == "vllm") & (rows["mode"] == "agg")].reset_index(drop=True)
    numbers = rows[[*NUMBERS]].apply(pd.to_numeric, errors="coerce").rename(columns=NUMBERS)
    is_whole = numbers.gt(0).all(axis=1) & numbers["osl"].gt(1)
    sizes = {name: float if name in FIGURES else int for name in numbers}
    found: pd.DataFrame = numbers.where(is_whole, 2.0).astype(sizes)
    found["system"] = rows["system"]
    found["family"] = rows["model_path"].astype(str).map(_family)
    for name, column in (("gpu", "system"), ("precision", "precision")):
        found[name] = rows[column].fillna("").map(about[name]).fillna("")
    found["ep"] = rows["moe_ep_size"].fillna(1).clip(lower=1).astype(int)
    found["engine"] = rows["backend_version"].map(str).map(_kind)
    found["config"] = [*map(_config, found["family"], found["precision"])]
    found["why"] = _why(found, rows, is_whole)
    could = ~found["why"].isin(NEVER)
    fits = map(_has_room, settings_of(found[could]), found.loc[could, "engine"])
    found.loc[could, "why"] = found.loc[could, "why"].where(np.array([*fits], bool), UNFIT)
    return found


def _has_room(setting: ServedSetting, engine: str) -> bool:
    """Whether a request has room beside the weights on so many GPUs."""
    costs = costs_of(setting, engine_kind(engine))
    service = ServiceId(config_path(setting.config))
    blocks = costs.kv_blocks(service, setting.tensor_parallel)
    return blocks * costs.block_tokens(service) >= setting.isl + setting.osl


def _family(path: str) -> str:
    families = sources()["served"]["family"]
    return next((name for part, name in families.items() if part in path), "")


def _kind(version: str) -> str:
    """The kind of engine of a version; a row without one, or a nightly build, counts as today's."""
    found = re.match(r"(\d+)\.(\d+)(\.|$)", version)
    at = (int(found[1]), int(found[2])) if found else (0, 18)
    return "vllm-0.12" if at < (0, 14) else "vllm-0.17" if at < (0, 18) else "vllm-async"


def _config(family: str, precision: str) -> str:
    """The folder of scenarios/models for a family in a precision; "" where there is none."""
    native = sources()["served"]["native_precision"].get(family, "bf16")
    suffix = "nvfp4" if precision == "fp4" else precision
    name = family if precision == native else f"{family}-{suffix}"
    return name if family and precision and Path(config_path(name)).is_file() else ""


def _why(found: pd.DataFrame, rows: pd.DataFrame, is_whole: "pd.Series[bool]") -> "pd.Series[str]":
    """What leaves each row out, "" where nothing does; the first reason counts."""
    moe_gpus = rows["moe_tp_size"].fillna(1) * rows["moe_ep_size"].fillna(1)
    unlike = rows["moe_tp_size"].notna() & moe_gpus.gt(1) & moe_gpus.ne(found["tp"])
    searched = sources()["served"]["searched"]
    unstated = [[*key] in searched for key in zip(found["family"], found["precision"], strict=True)]
    too_many = f"more than {MOST_CLIENTS} clients (the server's limit of requests is not stated)"
    reasons = {
        BROKEN: ~is_whole,
        NO_CONFIG: found["config"].eq(""),
        NO_GPU: found["gpu"].eq(""),
        DOUBLE: found.round({"tpot": 6, "ttft": 6}).duplicated([*DISTINCT, "system", *FIGURES]),
        PIPELINE: rows["pp_size"].fillna(1).gt(1),
        SPREAD: rows["attention_dp_size"].fillna(1).gt(1),
        "concurrency or parallel sizes unclear": unlike | np.array(unstated),
        too_many: found["clients"].gt(MOST_CLIENTS),
        "TTFT above 20 s": found["ttft"].gt(MOST_TTFT_MS),
    }
    why = pd.Series("", found.index)
    for reason, where in reasons.items():
        why = why.mask(why.eq("") & where, reason)
    return why


def settings_of(rows: pd.DataFrame) -> list[ServedSetting]:
    """What of each row is simulated; few servers keep KV in 8 bits."""
    kv_8_bits = sources()["served"]["kv_8_bits"]
    return [
        ServedSetting(
            config=row["config"],
            gpu=row["gpu"],
            kv_number_bytes=1 if kv_8_bits.get(row["gpu"]) in ("", row["family"]) else 2,
            tensor_parallel=row["tp"],
            expert_parallel=row["ep"] > 1,
            **{name: row[name] for name in ("isl", "osl", "clients")},
        )
        for row in rows.to_dict("records")
    ]


def load_of(setting: ServedSetting) -> Workload:
    """The requests of the clients of a setting."""
    count = max(ROUNDS * setting.clients, 2 * ROUNDS)
    name = f"{setting.isl},{setting.osl},{setting.clients}"
    rng = np.random.default_rng([SEED, zlib.crc32(name.encode())])
    least = [max(1, int(LEAST_SHARE * tokens)) for tokens in (setting.isl, setting.osl)]
    facts = model_facts(config_path(setting.config))
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
        think_s=clients.think_s,
    )


def simulated(
    setting: ServedSetting, engine: EngineKind, *, tables: bool = True
) -> tuple[float, float]:
    """Mean TPOT and TTFT, milliseconds; by formulas in the place of `tables` for comparison."""
    costs, degree = costs_of(setting, engine, tables=tables), setting.tensor_parallel
    on, recorder = simulator(costs, limits_of(engine), gpus=degree), Recorder()
    on.run(load_of(setting), system_of(on, "vllm", costs, tensor_parallel=degree), recorder)
    found = request_figures(recorder.requests, horizon_s=np.inf)
    return 1e3 * found["tpot_s_mean"], 1e3 * found["ttft_s_mean"]


class FormulaCosts(ProfileCosts):
    """Costs as if no GPU had a table of kernels."""

    def kernels(self, tensor_parallel: int) -> Kernels:
        """Formulas alone."""
        return replace(super().kernels(tensor_parallel), has_table=False)


def costs_of(setting: ServedSetting, engine: EngineKind, *, tables: bool = True) -> ProfileCosts:
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


def config_path(config: str) -> str:
    """The config of a folder of scenarios/models."""
    return str(MODELS / config / "config.json")
