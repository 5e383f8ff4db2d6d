"""One model of this machine, measured."""

import argparse
from pathlib import Path

import pandas as pd

from harness.costs.model_facts import model_facts
from harness.costs.model_names import is_config
from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.processor import engine_name, has_gpus
from harness.interface.entities import Cluster, GpuId, Group, GroupId, Service, ServiceId
from harness.runs.provenance import machine
from harness.tools.calibrate.sweep import CalibrationSweep, load_seconds, measure
from harness.tools.fitting.stored import Json


def engine(kv_blocks: int | None) -> Vllm:
    """vLLM as it is measured; on a CPU without compiling."""
    is_cpu = not has_gpus()
    return Vllm(
        cluster=Cluster((GpuId(0),), ()),
        seed=0,
        models={},
        load_format="dummy",
        dtype=None,
        max_num_seqs=256,
        max_num_batched_tokens=2048,
        kv_blocks=kv_blocks,
        block_tokens=32 if is_cpu else None,
        prefix_caching=False,
        eager=is_cpu,
        keep_answers=False,
        keep_loaded=True,
        ray=False,
        on_loss="fail",
        texts=None,
        forces_lengths=True,
        loads_first=True,
    )


def calibrate(model: str, on: Vllm, options: argparse.Namespace) -> tuple[str, pd.DataFrame, Json]:
    """The name of a model's file, every iteration measured, and what `raw` keeps beside them."""
    facts = model_facts(model)
    service = Service(ServiceId(facts.name), facts.kv_bytes_per_token, facts.max_context_tokens)
    group = Group(GroupId("calibrated"), frozenset({service.id}), (GpuId(0),))
    stem = Path(facts.name).parent.name if is_config(facts.name) else model
    (settings,) = on.settings([service], group)
    load_s = load_seconds(settings, service)
    sweep = CalibrationSweep(on, service)
    try:
        rows = measure(sweep, options.repeats, options.most_requests, most_s=options.most_s)
        return stem, rows, facts_of(sweep, options.gpu, load_s)
    finally:
        sweep.stop()


def facts_of(sweep: CalibrationSweep, gpu: str, load_s: float | None) -> Json:
    """What `stored.profile` asks for, and how the engine and the machine were."""
    resolved = dict(sweep.group.resolved[sweep.service.id])
    return {
        "model": str(sweep.service.id),
        "gpu": gpu,
        "engine": engine_name(),
        "block_tokens": sweep.group.block_tokens,
        "kv_blocks": sweep.group.kv_blocks,
        "largest_graph_tokens": 0 if resolved["eager"] else resolved["largest_graph_tokens"],
        "load_s": load_s,
        "resolved": resolved,
        "machine": machine(),
    }
