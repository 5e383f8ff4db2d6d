import pytest

from harness.costs.model_facts import ModelFacts, load_models, model_facts


def _computed_parameters(facts: ModelFacts) -> float:
    """Matrices of the layers and embeddings; norms and biases are below 0.1%.

    An encoder-decoder attends twice in its decoder, and half of its MLPs are mixtures.
    """
    attention = facts.hidden_size * facts.head_dim * 2 * (facts.attention_heads + facts.kv_heads)
    embeddings = facts.embeddings * facts.vocab_size * facts.hidden_size
    if facts.encoder_layers:
        attentions = (facts.encoder_layers + 2 * facts.layers) * attention
        mixtures = (facts.encoder_layers + facts.layers) / 2
        return attentions + mixtures * (1 + facts.experts) * facts.expert_parameters + embeddings
    layer = attention + facts.experts * facts.expert_parameters
    return float(facts.layers * layer + embeddings)


@pytest.mark.parametrize("name", load_models())
def test_published_parameters_follow_from_the_architecture(name: str) -> None:
    facts = model_facts(name)
    # these learn their positions, and the smaller of them notice their biases
    within = 4e-3 if name.startswith(("opt-", "gpt2-")) else 1e-3
    assert facts.parameters == pytest.approx(_computed_parameters(facts), rel=within)
    assert facts.attention_heads * facts.head_dim == facts.hidden_size


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("opt-1.3b", 1.3),
        ("opt-2.7b", 2.7),
        ("opt-6.7b", 6.7),
        ("opt-13b", 13.0),
        ("opt-66b", 66.0),
        ("opt-175b", 175.0),
        ("llama-7b", 6.7),
        ("llama-13b", 13.0),
        ("llama-30b", 32.5),
        ("llama-65b", 65.2),
        ("Meta-Llama-3-70B", 70.6),
        ("Mistral-7B-v0.1", 7.24),
        ("gpt2-large", 0.774),
        ("gpt2-xl", 1.558),
        ("codegen-2B-mono", 2.78),
        ("bloom-1b1", 1.065),
        ("bloom-3b", 3.0),
        ("bloom-176b", 176.2),
        ("switch-base-16", 1.07),
    ],
)
def test_parameters_are_within_2_percent_of_the_published(name: str, billions: float) -> None:
    assert model_facts(name).parameters / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("Llama-2-7b-hf", 202_375_168), ("vicuna-13b-v1.5", 317_194_240)],
)
def test_matmul_parameters_are_those_of_the_paper(name: str, parameters: int) -> None:
    assert model_facts(name).layer_matmul_parameters == parameters


def test_only_active_experts_count_as_matmuls() -> None:
    mixtral = model_facts("Mixtral-8x7B-v0.1")
    attention = 2 * 4096**2 + 2 * 4096 * 1024
    assert mixtral.layer_matmul_parameters == attention + 4096 * 8 + 2 * 3 * 4096 * 14336


@pytest.mark.parametrize(
    ("name", "tensor_parallel", "block_bytes"),
    [
        ("vicuna-13b-v1.5", 1, 13_107_200),
        ("gpt-neox-20b", 4, 4_325_376),
        ("chatglm3-6b", 1, 458_752),
        ("chatglm3-6b", 4, 229_376),  # two KV heads: repeated beyond two GPUs
        ("Mixtral-8x7B-v0.1", 2, 1_048_576),
    ],
)
def test_kv_bytes_are_those_of_measured_blocks(
    name: str, tensor_parallel: int, block_bytes: int
) -> None:
    assert 16 * model_facts(name).kv_bytes_per_gpu(tensor_parallel) == block_bytes


@pytest.mark.parametrize("name", load_models())
def test_a_stand_in_has_the_same_architecture(name: str) -> None:
    facts = model_facts(name)
    if facts.same_architecture_as:
        other = model_facts(facts.same_architecture_as)
        for field in ("layers", "hidden_size", "kv_heads", "intermediate_size", "parameters"):
            assert getattr(facts, field) == getattr(other, field)
