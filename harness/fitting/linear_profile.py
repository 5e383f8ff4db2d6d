"""A cost profile that a program assumes instead of measuring: seconds linear in the answer.

A request takes a constant and as much again for every token of its answer; its prompt costs
nothing, and a batch takes as long as its longest request.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from harness.costs.model import PARTS
from harness.costs.profiles import CALIBRATION

Json = dict[str, Any]

FOLDER = "linear_100ms_20ms_per_token"
CONSTANT_S = 0.1
PER_OUTPUT_TOKEN_S = 0.02
MODEL = "vicuna-13b-v1.5"
GPU = "A100-80G"
KV_BLOCKS = 10**6  # more than any batch holds
SOURCE = (
    "James-QiuHaoran/LLM-serving-with-proxy-models@4b86686 model-serving/simulator.py: "
    "0.1 s and 0.02 s for every output token"
)


def linear_files(calibration: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    """File name and content; `calibration` is what other models' costs follow."""
    yield CALIBRATION, dict(calibration)
    # the prefill brings the first token, every decode iteration one more
    yield f"{MODEL}.json", profile(CONSTANT_S + PER_OUTPUT_TOKEN_S, PER_OUTPUT_TOKEN_S)


def profile(prefill_s: float, decode_s: float) -> Json:
    """A profile whose iterations take these seconds for any number of requests and tokens."""
    entry = {
        phase: {part: {"base_s": [seconds if part == "forward" else 0.0] * 2} for part in PARTS}
        for phase, seconds in (("prefill", prefill_s), ("decode", decode_s))
    }
    return {
        "model": MODEL,
        "gpu": GPU,
        "engine": "none",
        "kind": "assumed",
        "source": SOURCE,
        "block_tokens": 16,
        "knots_requests": [1, 2],
        "tensor_parallel": {
            "1": entry
            | {
                "kv_blocks": KV_BLOCKS,
                "load_s": 0.0,
                "load_source": "not modelled by the program",
                "error": {"prefill_median": 0.0, "decode_median": 0.0},
            }
        },
    }
