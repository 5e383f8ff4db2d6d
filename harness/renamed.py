"""Names that configuration files had before, so that an old file is told today's name."""

from types import MappingProxyType

KEYS = MappingProxyType(
    {
        "by_fidelity": "by_variant",
        "fidelity": "variant",
        "max_batch_requests": "max_num_seqs",
        "max_batch_tokens": "max_num_batched_tokens",
        "mixed": "chunked_prefill",
        "seats": "max_num_seqs",
        "spare_blocks_share": "watermark",
    }
)
"""Key -> its name now."""

CLASSES = MappingProxyType({"BatchRule": "ContinuousBatching", "RequestBatches": "StaticBatching"})
"""Class that a `_target_` may name -> its name now."""

_SAME_NAME = {
    "harness.claims": "verdicts",
    "harness.costs": "compiled local_hardware roofline uncertainty",
    "harness.engines": "recorder",
    "harness.fitting": "iteration_rows linear_profile operator_rates query_latency roofline_across",
    "harness.interface": "checks decisions draft entities events kv_ledger policies views",
    "harness.planning": "gpu_assignment",
    "harness.runs": "cells config metrics perfetto progress record stats table tracking",
}
"""Room -> modules that were beside it before."""

MODULES = MappingProxyType(
    {
        f"harness.{name}": f"{room}.{name}"
        for room, names in _SAME_NAME.items()
        for name in names.split()
    }
    | {
        "harness.arrivals_fit": "harness.fitting.arrivals",
        "harness.belief": "harness.planning.estimate",
        "harness.cost_profile": "harness.costs.profiles",
        "harness.costs": "harness.costs.model",
        "harness.engines.carried": "harness.engines.vllm.carried",
        "harness.engines.deploying": "harness.engines.simulator.deploying",
        "harness.engines.kernel": "harness.engines.simulator.kernel.loop",
        "harness.engines.measured": "harness.engines.vllm.measured",
        "harness.engines.nvml": "harness.costs.nvml",
        "harness.engines.served": "harness.engines.vllm.served",
        "harness.engines.simulator": "harness.engines.simulator.loop",
        "harness.engines.stepping": "harness.engines.simulator.stepping",
        "harness.engines.timeline": "harness.engines.simulator.timeline",
        "harness.engines.vllm_dry": "harness.engines.vllm.dry",
        "harness.engines.vllm_engine": "harness.engines.vllm.engine",
        "harness.engines.vllm_group": "harness.engines.vllm.group",
        "harness.engines.vllm_groups": "harness.engines.vllm.groups",
        "harness.engines.vllm_prompts": "harness.engines.vllm.prompts",
        "harness.engines.vllm_ray": "harness.engines.vllm.ray",
        "harness.engines.vllm_run": "harness.engines.vllm.run",
        "harness.engines.vllm_scheduler": "harness.engines.vllm.scheduler",
        "harness.fidelity_runs": "harness.fidelity.real_runs",
        "harness.fidelity_vllm": "harness.fidelity.real_engine",
        "harness.forecast": "harness.planning.estimate",
        "harness.gpus": "harness.costs.gpu_facts",
        "harness.lengths_fit": "harness.fitting.lengths",
        "harness.models": "harness.costs.model_facts",
        "harness.nodes": "harness.build",
        "harness.outlook": "harness.planning.preview",
        "harness.pairs_fit": "harness.fitting.pairs",
        "harness.planning.staged_placement": "harness.planning.follow",
        "harness.predictor_fit": "harness.fitting.predictors",
        "harness.report_parts": "harness.report.measured",
        "harness.robust_fit": "harness.fitting.robust",
        "harness.roofline_fit": "harness.fitting.roofline",
        "harness.rows_fit": "harness.fitting.rows",
        "harness.shapes_fit": "harness.fitting.shapes",
        "harness.staged_placement": "harness.planning.follow",
        "harness.stages": "harness.planning.plans",
        "harness.train_predictor": "harness.training",
        "harness.values": "harness.build",
        "harness.workloads.graph": "harness.interface.graph",
    }
)
"""Module -> where it is now; of one that became a folder, the file that has its classes."""


def renamed_key(path: str) -> str | None:
    """The sentence about a dotted key of which a part has another name now; None where none has."""
    today = ".".join(KEYS.get(part, part) for part in path.split("."))
    return None if today == path else f"there is no {path}; it is now {today}"


def renamed_target(target: str) -> str | None:
    """The sentence about a class that is elsewhere, or has another name, now; None for others."""
    module, _, name = target.rpartition(".")
    today = f"{MODULES.get(module, module)}.{CLASSES.get(name, name)}".lstrip(".")
    return None if today == target else f"there is no {target}; it is now {today}"
