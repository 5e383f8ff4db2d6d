"""Settings measured on real vLLM, repetition by repetition, one model after the other."""

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pandas as pd

from harness.config.build import build
from harness.config.engine_limits import LIMITS
from harness.config.paths import ROOT
from harness.config.yaml_files import read_yaml
from harness.costs.model import ProfileCosts
from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.processor import engine_name, has_gpus
from harness.engines.vllm.timed_batches import how_fast
from harness.interface.entities import Cluster, GpuId, ServiceId
from harness.runs.provenance import machine
from harness.tools.fidelity.settings import (
    MeasuredSetting,
    costs_of,
    figures,
    served,
    settings_of,
    system_of,
    workload_of,
)
from harness.tools.fidelity.speed import BATCH, totals_of


class Measuring:
    """A model on an engine with as many KV blocks as its profile counted.

    `batches` are those of a sweep, in the columns of `speed.BATCH`, `totals` what each sweep took.
    """

    def __init__(self, model: str, costs: ProfileCosts) -> None:
        """It is loaded by the first run."""
        self.model, self.costs = model, costs
        self.batches: list[list[float]] = []
        self.totals: list[list[float]] = []
        node = read_yaml(ROOT / "scenarios/engine/vllm.yaml") | {
            "kv_blocks": costs.kv_blocks(ServiceId(model), 1),
            "block_tokens": costs.block_tokens(ServiceId(model)),
            "eager": not has_gpus(),
            "keep_loaded": True,
            "loads_first": True,
        }
        self.engine: Vllm = build(node, offered={"cluster": Cluster((GpuId(0),), ()), "seed": 0})
        self._services = workload_of(
            MeasuredSetting(model, "vllm", "offline", 1, None, 1.0)
        ).services

    @property
    def limits(self) -> dict[str, int]:
        """Those of the engine."""
        return {name: getattr(self.engine, name) for name in LIMITS}

    def run(self, setting: MeasuredSetting) -> pd.DataFrame:
        """The requests of one run."""
        return served(self.engine, setting, self.costs)

    def sweep(self) -> None:
        """Compute designed batches and keep what they took; not on GPUs, which do not drift."""
        if has_gpus():
            return
        rows = how_fast(self.engine, self._services, system_of(self.engine, "vllm", self.costs))
        rounds, totals = rows["round"].nunique(), totals_of(rows, self.costs, self.model)
        self.batches = rows.loc[rows["round"] == 0, BATCH].to_numpy().tolist()
        self.totals.append([seconds / rounds for seconds in totals])

    @property
    def resolved(self) -> dict[str, Any]:
        """By model, how vLLM has resolved the configuration of what is loaded."""
        (group,) = self.engine.loaded.values()
        return {str(service): dict(it) for service, it in group.resolved.items()}

    def stop(self) -> None:
        """Free the engine."""
        for group in self.engine.loaded.values():
            group.stop()
        self.engine.loaded.clear()


def measured(models: Mapping[str, int], options: argparse.Namespace) -> dict[str, Any]:
    """Every repetition of all settings, with so many requests for each model."""
    costs = costs_of(options)
    content: dict[str, Any] = {"engine": engine_name(), "machine": machine()}
    content |= {"settings": [], "sweeps": {}, "resolved": {}}
    for model, requests in models.items():
        measuring = Measuring(model, costs)
        settings = list(settings_of(model, requests, options.policies, costs, measuring.limits))
        runs: dict[MeasuredSetting, list[dict[str, float]]] = {setting: [] for setting in settings}
        measuring.run(settings[0])
        measuring.sweep()
        for repetition in range(options.repeats):
            for setting in settings:
                runs[setting].append(figures(measuring.run(setting)))
            measuring.sweep()
            print(f"{model}: repetition {repetition + 1} of {options.repeats}", flush=True)
        content["settings"] += [asdict(it) | {"runs": those} for it, those in runs.items()]
        content["sweeps"][model] = {"batches": measuring.batches, "totals": measuring.totals}
        content["resolved"] |= measuring.resolved
        measuring.stop()
    return content
