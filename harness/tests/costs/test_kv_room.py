"""KV left by vLLM against its own logs.

Sources: `174,336 tokens` of llm-d-benchmark issue 345; vllm issue 21348; the measured tables of
llm-d-benchmark (empirical-vllm-memory-results.md, vLLM 0.11) and of llm-d-planner (accuracy
reports, vLLM 0.15 to 0.19; KV of two and four GPUs from its parts); public server logs of vLLM 0.8
and 0.31. All on H100, H200 and A100 with the server's default limits.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.config.paths import ROOT
from harness.costs.gpu_facts import GpuFacts, gpu_facts, load_gpus
from harness.costs.kv_room import (
    GIB,
    KvRoom,
    Version,
    default_graph_sizes,
    default_limits,
    kv_room,
    weight_bytes_per_gpu,
)
from harness.costs.model_facts import ModelFacts, model_facts

OWN = ROOT / "scenarios" / "models"
CONFIGS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("configs.json").read_text(encoding="utf-8")
)
CHANGED = {
    "CodeLlama-7b": CONFIGS["Llama-2-7b"] | {"vocab_size": 32016},
    "gpt-oss-20b": CONFIGS["gpt-oss-20b"] | {"quantization_config": {"quant_method": "mxfp4"}},
    "Qwen3-0.6B": CONFIGS["Qwen3-8B"]
    | {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "tie_word_embeddings": True,
    },
    "Qwen3-14B": CONFIGS["Qwen3-8B"]
    | {
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_attention_heads": 40,
        "num_hidden_layers": 40,
    },
}
Facts = Callable[[str], ModelFacts]


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    """Facts of a model by its name here, or of a config of `scenarios/models`."""

    def read(name: str) -> ModelFacts:
        path = OWN / name / "config.json"
        if not path.is_file():
            path = tmp_path / name / "config.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps((CONFIGS | CHANGED)[name]), encoding="utf-8")
        return model_facts(str(path))

    return read


def served(
    model: ModelFacts, gpu: GpuFacts, tensor_parallel: int, share: float, version: Version
) -> KvRoom:
    """Memory under a server with the default limits of today; those of vLLM 0.8 were less."""
    tokens, requests = default_limits(gpu) if version > (0, 8) else (2048, 256)
    return kv_room(
        model,
        gpu,
        tensor_parallel,
        share,
        max_batched_tokens=tokens,
        max_requests=requests,
        graph_sizes=default_graph_sizes(requests),
        version=version,
    )


@pytest.mark.parametrize(
    ("name", "gpu", "total_gib", "tensor_parallel", "share", "version", "kv_gib"),
    [
        ("llama-3.1-70b-fp8", "H200-141G", 139.80, 1, 0.9, (0, 11), 53.20),
        ("qwen3-235b-a22b-fp8", "H100-80G", 79.11, 4, 0.9, (0, 10), 8.11),
        ("Llama-3.1-8B", "H100-80G", 79.11, 1, 0.9, (0, 8), 54.58),
        ("gpt-oss-20b", "H100-80G", 79.18, 1, 0.9, (0, 11), 50.28),
        ("gpt-oss-120b", "H100-80G", 79.18, 1, 0.95, (0, 11), 3.33),
        ("llama-3.1-70b-fp8", "H100-80G", 79.18, 2, 0.9, (0, 11), 32.0),
        ("Llama-3.1-8B", "H100-80G", 79.18, 1, 0.9, (0, 11), 51.38),
        ("Qwen3-0.6B", "H100-80G", 79.18, 1, 0.9, (0, 11), 64.45),
        ("qwen3-32b", "H100-80G", 79.18, 1, 0.9, (0, 11), 4.45),
        ("qwen3-32b", "H100-80G", 79.18, 2, 0.9, (0, 11), 34.49),
        ("Qwen3-14B", "H100-80G", 79.19, 1, 0.95, (0, 16), 41.94),
        ("Qwen3-14B", "H100-80G", 79.19, 1, 0.95, (0, 17), 45.34),
        ("Qwen3-14B", "H100-80G", 79.19, 1, 0.95, (0, 18), 45.23),
        ("Llama-3.1-8B", "H100-80G", 79.19, 1, 0.95, (0, 19), 58.11),
        ("Llama-3.1-8B", "H100-80G", 79.19, 2, 0.95, (0, 19), 63.76),
        ("Llama-3.1-8B", "H100-80G", 79.19, 4, 0.95, (0, 19), 67.44),
        ("Qwen2.5-7B", "H100-80G", 79.19, 1, 0.95, (0, 19), 58.53),
        ("Qwen2.5-7B", "H100-80G", 79.19, 2, 0.95, (0, 19), 63.84),
        ("Qwen2.5-7B", "H100-80G", 79.19, 4, 0.95, (0, 19), 67.34),
        ("Llama-3.1-8B", "A100-80G", 79.25, 1, 0.92, (0, 31), 56.21),
    ],
)
def test_kv_left_is_that_of_logs(
    name: str,
    gpu: str,
    total_gib: float,
    tensor_parallel: int,
    share: float,
    version: Version,
    kv_gib: float,
    facts: Facts,
) -> None:
    machine = replace(gpu_facts(gpu), usable_bytes=round(total_gib * GIB))
    room = served(facts(name), machine, tensor_parallel, share, version)
    assert room.kv_bytes / GIB == pytest.approx(kv_gib, rel=0.01, abs=0.2)


def test_tokens_of_the_stated_logs(facts: Facts) -> None:
    """Driver totals of the list, and KV as the engine divides it."""
    for name, gpu, tensor_parallel, version, tokens, within in (
        ("llama-3.1-70b-fp8", "H200-141G", 1, (0, 11), 174_336, 0.02),
        ("qwen3-235b-a22b-fp8", "H100-80G", 4, (0, 10), 178_880, 0.04),
    ):
        model = facts(name)
        room = served(model, gpu_facts(gpu), tensor_parallel, 0.9, version)
        found = room.kv_bytes / model.kv_bytes_per_gpu(tensor_parallel)
        assert found == pytest.approx(tokens, rel=within)


@pytest.mark.parametrize(
    ("name", "tensor_parallel", "version", "peak_gib"),
    [
        ("Llama-3.1-8B", 1, (0, 11), 4.76),
        ("llama-3.1-70b-fp8", 2, (0, 11), 4.84),
        ("Qwen3-0.6B", 1, (0, 11), 5.56),
        ("qwen3-32b", 2, (0, 11), 5.64),
        ("gpt-oss-20b", 1, (0, 11), 7.38),
        ("gpt-oss-120b", 1, (0, 11), 7.38),
        ("Qwen3-14B", 1, (0, 16), 5.64),
        ("Qwen3-14B", 1, (0, 17), 2.23),
        ("CodeLlama-7b", 1, (0, 19), 0.77),
        ("DeepSeek-V2-Lite", 1, (0, 19), 1.93),
        ("Llama-3.1-8B", 4, (0, 19), 1.89),
        ("Mixtral-8x7B", 2, (0, 19), 1.21),
        ("Qwen1.5-MoE-A2.7B", 1, (0, 19), 2.47),
        ("Qwen2.5-7B", 1, (0, 19), 2.21),
        ("Qwen3-30B-A3B", 1, (0, 19), 2.68),
        ("gemma-2-9b", 1, (0, 19), 3.65),
        ("gemma-7b", 1, (0, 19), 3.63),
        ("gpt-oss-20b", 2, (0, 19), 2.87),
        ("granite-3.1-8b", 1, (0, 19), 0.85),
        ("llama-3.1-70b-fp8", 4, (0, 19), 1.97),
        ("phi-2", 1, (0, 19), 0.79),
        ("phi-4", 1, (0, 19), 1.52),
    ],
)
def test_the_peak_of_the_dummy_pass_follows_from_shapes(
    name: str, tensor_parallel: int, version: Version, peak_gib: float, facts: Facts
) -> None:
    room = served(facts(name), gpu_facts("H100-80G"), tensor_parallel, 0.95, version)
    assert room.peak_bytes / GIB == pytest.approx(peak_gib, rel=0.06)


@pytest.mark.parametrize(
    ("name", "tensor_parallel", "weights_gib"),
    [
        ("Llama-3.1-8B", 1, 14.99),
        ("Llama-3.1-8B", 4, 3.77),
        ("llama-3.1-70b-fp8", 1, 67.72),
        ("llama-3.1-70b-fp8", 2, 33.88),
        ("qwen3-32b", 2, 30.59),
        ("gpt-oss-20b", 1, 13.47),
        ("gpt-oss-120b", 1, 64.38),
    ],
)
def test_weights_of_each_gpu(
    name: str, tensor_parallel: int, weights_gib: float, facts: Facts
) -> None:
    found = weight_bytes_per_gpu(facts(name), tensor_parallel) / GIB
    assert found == pytest.approx(weights_gib, rel=0.012)


def test_few_kv_heads_and_routers_are_on_every_gpu(facts: Facts) -> None:
    """Qwen3-30B-A3B has 4 KV heads of 128, 2,048 hidden units, 128 experts and 48 layers."""
    model = facts("Qwen3-30B-A3B")
    copied = 48 * 2 * (2048 * 128 + 2 * 2048)  # router and norms, 2 bytes each
    kept = 48 * 2 * 2 * 2048 * 4 * 128
    for size, kv in ((4, 0.0), (8, kept / 8)):
        whole = (model.weight_bytes - copied) / size + copied + kv
        assert weight_bytes_per_gpu(model, size) == pytest.approx(whole, abs=1)


def test_limits_graphs_and_guesses(facts: Facts) -> None:
    model = facts("Llama-3.1-8B")
    assert default_limits(gpu_facts("B200-180G")) == (16_384, 1024)
    assert default_limits(gpu_facts("H100-80G")) == (8192, 1024)
    assert default_limits(gpu_facts("A100-80G")) == (2048, 256)
    sizes = default_graph_sizes(1024)
    assert (len(sizes), sizes[-1]) == (51, 512)
    assert default_graph_sizes(3) == (1, 2, 4)
    unknown = served(model, gpu_facts("A100-80G-PCIe"), 4, 0.9, (0, 32))
    assert any("the driver reports 99%" in guess for guess in unknown.guesses)
    assert any("CUDA graphs" in guess for guess in unknown.guesses)
    joined = served(model, gpu_facts("A100-80G"), 4, 0.9, (0, 32))
    assert joined.context_bytes > unknown.context_bytes
    older = served(model, gpu_facts("A100-80G"), 4, 0.9, (0, 20))
    assert (older.graph_bytes, older.kv_bytes > 0) == (0, True)


def test_nothing_is_left_where_the_weights_do_not_fit(facts: Facts) -> None:
    for gpu in load_gpus().values():
        room = served(facts("deepseek-v3"), gpu, 1, 0.9, (0, 32))
        assert room.kv_bytes == 0
