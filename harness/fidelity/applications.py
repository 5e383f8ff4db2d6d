"""Whole applications: simulated running times against recorded ones, and their order."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from harness.build import build
from harness.costs.gpu_facts import gpu_facts
from harness.costs.model import PARTS, ProfileCosts
from harness.engines.recorder import Recorder
from harness.engines.simulator.loop import Simulator
from harness.fidelity.lines import AUTHORS, SIMULATED, Line, line, sources
from harness.interface.entities import Cluster, GpuId, ServiceId
from harness.interface.policies import System
from harness.planning.plan_tracking import StagedPlacement
from harness.predictors.ecdf import load_lengths
from harness.yaml_files import read_choice

Json = dict[str, Any]
SETTING = ["n_gpu", "summariser", "n_evaluators", "n_documents", "max_output"]


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
            shared = {
                "source": about["name"],
                "gpu": about["gpu"],
                "engine": about["engine"],
                "model": model,
                "tensor_parallel": None,
                "seen": False,
            }
            what = f"application time, {model} on {gpus} GPUs"
            yield line(part["measured_s"], part["predicted_s"], basis=AUTHORS, what=what, **shared)
            for case in _cases(about, str(model)):
                predicted_s = [
                    simulate(about, {str(k): v for k, v in row.items()}, case)
                    for row in part.to_dict("records")
                ]
                yield line(
                    part["measured_s"],
                    predicted_s,
                    basis=SIMULATED,
                    what=f"{what}, {_named(case)}",
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


def _named(case: Json) -> str:
    answers = ", published answers" if "true_lengths" in case else ""
    return f"sigma {case['chunks_sigma']}{answers}"


def simulate(about: Json, row: Mapping[str, Any], case: Json) -> float:
    """Seconds of one setting under one planner, loading included, mean over the seeds."""
    seconds = [_simulate_once(about, row, case, seed) for seed in about["seeds"]]
    return float(np.mean(seconds))


def _simulate_once(about: Json, row: Mapping[str, Any], case: Json, seed: int) -> float:
    hardware, limits = _yaml("hardware", about["hardware"]), _yaml("engine", "simulator")
    costs = ProfileCosts(
        gpu=hardware["gpu"],
        profile_dir=hardware["profile"],
        memory_share=hardware["memory_share"],
        parts=PARTS,
    )
    workload_factory = build(
        _yaml("workload", about["workload"])
        | {
            "documents": row["n_documents"],
            "evaluations": row["n_evaluators"],
            "summariser": row["summariser"],
            "max_output_tokens": row["max_output"],
        }
        | case
    )
    engine = Simulator(
        cluster=_cluster(row["n_gpu"], about["nvlink_island"], hardware["gpu"]),
        costs=costs,
        max_num_seqs=limits["max_num_seqs"],
        max_num_batched_tokens=limits["max_num_batched_tokens"],
    )
    recorder = Recorder()
    system = _system(about, row["planner"], costs, workload_factory.models, seed)
    engine.run(workload_factory.build(seed), system, recorder)
    return float(recorder.requests["finished_s"].max())


def _system(
    about: Json, planner: str, costs: ProfileCosts, models: Sequence[str], seed: int
) -> System:
    """The system of a planner as its paper describes it."""
    named, policy = _yaml("system", about["systems"][planner]), _yaml("policy", about["policy"])
    variant = named["by_variant"]["paper"]
    placement = StagedPlacement(
        planner=build(variant["planner"]),
        planner_costs=costs.with_parts(tuple(named["planner_parts"])),
        lengths={ServiceId(model): load_lengths(model) for model in models},
        rule=build(policy["rule"]),
        tensor_parallel=about["tensor_parallel"],
        keep_replicas=named["placement"]["keep_replicas"],
        preemption=named["placement"]["preemption"],
        one_seed=variant["one_seed"],
        every_expert=named["placement"]["every_expert"],
        needed_only=variant["needed_only"],
        flops_scale=named["placement"]["flops_scale"],
        scaled_service=named["placement"]["scaled_service"],
        fed_goes_on=named["placement"]["fed_goes_on"],
        seed=seed,
    )
    return System(named["name"], build(policy), build(named["dispatch"]), placement)


def _cluster(count: int, island: int, gpu: str) -> Cluster:
    """So many GPUs, NVLink within islands of `island` neighbours."""
    gpus = tuple(GpuId(i) for i in range(count))
    islands = tuple(frozenset(gpus[i : i + island]) for i in range(0, len(gpus), island))
    return Cluster(gpus, islands, gpu_facts(gpu).memory_bytes)


@cache
def _yaml(group: str, name: str) -> Json:
    """What a file of scenarios/ says, read once for thousands of runs; not to be written to."""
    node = OmegaConf.to_container(read_choice(group, name))
    assert isinstance(node, dict)
    return {str(key): value for key, value in node.items()}


def _order(rows: pd.DataFrame) -> str:
    """How often the simulator has the faster of two planners right."""
    pairs = rows.pivot(index=SETTING, columns="planner", values=["measured_s", "simulated_s"])
    pairs = pairs.dropna()
    measured, simulated = (
        np.diff(np.log(pairs[kind].to_numpy()), axis=1)[:, 0]
        for kind in ("measured_s", "simulated_s")
    )
    right = np.sign(measured) == np.sign(simulated)
    clear = np.abs(measured) > 0.05
    return (
        f"The faster planner is right in {right.sum()} of {len(right)} settings, and in "
        f"{right[clear].sum()} of the {clear.sum()} measured to differ by more than 5%"
    )
