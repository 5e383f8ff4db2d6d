"""Seconds to plan the largest setting of the ensembling scenario, by planner."""

import time
from typing import Any

import numpy as np
import yaml
from omegaconf import OmegaConf

from harness.build import build
from harness.costs.model import PARTS, ProfileCosts
from harness.paths import ROOT
from harness.planning.estimate import Forecaster
from harness.planning.plan_tracking import StagePlanner
from harness.planning.plans import ready_load
from harness.planning.preview import StagePreview
from harness.predictors.ecdf import load_lengths, output_lengths
from harness.yaml_files import read_choice

REPEATS = 3
POLICY = "policy/vllm_0_3"
REQUESTS, LIMIT_TOKENS, GPUS = 10_000, 512, 8


def measure() -> dict[str, float]:
    """Best of several plans, one core."""
    rule = build(_read(POLICY)["rule"])
    workload_factory = build(
        _read("workload/mixinstruct") | {"requests": REQUESTS, "max_output_tokens": LIMIT_TOKENS}
    )
    load = workload_factory.build(0)
    rng = np.random.default_rng(0)
    loads = {}
    for index, service in enumerate(load.services):
        prompts = load.prompt_tokens[load.service == index]
        sampled = output_lengths(
            load_lengths(service.id),
            prompts,
            max_output_tokens=LIMIT_TOKENS,
            max_context_tokens=service.max_context_tokens,
            rng=rng,
        )
        loads[service.id] = ready_load(prompts, np.zeros_like(prompts), sampled)
    figures = {}
    for path in sorted((ROOT / "scenarios" / "system").glob("*.yaml")):
        system = _system(path.stem)
        if "planner" in system["placement"]:
            planner = build(system["placement"]["planner"], path="planner")
            degrees = tuple(system["placement"]["tensor_parallel"])
            costs = ProfileCosts(
                gpu="A100-80G", profile_dir="a100_80g_vllm_0_3", memory_share=0.9, parts=PARTS
            ).with_parts(tuple(system["planner_parts"]))
            forecaster = Forecaster(costs=costs, rule=rule)
            seconds = (
                _plan_s(planner, StagePreview(forecaster, loads, GPUS, degrees))
                for _ in range(REPEATS)
            )
            figures[f"plan_{path.stem}_s"] = min(seconds)
    return figures


def _system(name: str) -> dict[str, Any]:
    """A system's file under its paper's method, with references resolved."""
    whole = {"variant": "paper", "policy": _read(POLICY), "system": read_choice("system", name)}
    plain = OmegaConf.to_container(OmegaConf.create(whole), resolve=True)
    assert isinstance(plain, dict)
    named: dict[str, Any] = plain["system"]
    return named


def _read(name: str) -> dict[str, object]:
    content = yaml.safe_load((ROOT / "scenarios" / f"{name}.yaml").read_text())
    assert isinstance(content, dict)
    return content


def _plan_s(planner: StagePlanner, preview: StagePreview) -> float:
    started_s = time.perf_counter()
    planner.plan(preview, GPUS)
    return time.perf_counter() - started_s
