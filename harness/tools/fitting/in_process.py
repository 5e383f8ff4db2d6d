"""Terms of vLLM in one process with its caller, from batches that were measured on it.

The profiles of profiles/h200-141g_vllm stand for what was measured. Terms that batches do not tell
apart, kernels of layers that no table has, are those of a server.
"""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import nnls

from harness.config.paths import ROOT
from harness.config.schema import read_json
from harness.costs.engine_kinds import ENGINES, EngineKind, engine_kind
from harness.costs.iteration import IterationTable, work_seconds
from harness.costs.model import PARTS, ProfileCosts
from harness.interface.entities import Work
from harness.tools.fitting.stored import rounded

KIND, SERVER = "vllm-sync", "vllm-async"
MEASURED = {"gpu": "H200-141G", "profile_dir": "h200-141g_vllm", "memory_share": 0.9}
MODELS = ("random-7b", "random-1b")
STEPS = {
    "iteration_s": 1e-3,
    "running_s": 1e-5,
    "any_prompt_s": 1e-3,
    "prompt_s": 1e-3,
    "prompt_kernels": 2.0,
}
"""Terms that are fitted, and a value by which each is told from none."""
NONE = dict.fromkeys(STEPS, 0.0) | {"prompt_kernels": 1.0}
DECODES = tuple(product((1, 2, 4, 8, 16, 32, 64, 96, 128), (100, 200, 400)))
"""Requests and context tokens of each."""
PROMPTS = (
    *((1, 64), (1, 128), (2, 64), (1, 256), (1, 512), (4, 64), (1, 1024), (4, 256), (2, 512)),
    *((1, 2048), (8, 256)),
)
"""Prompts and tokens of each."""
MIXED = ((1, 128, 8), (1, 512, 32), (2, 512, 64), (1, 256, 32), (4, 128, 16))
"""The same beside so many decodes, of 300 tokens each."""
REWEIGHTED, SMALL_ERROR = 20, 0.03
"""As in a fit to measured servers: errors above the second count without squares."""


def batches() -> list[Work]:
    """What was measured: decodes, prompts, and both."""
    found = [
        Work(decode_requests=n, context_tokens=n * tokens, longest_tokens=tokens)
        for n, tokens in DECODES
    ]
    for n, tokens, decodes in (*((*each, 0) for each in PROMPTS), *MIXED):
        prompts = n * tokens
        attended = float(n * tokens**2)
        found.append(Work(n, prompts, prompts, attended, decodes, decodes * 300, 400))
    return found


def in_process_file() -> Mapping[str, Any]:
    """The file of the kind, its terms fitted."""
    content = read_json(ENGINES / f"{KIND}.json", dict[str, Any])
    layer_s = engine_kind(SERVER).value("layer_s")
    values, errors = _fitted(engine_kind(KIND).with_values({**NONE, "layer_s": layer_s}))
    for name, value in {**values, "layer_s": layer_s}.items():
        content["terms"][name]["value"] = rounded(value, 4)
    is_decode = np.tile([not work.prefill_requests for work in batches()], len(MODELS))
    decode, prefill = (float(np.median(np.abs(errors[of]))) for of in (is_decode, ~is_decode))
    content["error"] = rounded({"decode_median": decode, "prefill_median": prefill}, 2)
    content["checked"] = (
        f"median error of a decode {decode:.0%}, with prompts {prefill:.0%}, on {len(errors)} "
        f"batches of {len(MODELS)} models of 1B and 7B on one {MEASURED['gpu']} that the terms "
        "were fitted to, not checked on others"
    )
    return content


def _fitted(plain: EngineKind) -> tuple[dict[str, float], np.ndarray]:
    """Terms beyond those of a plain engine, and relative errors of all batches."""
    matrix, wanted = [], []
    for name in MODELS:
        measured_s = _seconds(name, KIND)
        plain_s = _seconds(name, plain)
        slopes = [_seconds(name, plain.with_values({term: step})) for term, step in STEPS.items()]
        matrix.append(np.stack([(it - plain_s) / measured_s for it in slopes], axis=1))
        wanted.append(1.0 - plain_s / measured_s)
    columns, target = np.vstack(matrix), np.concatenate(wanted)
    weights = np.ones(len(target))
    for _ in range(REWEIGHTED):
        found, _ = nnls(columns * weights[:, None], target * weights)
        weights = 1.0 / np.sqrt(np.maximum(np.abs(target - columns @ found), SMALL_ERROR))
    values = {
        term: NONE[term] + share * (step - NONE[term])
        for (term, step), share in zip(STEPS.items(), found, strict=True)
    }
    return values, target - columns @ found


def _seconds(name: str, engine: str | EngineKind) -> np.ndarray:
    """Seconds of the batches: by the profile of what was measured, or by kernels and terms."""
    about = dict(MEASURED) if isinstance(engine, str) else {**MEASURED, "profile_dir": "roofline"}
    costs = ProfileCosts(**about, parts=PARTS, engine=engine)  # type: ignore[arg-type]
    model = str(ROOT / "scenarios" / "models" / name / "config.json")
    table: IterationTable = costs.table(model, 1)
    return np.array([work_seconds(table, work) for work in batches()])
