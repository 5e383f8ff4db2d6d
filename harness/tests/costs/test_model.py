import json
import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from harness.config.paths import PROFILES
from harness.costs.engine_kinds import engine_kind
from harness.costs.iteration import (
    iteration_seconds,
)
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import load_models
from harness.costs.profiles import NOTHING_RECEIVED, Received, read_profiles
from harness.costs.uncertainty import DrawnCosts
from harness.interface.entities import ServiceId, Work
from harness.tools.fidelity.lines import sources

(SHARED,) = sources()["shares"]  # the folder of what was measured on shares of the SMs
VICUNA = ServiceId("vicuna-13b-v1.5")
SIZES = (1, 2, 4)


def _costs(
    gpu: str = "A100-80G", memory_share: float = 0.9, profile_dir: str = "a100_80g_vllm_0_3"
) -> ProfileCosts:
    return ProfileCosts(gpu=gpu, profile_dir=profile_dir, memory_share=memory_share, parts=PARTS)


COSTS = _costs()


@pytest.mark.parametrize("name", load_models())
@pytest.mark.parametrize("size", SIZES)
def test_more_work_takes_longer(name: str, size: int) -> None:
    """Up to 0.1 ms: fits of noisy rows may fall by less."""
    table = COSTS.table(name, size)
    decodes = [iteration_seconds(table, 0, 0, 0, 0.0, n, n * 200, 300) for n in range(1, 600)]
    prompts = [iteration_seconds(table, n, n * 21, n * 30, n * 9e2, 0, 0, 0) for n in range(1, 200)]
    lengths = [
        iteration_seconds(table, 2, 2 * s, 2 * s, 2.0 * s * s, 0, 0, 0) for s in range(1, 2000)
    ]
    contexts = [iteration_seconds(table, 0, 0, 0, 0.0, 32, 32 * s, s) for s in range(1, 1000)]
    for seconds in (decodes, prompts, lengths, contexts):
        assert np.diff(seconds).min() > -1e-4
        assert min(seconds) > 0.002


def test_more_gpus_are_faster_for_large_batches_only_in_proportion() -> None:
    """SamuLLM sec. 1: twice the GPUs do not halve the time."""
    work = Work(decode_requests=256, context_tokens=256 * 300, longest_tokens=400)
    seconds = [COSTS.iteration_s(VICUNA, size, work) for size in SIZES]
    assert seconds[0] > seconds[1] > seconds[2] > seconds[0] / 4


def test_labels_say_where_costs_come_from() -> None:
    assert COSTS.label(VICUNA, 2) == "measured"
    assert COSTS.label("WizardLM-13B-V1.2", 2) == "measured on Llama-2-13b-hf"
    assert COSTS.label("Llama-2-7b-hf", 1) == "measured on Llama-2-7b-chat-hf"
    assert COSTS.label("Llama-2-70b-chat-hf", 2) == "roofline"
    elsewhere = _costs(gpu="H100-80G", profile_dir="roofline")
    assert elsewhere.label(VICUNA, 1) == "roofline"


def test_a_load_of_its_own_comes_before_that_of_the_stand_in() -> None:
    assert COSTS.load_s(ServiceId("WizardLM-13B-V1.2"), 2) == 50.4923
    assert COSTS.load_s(ServiceId("Llama-2-13b-chat-hf"), 1) == 10.3878
    assert COSTS.load_s(ServiceId("stablelm-tuned-alpha-7b"), 4) == 51.3686


def test_kv_blocks_are_measured_ones_and_move_with_the_memory_share() -> None:
    assert COSTS.kv_blocks(VICUNA, 1) == 3727
    # 0.1 x 80 GiB / 13,107,200 bytes = 655.36 blocks
    assert _costs(memory_share=1.0).kv_blocks(VICUNA, 1) == 3727 + 655
    assert _costs(memory_share=0.1).kv_blocks(VICUNA, 1) == 0
    assert COSTS.block_tokens(VICUNA) == 16


def test_a_load_is_its_start_and_its_weights() -> None:
    """At the calibrated rate of reading; a whole load that was measured keeps its sum."""
    weights_s = {}
    for name in (VICUNA, ServiceId("Llama-2-70b-chat-hf")):
        start_s, load_s = COSTS.start_s(name, 4), COSTS.load_s(name, 4)
        assert 0 < start_s < load_s
        weights_s[name] = load_s - start_s
    sizes = [load_models()[name].weight_bytes for name in weights_s]
    first, second = weights_s.values()
    assert first / second == pytest.approx(sizes[0] / sizes[1])


def test_intake_is_of_the_kind_of_engine() -> None:
    """A server takes in each token; terms are pickled, drawn and planned with."""
    prompts = np.array([0, 10, 1000])
    assert COSTS.intake_s(VICUNA, prompts).tolist() == [0.0, 0.0, 0.0]
    values = {"intake_s": 0.002, "intake_token_s": 1e-5}
    costs = ProfileCosts(
        gpu="A100-80G",
        profile_dir="a100_80g_vllm_0_3",
        memory_share=0.9,
        parts=PARTS,
        engine=engine_kind("vllm-async").with_values(values),
    )
    for same in (costs, pickle.loads(pickle.dumps(costs)), DrawnCosts(costs, 1, 0)):
        assert same.intake_s(VICUNA, prompts) == pytest.approx([0.002, 0.0021, 0.012])
    assert costs.with_parts(PARTS[:1]).intake_s(VICUNA, prompts)[0] == 0.002


def test_taking_a_request_in_is_of_the_profile_or_of_the_kind_of_engine(tmp_path: Path) -> None:
    """A profile has its own seconds, kernels those of the kind; a roofline and a bare profile none.

    They are scaled, pickled, and not drawn.
    """
    source = PROFILES / "h200-141g_vllm" / "random-1b.json"
    content = json.loads(source.read_text())
    content["tensor_parallel"]["1"] |= {"received_s": [0.0006, 0.0001]}
    (tmp_path / source.name).write_text(json.dumps(content))
    profile = read_profiles(tmp_path)["random-1b", 1]
    assert profile.received_s == (0.0006, 0.0001)

    def received_s(
        service: str, folder: Path, *, scale: float = 1.0, kind: str = "sync"
    ) -> Received:
        engine = engine_kind(f"vllm-{kind}")
        costs = ProfileCosts(
            gpu="H200-141G",
            profile_dir=str(folder),
            memory_share=0.9,
            parts=PARTS,
            engine=engine.with_values({"received_s": 0.0008}),
            scale_seconds=scale,
        )
        name, copy = ServiceId(service), pickle.loads(pickle.dumps(costs))
        found = [each.received_s(name, 1) for each in (costs, copy, DrawnCosts(costs, 1, 0))]
        assert len(set(found)) == 1
        return found[0]

    assert received_s("random-1b", tmp_path) == (0.0006, 0.0001)
    assert received_s("random-1b", tmp_path, scale=2.0) == (0.0012, 0.0002)
    assert received_s("random-1b", source.parent) == NOTHING_RECEIVED
    assert received_s(VICUNA, tmp_path) == (0.0008, 0.0008)
    assert received_s(VICUNA, tmp_path, scale=0.5) == (0.0004, 0.0004)
    assert received_s(VICUNA, tmp_path, kind="0.3-eager") == NOTHING_RECEIVED
    assert COSTS.received_s(VICUNA, 1) == NOTHING_RECEIVED


def test_starting_and_reading_may_be_given() -> None:
    """Each takes the place of what was measured, and the other stays."""
    weight_bytes = load_models()[VICUNA].weight_bytes
    measured_s = COSTS.load_s(VICUNA, 2)
    starts_s = COSTS.start_s(VICUNA, 2)

    def load_s(start_s: float | None, rate: float | None, replicas: int = 1) -> float:
        costs = ProfileCosts(
            gpu="A100-80G",
            profile_dir="a100_80g_vllm_0_3",
            memory_share=0.9,
            parts=PARTS,
            replica_start_s=0.5,
            engine_start_s=start_s,
            weights_bytes_per_s=rate,
        )
        assert pickle.loads(pickle.dumps(costs)).load_s(VICUNA, 2) == costs.load_s(VICUNA, 2)
        assert costs.start_s(VICUNA, 2) == (starts_s if start_s is None else start_s)
        return costs.load_s(VICUNA, 2, replicas=replicas)

    assert load_s(None, None) == measured_s
    assert load_s(0.0, None) == pytest.approx(measured_s - starts_s)
    assert load_s(3.0, weight_bytes / 2, replicas=3) == pytest.approx(3.0 + 2.0 + 1.0)
    assert load_s(None, weight_bytes / 2) == pytest.approx(starts_s + 2.0)
    for start_s, rate in ((-1.0, None), (np.inf, None), (None, 0.0), (None, np.inf)):
        with pytest.raises(ValueError, match=r"engine_start_s is|weights_bytes_per_s is"):
            load_s(start_s, rate)


def _given(kv_bytes: int | None, block_tokens: int | None) -> ProfileCosts:
    return ProfileCosts(
        gpu="A100-40G",
        profile_dir="roofline",
        memory_share=0.9,
        parts=PARTS,
        kv_bytes=kv_bytes,
        block_tokens=block_tokens,
    )


def test_kv_bytes_and_block_size_may_be_given() -> None:
    """OPT-13B with 12 GB of KV on an A100-40G: 819,200 bytes a token."""
    opt = ServiceId("opt-13b")
    per_token = 2 * 40 * 5120 * 2
    given = _given(12 * 10**9, None)
    assert given.kv_blocks(opt, 1) == 12 * 10**9 // (per_token * 16)
    assert given.kv_bytes([opt], 1) == given.kv_blocks(opt, 1) * per_token * 16
    assert _given(12 * 10**9, 32).kv_blocks(opt, 1) == 12 * 10**9 // (per_token * 32)
    # 40 GiB less 26 GB of weights do not leave 20 GB.
    assert _given(20 * 10**9, None).kv_blocks(opt, 1) == 0
    by_share = _given(None, None).kv_blocks(opt, 1)
    assert (_given(None, 32).kv_blocks(opt, 1), _given(None, 32).block_tokens(opt)) == (
        by_share // 2,
        32,
    )
    assert pickle.loads(pickle.dumps(given)).kv_blocks(opt, 1) == given.kv_blocks(opt, 1)
    with pytest.raises(ValueError, match=r"hardware.kv_bytes is 0, it must be at least 1, or null"):
        _given(0, None)


def test_services_of_a_group_leave_less_kv_to_each_other() -> None:
    """Beside the weights of both: as the one that leaves less says."""
    llama = ServiceId("Llama-2-7b-hf")
    facts = {name: load_models()[name] for name in (VICUNA, llama)}
    alone = {s: COSTS.kv_bytes([s], 1) for s in (VICUNA, llama)}
    assert alone[VICUNA] == 3727 * 16 * facts[VICUNA].kv_bytes_per_token
    expected = min(
        alone[VICUNA] - facts[llama].weight_bytes, alone[llama] - facts[VICUNA].weight_bytes
    )
    assert COSTS.kv_bytes([VICUNA, llama], 1) == COSTS.kv_bytes([llama, VICUNA], 1) == expected > 0
    assert COSTS.kv_bytes([VICUNA, ServiceId("Llama-2-70b-chat-hf")], 1) == 0


@pytest.mark.parametrize(
    ("name", "size"), [("Llama-2-70b-chat-hf", 1), ("Mixtral-8x7B-v0.1", 1), (VICUNA, 3)]
)
def test_no_kv_where_weights_do_not_fit_or_heads_do_not_split(name: str, size: int) -> None:
    assert COSTS.kv_blocks(ServiceId(name), size) == 0


def test_a_share_of_the_gpu_stretches_all_but_the_fixed_cost() -> None:
    work = Work(decode_requests=256, context_tokens=51_200, longest_tokens=300)
    whole_s = COSTS.iteration_s(VICUNA, 1, work)
    fixed_s = float(COSTS.table(VICUNA, 1).shared_s[0])
    half_s = COSTS.iteration_s(VICUNA, 1, work, gpu_share=0.5)
    assert half_s == pytest.approx(fixed_s + 2 * (whole_s - fixed_s))


def test_a_share_is_as_slow_as_it_was_measured() -> None:
    """At a measured share and number of requests the stored ratio, between them in between."""
    costs = ProfileCosts(gpu="A100-80G", profile_dir=SHARED, memory_share=0.9, parts=PARTS)
    llama = ServiceId("llama-13b")
    shares = read_profiles(PROFILES / SHARED)["llama-13b", 1].sm_shares
    assert shares is not None

    def slowdown(work: Work, share: float) -> float:
        seconds = [costs.iteration_s(llama, 1, work, gpu_share=part) for part in (share, 1.0)]
        return seconds[0] / seconds[1]

    prompts = Work(4, 512, 512, 4 * 128.0**2)
    decodes = Work(decode_requests=32, context_tokens=8192, longest_tokens=300)
    assert slowdown(prompts, 0.5) == pytest.approx(1.81651)
    assert slowdown(decodes, 0.3) == pytest.approx(1.48657)
    assert slowdown(decodes, 0.15) == pytest.approx(2 * 1.48657)
    between = sorted(slowdown(prompts, share) for share in (0.5, 0.55, 0.6))
    assert between[1] == pytest.approx((between[0] + between[2]) / 2)
    both = replace(decodes, prefill_requests=4, prefill_tokens=512, prefill_padded_tokens=512)
    assert slowdown(decodes, 0.3) < slowdown(both, 0.3) < slowdown(prompts, 0.3)
    assert shares.at("decode", 2**12, 1.0) == 1.0


def test_errors_are_sentences_with_the_value() -> None:
    with pytest.raises(ValueError, match="memory share lies between 0 and 1, not 90"):
        _costs(memory_share=90)
    with pytest.raises(ValueError, match="not 'sampel'"):
        COSTS.with_parts(("sampel",))
    with pytest.raises(ValueError, match="folder of cost profiles"):
        ProfileCosts(gpu="A100-80G", profile_dir="a100", memory_share=0.9, parts=PARTS)
    with pytest.raises(ValueError, match="No model is called 'gpt-5'"):
        COSTS.table("gpt-5", 1)
    with pytest.raises(ValueError, match="up to 1024 requests"):
        COSTS.iteration_s(VICUNA, 1, Work(decode_requests=1025))


def test_every_profile_states_source_and_error() -> None:
    profiles = read_profiles(PROFILES / "a100_80g_vllm_0_3")
    assert sum(1 for profile in profiles.values() if profile.decode) == 46
    for profile in profiles.values():
        assert profile.source.startswith("puddingfjz/vllm@de1677d")
        assert not profile.decode or set(profile.error) >= {"decode_median", "prefill_p95"}


def test_a_config_of_measured_matrices_has_measured_costs(tmp_path: Path) -> None:
    """The published config of Llama-2-7B, and one of a layer less."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "torch_dtype": "float16",
        "tie_word_embeddings": False,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    work = Work(decode_requests=8, context_tokens=8 * 300, longest_tokens=400)
    assert COSTS.label(str(path), 1) == "measured on Llama-2-7b-chat-hf"
    assert COSTS.iteration_s(ServiceId(str(path)), 1, work) == COSTS.iteration_s(
        ServiceId("Llama-2-7b-chat-hf"), 1, work
    )
    other = tmp_path / "other" / "config.json"
    other.parent.mkdir()
    other.write_text(json.dumps(config | {"num_hidden_layers": 31}), encoding="utf-8")
    assert COSTS.label(str(other), 1) == "roofline"


@pytest.mark.parametrize("factor", [1.5, 0.25])
def test_seconds_of_prompts_are_scaled_and_those_of_decodes_are_not(factor: float) -> None:
    costs = partial(
        ProfileCosts, gpu="A100-40G-PCIe", profile_dir="roofline", memory_share=0.9, parts=PARTS
    )
    plain, other = costs(), costs(scale_seconds=2.0, scale_prompt_seconds=factor)
    model, prompts = ServiceId("Llama-2-7b-hf"), Work(2, 300, 300, 5e4)
    decodes = Work(decode_requests=9, context_tokens=900)
    both = replace(prompts, decode_requests=9, context_tokens=900)
    seconds = [other.iteration_s(model, 1, work) for work in (decodes, prompts, both)]
    decode_s, prompt_s, both_s = seconds
    assert decode_s == 2.0 * plain.iteration_s(model, 1, decodes)
    assert prompt_s == pytest.approx(2.0 * factor * plain.iteration_s(model, 1, prompts))
    assert max(decode_s, prompt_s) < both_s < decode_s + prompt_s
    assert other.label(model, 1).endswith(f"x 2; seconds of iterations for prompts x {factor}")
    with pytest.raises(ValueError, match=r"hardware.scale_prompt_seconds is -1.0, it must be"):
        costs(scale_prompt_seconds=-1.0)


def test_seconds_of_iterations_are_scaled_and_loads_are_not() -> None:
    costs = partial(
        ProfileCosts, gpu="A100-40G-PCIe", profile_dir="roofline", memory_share=0.9, parts=PARTS
    )
    plain, slow = costs(), costs(scale_seconds=2.5)
    model = ServiceId("Llama-2-7b-hf")
    for work in (Work(2, 300, 300, 5e4), Work(decode_requests=9, context_tokens=900)):
        slower_s = slow.iteration_s(model, 1, work)
        assert slower_s == pytest.approx(2.5 * plain.iteration_s(model, 1, work))
    assert slow.load_s(model, 1) == plain.load_s(model, 1)
    assert slow.kv_blocks(model, 1) == plain.kv_blocks(model, 1)
    assert slow.label(model, 1) == plain.label(model, 1) + "; seconds of iterations x 2.5"
    with pytest.raises(ValueError, match=r"hardware.scale_seconds is 0.0, it must be above 0"):
        costs(scale_seconds=0.0)
