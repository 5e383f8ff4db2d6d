"""Recorded requests, and whole applications: simulated against recorded seconds, and their order.

Requests are served first come first served by the compiled engine. Of them the error is that of the
mean: single requests depend on the rest of the batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from harness.config.build import build
from harness.config.paths import PROFILES
from harness.config.yaml_files import read_choice
from harness.costs.iteration import expand
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.profiles import read_profiles
from harness.engines.recorder import Recorder
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.loop import Simulator
from harness.engines.simulator.rules import continuous_rule
from harness.engines.state import RequestArrays, new_arrays
from harness.interface.entities import Cluster, GpuId, ServiceId
from harness.interface.policies import System
from harness.tools.fidelity.lines import AUTHORS, SIMULATED, Line, line, sources
from harness.tools.fitting.iteration_rows import MeasuredSource, measured_sources
from harness.workloads.ecdf import load_lengths

Json = dict[str, Any]
SIZE = 1  # tensor parallel of recorded requests
MAX_NUM_SEQS, MAX_NUM_BATCHED_TOKENS = 512, 65_536  # more than its policies state
SETTING = ["n_gpu", "summariser", "n_evaluators", "n_documents", "max_output"]


def request_lines(data: Path) -> Iterator[Line]:
    """Mean latencies of every recorded run of the scheduler that the sources name.

    The profile was fitted on the engine's own cost profile, not on these runs.
    """
    about = sources()["requests"]
    folder = data / about["folder"]
    runs = pd.read_csv(folder / "experiments.csv.gz")
    requests = pd.read_parquet(folder / "requests.parquet")
    runs = runs[(runs["scheduler"] == about["scheduler"]) & runs["hardware"].str.contains("A10G")]
    for run in runs.to_dict("records"):
        recorded = requests[requests["experiment"] == run["experiment"]].sort_values("req_time_s")
        served = serve(recorded)
        arrival_s = recorded["req_time_s"].to_numpy(np.float64)
        for what, column, at_s in (
            ("first token", "first_token_latency_s", served.first_token_s),
            ("request", "latency_s", served.finished_s),
        ):
            measured_s = recorded[column].to_numpy(np.float64)
            bias = float(np.mean(at_s - arrival_s) / np.mean(measured_s) - 1.0)
            yield Line(
                **{name: about[name] for name in ("gpu", "model", "note")},
                source=about["name"],
                engine=_recorded().engine,
                tensor_parallel=SIZE,
                what=f"mean {what} latency, {run['suite']}",
                basis=SIMULATED,
                rows=len(measured_s),
                median_error=abs(bias),
                bias=bias,
                low_s=float(measured_s.min()),
                high_s=float(measured_s.max()),
            )


def _recorded() -> MeasuredSource:
    """The source of the profile of recorded requests."""
    folder = sources()["requests"]["profile"]
    (found,) = (source for source in measured_sources() if source.folder == folder)
    return found


def serve(recorded: pd.DataFrame) -> RequestArrays:
    """Simulate one GPU serving the recorded requests in the order of their arrival."""
    about = sources()["requests"]
    profile = read_profiles(PROFILES / about["profile"])[about["model"], SIZE]
    tokens = int(_recorded().kv_tokens or 0)
    words = {"max_num_seqs": about["max_num_seqs"], "max_num_batched_tokens": tokens}
    rule = build(_yaml("policy", "vllm")["rule"] | {"chunked_prefill": False} | words)
    arrival_s = recorded["req_time_s"].to_numpy(np.float64)
    prompt, output = (recorded[name].to_numpy(np.int64) for name in ("prompt_len", "output_len"))
    arrays = new_arrays(prompt, output, np.zeros_like(prompt), arrival_s)
    arrays.key[:] = arrival_s
    compiled = CompiledGroups(arrays, 1)
    number = compiled.reserve()
    in_numbers = continuous_rule(rule, capacity_blocks=tokens, block_tokens=1, log_columns=0)
    compiled.open(number, expand(profile, PARTS), in_numbers, 0.0)
    compiled.add_coming(np.arange(len(recorded)), number)
    compiled.run(np.inf)
    return arrays


def application_lines(data: Path) -> Iterator[Line]:
    """Per number of GPUs and model: what the authors predicted, and what the simulator does.

    Repeated measurements are averaged; the simulator's time is a mean over seeds. A note says how
    often it has the faster planner of a setting right.
    """
    for about in sources()["applications"]:
        runs = pd.read_csv(data / about["file"])
        runs = runs[runs["planner"].isin(list(about["systems"]))]
        rows = runs.groupby([*SETTING, "planner"], as_index=False)[["measured_s", "predicted_s"]]
        mean = rows.mean()
        for (gpus, model), part in mean.groupby(["n_gpu", "summariser"]):
            shared = {"source": about["name"], "gpu": about["gpu"], "engine": about["engine"]}
            shared["model"] = model
            what = f"application time, {model} on {gpus} GPUs"
            yield line(part["measured_s"], part["predicted_s"], basis=AUTHORS, what=what, **shared)
            for case in _cases(about, str(model)):
                answers = ", published answers" if "true_lengths" in case else ""
                predicted_s = [
                    np.mean([_simulated_s(about, row, case, seed) for seed in about["seeds"]])
                    for row in part.to_dict("records")
                ]
                yield line(
                    part["measured_s"],
                    predicted_s,
                    basis=SIMULATED,
                    what=f"{what}, sigma {case['chunks_sigma']}{answers}",
                    note=f"{about['note']}. {_order(part.assign(simulated_s=predicted_s))}",
                    **shared,
                )


def _cases(about: Json, model: str) -> Iterator[Json]:
    """What the source leaves out, as changes to the workload."""
    for sigma in about["chunks_sigma"]:
        yield {"chunks_sigma": sigma}
    if model in about["answers"]:
        middle = about["chunks_sigma"][len(about["chunks_sigma"]) // 2]
        yield {"chunks_sigma": middle, "true_lengths": {model: about["answers"][model]}}


def _simulated_s(about: Json, row: Mapping[Any, Any], case: Json, seed: int) -> float:
    """Seconds of one setting under one planner, loading included."""
    hardware = _yaml("hardware", about["hardware"])
    costs = ProfileCosts(
        gpu=hardware["gpu"],
        profile_dir=hardware["profile"],
        memory_share=hardware["memory_share"],
        parts=PARTS,
    )
    sizes = {"documents": row["n_documents"], "evaluations": row["n_evaluators"]}
    sizes |= {"summariser": row["summariser"], "max_output_tokens": row["max_output"]}
    workload_factory = build(_yaml("workload", about["workload"]) | sizes | case)
    # NVLink within islands of neighbours.
    gpus, size = tuple(GpuId(i) for i in range(row["n_gpu"])), about["nvlink_island"]
    islands = tuple(frozenset(gpus[i : i + size]) for i in range(0, len(gpus), size))
    engine = Simulator(
        cluster=Cluster(gpus, islands),
        costs=costs,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
    )
    recorder = Recorder()
    system = _system(about, row["planner"], costs, workload_factory.models, seed)
    engine.run(workload_factory.build(seed), system, recorder)
    return float(recorder.requests["finished_s"].max())


def _system(
    about: Json, planner: str, costs: ProfileCosts, models: Sequence[str], seed: int
) -> System:
    """The system of a planner as its paper describes it."""
    found = paper_system(about["systems"][planner], about["policy"])
    named = found["system"]
    offered = {
        "planner_costs": costs.with_parts(tuple(named["planner_parts"])),
        "lengths": {ServiceId(model): load_lengths(model) for model in models},
        "seed": seed,
    }
    node = named["placement"] | {"tensor_parallel": about["tensor_parallel"]}
    placement = build(node, offered=offered)
    return System(named["name"], build(found["policy"]), build(named["dispatch"]), placement)


@cache
def paper_system(system: str, policy: str) -> Json:
    """The files of a system, under its paper's method, and of a policy, references resolved."""
    chosen = {"policy": read_choice("policy", policy), "system": read_choice("system", system)}
    whole = OmegaConf.create({"variant": "paper", **chosen})
    plain: Any = OmegaConf.to_container(whole, resolve=True)
    return dict(plain)


@cache
def _yaml(group: str, name: str) -> Json:
    """What a file of scenarios/ says, read once for thousands of runs; not to be written to."""
    node: Any = OmegaConf.to_container(read_choice(group, name))
    return dict(node)


def _order(rows: pd.DataFrame) -> str:
    """How often the simulator has the faster of two planners right."""
    kinds = ["measured_s", "simulated_s"]
    pairs = rows.pivot(index=SETTING, columns="planner", values=kinds).dropna()
    measured, simulated = (np.diff(np.log(pairs[kind].to_numpy()), axis=1)[:, 0] for kind in kinds)
    right = np.sign(measured) == np.sign(simulated)
    clear = np.abs(measured) > 0.05
    return (
        f"The faster planner is right in {right.sum()} of {len(right)} settings, and in "
        f"{right[clear].sum()} of the {clear.sum()} measured to differ by more than 5%"
    )
