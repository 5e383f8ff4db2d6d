"""Profiles of kernels and engine terms: values worked out by hand, and what must rise or fall."""

from dataclasses import replace

import numpy as np
import pytest

from harness.config.paths import ROOT
from harness.costs.engine_kinds import ENGINES, PROFILE_ENGINE, engine_for, engine_kind
from harness.costs.forward import Forward
from harness.costs.gpu_facts import gpu_facts
from harness.costs.iteration import work_seconds
from harness.costs.kernels import Kernels
from harness.costs.layer_kinds import LayerKind
from harness.costs.model import ENGINE, PARTS, ProfileCosts
from harness.costs.model_facts import ModelFacts, model_facts
from harness.interface.entities import ServiceId, Work

JOINED = ("H100-80G", "H200-141G", "B200-180G", "A100-80G")
"""GPUs with tables whose groups are joined by NVLink."""
BATCHES = np.array([1.0, 8.0, 64.0])


def config(name: str) -> str:
    return str(ROOT / "scenarios" / "models" / name / "config.json")


def facts(name: str, *, kv_number_bytes: int = 2) -> ModelFacts:
    return replace(model_facts(config(name)), kv_number_bytes=kv_number_bytes)


def costs(gpu: str, engine: str = "vllm-async", **changes: object) -> ProfileCosts:
    about = {"gpu": gpu, "profile_dir": "roofline", "memory_share": 0.9, "parts": PARTS}
    about |= {"engine": engine, "roofline": True}
    return ProfileCosts(**{**about, **changes})  # type: ignore[arg-type]


def decode_s(costs: ProfileCosts, name: str, tp: int, requests: int, context: int) -> float:
    work = Work(decode_requests=requests, context_tokens=requests * context, longest_tokens=context)
    return costs.iteration_s(ServiceId(config(name)), tp, work)


def test_kernels_of_a_70b_decode_are_those_added_up_by_hand() -> None:
    """Llama-3.1-70B FP8 on four H100, 1,024 tokens each, batch 1 / 8 / 64, milliseconds."""
    forward = Forward(facts("llama-3.1-70b-fp8"), Kernels(gpu_facts("H100-80G"), 4))
    assert 1e3 * forward.products_s(BATCHES) == pytest.approx([7.639, 7.783, 8.311], rel=2e-3)
    assert 1e3 * forward.all_reduces_s(BATCHES) == pytest.approx([0.785, 1.148, 2.976], rel=2e-3)
    assert 1e3 * forward.logits_s(BATCHES) == pytest.approx([0.174, 0.175, 0.180], rel=1e-2)
    base_s, per_context_s = forward.decode_attention_s(BATCHES)
    attention_s = base_s + per_context_s * BATCHES * 1024
    # A line over contexts of 256 to 8,192 tokens is off by some at one of them.
    assert 1e3 * attention_s == pytest.approx([1.008, 1.259, 2.988], rel=0.07)  # lines


def test_kernels_of_a_mixture_are_those_added_up_by_hand() -> None:
    """gpt-oss-120b on two H200: half of its layers have a window, experts are split."""
    forward = Forward(facts("gpt-oss-120b"), Kernels(gpu_facts("H200-141G"), 2))
    base_s, per_context_s = forward.decode_attention_s(BATCHES)
    whole = replace(facts("gpt-oss-120b"), kinds=())
    unlimited = Forward(whole, Kernels(gpu_facts("H200-141G"), 2)).decode_attention_s(BATCHES)[1]
    assert (per_context_s < 0.7 * unlimited).all(), "windows are read, not whole contexts"
    assert (base_s > 0).all()
    dense = replace(forward, model=replace(forward.model, kinds=without_experts(forward.model)))
    experts_s = np.subtract(forward.products_s(BATCHES), dense.products_s(BATCHES))
    assert experts_s[2] > 3 * experts_s[0], "more tokens touch more experts"


def without_experts(model: ModelFacts) -> tuple[LayerKind, ...]:
    return tuple(
        replace(kind, mlp=replace(kind.mlp, experts=0, experts_per_token=0))
        for kind in model.layer_kinds
    )


def test_terms_of_an_engine_are_added_to_the_kernels() -> None:
    name, work = (
        "llama-3.1-70b-fp8",
        Work(decode_requests=8, context_tokens=8192, longest_tokens=1024),
    )
    plain = engine_kind("vllm-async").with_values({"layer_s": 0.0})
    zero = costs("H100-80G", engine=plain)  # type: ignore[arg-type]
    for term, value, seconds in (
        ("layer_s", 1e-5, 80 * 1e-5),
        ("iteration_s", 2e-3, 2e-3),
        ("running_s", 1e-5, 8e-5),
    ):
        more = costs("H100-80G", engine=plain.with_values({term: value}))  # type: ignore[arg-type]
        service = ServiceId(config(name))
        gained = more.iteration_s(service, 4, work) - zero.iteration_s(service, 4, work)
        assert gained == pytest.approx(seconds, rel=1e-3), term


@pytest.mark.parametrize("gpu", JOINED)
@pytest.mark.parametrize("name", ["llama-3.1-70b", "llama-3.1-70b-fp8"])
def test_no_split_of_a_70b_decode_is_slower_on_twice_the_gpus(gpu: str, name: str) -> None:
    asked = costs(gpu)
    for requests in (1, 2, 7, 16, 33, 64, 128, 256, 512):
        for context in (64, 1024, 8192):
            seconds = [decode_s(asked, name, tp, requests, context) for tp in (1, 2, 4, 8)]
            assert seconds == sorted(seconds, reverse=True), (requests, context, seconds)


@pytest.mark.parametrize("gpu", [*JOINED, "L40S-48G"])
@pytest.mark.parametrize("name", ["llama-3.1-70b-fp8", "qwen3-32b", "gpt-oss-120b", "deepseek-v3"])
def test_an_iteration_takes_no_less_for_more_work(gpu: str, name: str) -> None:
    asked, service = costs(gpu), ServiceId(config(name))
    for tp in (2, 8):
        table = asked.table(service, tp)
        requests = np.arange(1, 1025)
        seconds = table.decode_base_s[1:] + table.decode_per_context_s[1:] * requests * 1024
        assert (np.diff(seconds) > -1e-5).all(), "more requests"
        assert (table.decode_per_context_s[1:] >= 0).all(), "longer contexts"
        prompts = [
            work_seconds(table, Work(1, tokens, tokens, float(tokens**2)))
            for tokens in (1, 16, 64, 256, 512, 1000, 2048, 4096, 8192, 20_000, 100_000)
        ]
        assert prompts == sorted(prompts)
        alone = Work(decode_requests=32, context_tokens=32_768, longest_tokens=1024)
        beside = replace(alone, prefill_requests=1, prefill_tokens=512, prefill_padded_tokens=512)
        prompt = Work(1, 512, 512)
        both = work_seconds(table, beside)
        assert both > work_seconds(table, alone), "a prompt beside decodes takes its time"
        assert both < work_seconds(table, alone) + work_seconds(table, prompt), "weights once"


def test_a_label_says_what_seconds_rest_on_and_how_far_off_they_are() -> None:
    measured = costs("H200-141G").label(config("gpt-oss-120b"), 2)
    assert measured.startswith(f"{ENGINE}vllm-async on kernels of H200-141G: median error TPOT ")
    assert "measured settings of gpt-oss-120b on H200-141G" in measured
    whole = costs("H200-141G", expert_parallel=True).label(config("minimax-m2.5"), 4)
    for unlike in (whole, costs("H200-141G").label(config("deepseek-v3"), 8)):
        assert "no measured server of this model and split on H200-141G" in unlike
        assert "families of models left out of the fit" in unlike
    assert "no measured server on L40S-48G" in costs("L40S-48G").label(config("qwen3-32b"), 2)
    by_formula = costs("MI300X-192G").label(config("qwen3-32b"), 2)
    assert "formulas of kernels (roofline) of MI300X-192G: roofline, not checked" in by_formula
    assert "matrix products of bf16 weights by a formula" in by_formula
    in_process = costs("H100-80G", "vllm-sync").label(config("qwen3-32b"), 2)
    assert "engine vllm-sync" in in_process
    assert "on one H200-141G that the terms were fitted to, not checked on others" in in_process


def test_the_error_beside_a_number_is_what_drawn_costs_use() -> None:
    error = costs("H200-141G").error(config("gpt-oss-120b"), 2)
    assert 0.01 < error["decode_median"] < 0.13
    assert 0.01 < error["prefill_median"] < 0.30


def test_a_gpu_without_kernels_is_refused_or_follows_formulas() -> None:
    with pytest.raises(
        ValueError, match=r"has kernels of A100-80G, .*, not of hardware.gpu=V100-16G"
    ):
        costs("V100-16G", roofline=False)
    assert decode_s(costs("V100-16G", roofline=True), "qwen3-32b", 8, 8, 1024) > 0
    assert costs("V100-16G", PROFILE_ENGINE).label("vicuna-13b-v1.5", 1) == "roofline"


@pytest.mark.parametrize(
    ("gpu", "name", "lacks"),
    [
        ("A100-80G", "llama-3.1-70b-fp8", "matrix products of fp8 weights"),
        ("H100-80G", "minimax-m2.5-nvfp4", "experts of nvfp4 weights"),
        ("A100-80G", "deepseek-v3", "latent attention of this size"),
    ],
)
def test_a_model_without_kernels_is_refused_or_follows_formulas(
    gpu: str, name: str, lacks: str
) -> None:
    with pytest.raises(ValueError, match=f"{gpu} has no kernels of {lacks}.*; hardware.roofline"):
        costs(gpu, roofline=False).require(config(name))
    assert "roofline, not checked" in costs(gpu).label(config(name), 8)


def test_gpus_of_one_chip_share_kernels_but_not_slower_links() -> None:
    """An H800 is an H100 whose links are slower: the same products, longer all-reduces."""
    work = Work(decode_requests=64, context_tokens=65_536, longest_tokens=1024)
    service = ServiceId(config("llama-3.1-70b-fp8"))
    alike = [costs(gpu).iteration_s(service, 1, work) for gpu in ("H100-80G", "H800-80G")]
    assert alike[0] == alike[1]
    split = [costs(gpu).iteration_s(service, 8, work) for gpu in ("H100-80G", "H800-80G")]
    assert split[0] < split[1]


def test_expert_parallel_moves_whole_experts() -> None:
    service, work = ServiceId(config("minimax-m2.5")), Work(1, 4096, 4096, 4096.0**2)
    whole = costs("H200-141G", expert_parallel=True)
    assert whole.iteration_s(service, 4, work) != costs("H200-141G").iteration_s(service, 4, work)


def test_what_no_engine_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kv_number_bytes=3, it must be 1 or 2, or null"):
        costs("H100-80G", kv_number_bytes=3)
    with pytest.raises(ValueError, match=r"expert_parallel=true: .* has no experts"):
        costs("H100-80G", expert_parallel=True).require(config("qwen3-32b"))


def test_groups_over_pcie_add_up_at_its_rate() -> None:
    """Twice the GPUs are no help to a prompt, and no catastrophe."""
    service, work = ServiceId(config("llama-3.1-8b-fp8")), Work(1, 8192, 8192, 8192.0**2)
    seconds = [costs("L40S-48G").iteration_s(service, tp, work) for tp in (1, 4, 8)]
    assert max(seconds) < 2 * min(seconds)


def test_kv_of_8_bits_takes_half_the_room_and_less_time() -> None:
    service = ServiceId(config("llama-3.1-70b-fp8"))
    wide, narrow = costs("H200-141G"), costs("H200-141G", kv_number_bytes=1)
    blocks = [each.kv_blocks(service, 1) for each in (wide, narrow)]
    assert blocks[1] == pytest.approx(2 * blocks[0], abs=2)
    seconds = [decode_s(each, "llama-3.1-70b-fp8", 1, 64, 8192) for each in (narrow, wide)]
    assert seconds == sorted(seconds)


def test_every_kind_of_engine_names_its_terms() -> None:
    for path in ENGINES.glob("*.json"):
        kind = engine_kind(path.stem)
        assert kind.name == path.stem
        for name, term in kind.terms.items():
            assert all([term.mechanism, term.data]), f"{path.stem}: {name}"


def test_requests_of_a_file_are_served_by_an_engine_of_today() -> None:
    assert engine_for("harness.workloads.recorded.Trace") == "vllm-async"
    assert engine_for("harness.workloads.chats.Chats") == PROFILE_ENGINE
    with pytest.raises(ValueError, match=r"No engine is called 'vllm'; closest: "):
        engine_kind("vllm")
