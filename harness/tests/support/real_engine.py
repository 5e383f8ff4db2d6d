"""A small real engine for tests. Needs vLLM."""

from pathlib import Path
from typing import Any

from harness.engines.vllm.engine import Vllm
from harness.engines.vllm.group import EngineSettings, VllmGroup
from harness.tests.support.serving import cluster

VOCABULARY = 1000
MAX_NUM_SEQS, TOKENS, BLOCKS, BLOCK = 16, 256, 40, 32
_KEPT: dict[tuple[EngineSettings, ...], VllmGroup] = {}


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


def kept_engine(**changes: Any) -> Vllm:
    """As `engine`, on what tests of this file have loaded before, which stays loaded."""
    return engine(keep_loaded=True, loaded=_KEPT, **changes)


def stop_kept() -> None:
    """Stop what `kept_engine` has loaded."""
    while _KEPT:
        _KEPT.popitem()[1].stop()


def write_weights(folder: Path, *, layers: int = 2, kv_heads: int = 2, seed: int = 0) -> None:
    """A small model with random weights large enough for answers to differ."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=kv_heads,
        head_dim=64,
        vocab_size=VOCABULARY,
        max_position_embeddings=2048,
        initializer_range=0.12,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
