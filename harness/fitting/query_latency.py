"""Table of the latency of one request by model, from the roofline: profiles/shapes.

`prompt_ms` is one forward pass over a prompt, `generate_ms` an answer of as many tokens to a short
prompt, each alone on the GPU at fp16.
"""

from pathlib import Path
from typing import Any

from harness.costs.gpus import gpu_facts
from harness.costs.iteration import IterationTable, decode_run_seconds, expand, work_seconds
from harness.costs.model import PARTS
from harness.costs.models import model_facts
from harness.costs.roofline import Calibration, read_calibration, roofline_profile
from harness.interface.entities import Work

Json = dict[str, Any]

FILE = "query_latency_v100.json"
GPU = "V100-16G"
TOKENS = 512
SHORT_PROMPT_TOKENS = 16  # our choice; a prompt of 128 changes an answer's time by less than 1%
MODELS = (
    "opt-1.3b",
    "opt-2.7b",
    "gpt2-large",
    "gpt2-xl",
    "codegen-350M-mono",
    "codegen-2B-mono",
    "bloom-1b1",
    "bloom-3b",
    "switch-base-16",
    "switch-base-32",
)


def query_latency(calibrated: Path) -> Json:
    """Content of the table, by the calibration in the folder `calibrated`."""
    calibration = read_calibration(calibrated)
    return {
        "kind": "by the roofline",
        "about": f"one request of {TOKENS} tokens alone on one {GPU}, fp16",
        "source": f"{gpu_facts(GPU).source}; {calibration.source}",
        "rows": [_row(model, calibration) for model in MODELS],
    }


def _row(model: str, calibration: Calibration) -> Json:
    table = expand(roofline_profile(model_facts(model), gpu_facts(GPU), 1, calibration), PARTS)
    return {
        "model": model,
        "tokens": TOKENS,
        "prompt_ms": _as_ms(prompt_s(table, TOKENS)),
        "generate_ms": _as_ms(generate_s(table, SHORT_PROMPT_TOKENS, TOKENS)),
    }


def prompt_s(table: IterationTable, tokens: int) -> float:
    """Seconds of one forward pass over a prompt."""
    work = Work(
        prefill_requests=1,
        prefill_tokens=tokens,
        prefill_padded_tokens=tokens,
        prefill_attended=float(tokens**2),
    )
    return work_seconds(table, work)


def generate_s(table: IterationTable, prompt_tokens: int, output_tokens: int) -> float:
    """Seconds of a prompt and its answer; the prompt's pass brings the answer's first token."""
    longest = prompt_tokens + 1
    decodes = decode_run_seconds(table, 1, longest, longest, output_tokens - 1)
    return prompt_s(table, prompt_tokens) + float(decodes)


def _as_ms(seconds: float) -> float:
    return float(f"{seconds * 1e3:.6g}")
