"""A small real engine for tests. Needs vLLM."""

from typing import Any

from harness.engines.vllm.engine import Vllm
from harness.tests.support.serving import cluster

MAX_NUM_SEQS, TOKENS, BLOCKS, BLOCK = 16, 256, 40, 32


def engine(**changes: Any) -> Vllm:
    """A small engine whose KV binds."""
    about: dict[str, Any] = {
        "cluster": cluster(2),
        "seed": 0,
        "models": {"m": "tiny", "m0": "tiny", "m1": "tiny"},
        "load_format": "dummy",
        "dtype": "float32",
        "max_num_seqs": MAX_NUM_SEQS,
        "max_num_batched_tokens": TOKENS,
        "kv_blocks": BLOCKS,
        "block_tokens": BLOCK,
        "prefix_caching": False,
        "eager": True,
        "keep_answers": False,
        "keep_loaded": False,
        "ray": False,
        "on_loss": "fail",
        "texts": None,
        "forces_lengths": True,
        "loads_first": True,
    }
    return Vllm(**about | changes)
