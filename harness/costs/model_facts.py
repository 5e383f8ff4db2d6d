"""Published facts of the models: what memory, FLOPs and context follow from."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from harness.config.names import unknown_name
from harness.config.paths import PROFILES, ROOT
from harness.config.schema import STRICT, Count, Positive, fits, read_named
from harness.costs.layer_kinds import LayerKind, Mixer, Mlp
from harness.costs.model_config import config_facts
from harness.costs.model_names import CONFIG, config_path, model_of

MODELS = PROFILES / "models.json"
CONFIGS = ROOT / "scenarios" / "models"
"""Folders of configs, which are named by their paths."""
LISTED = "the names of harness/profiles/models.json"
WINDOW_AT_TOKENS = 4096  # of a request, at which sliding windows count unless costs say otherwise
BYTES_PER_NUMBER = 2  # fp16 weights and KV, as every engine here runs them

Format = Literal["bf16", "fp8", "fp8_block", "nvfp4", "mxfp4", "int4", "int8"]
"""Number formats of weights: `bf16` is any of 16 bits, `fp8` has a scale per tensor or channel,
`fp8_block` one per 128 x 128 weights, `nvfp4` one per 16, `mxfp4` one per 32. `int4` is 4 bits or
fewer."""


@dataclass(frozen=True)
class ModelFacts:
    """One model's architecture. `parameters` counts all experts and the embeddings.

    `same_architecture_as` names the model whose measurements stand in where this one has none;
    empty if there is none. `embeddings` counts the matrices of vocabulary x hidden size: one if
    input and output share it. An encoder-decoder has `encoder_layers` beside its decoder's
    `layers`; only the latter are costed. `kinds` are its layers where they differ or have parts
    beyond attention and one MLP; empty is `layers` of the other fields. `linear_bytes` and
    `expert_bytes` are those of a weight in linear layers and in routed experts, `kv_number_bytes`
    those of a number in KV; `weight_group` weights of a row share a scale (0: all, or none). Costs
    are linear in tokens, so windows count as in requests of `window_at_tokens`. States of layers
    without KV are set aside for `state_requests` running requests. `stated` are the assumptions of
    whatever told these facts.
    """

    name: str
    layers: Count
    hidden_size: Count
    attention_heads: Count
    kv_heads: Count
    head_dim: Count
    intermediate_size: Count
    gated_mlp: bool
    vocab_size: Count
    max_context_tokens: Count
    parameters: Count
    source: str
    experts: Count = 1
    experts_per_token: Count = 1
    same_architecture_as: str = ""
    embeddings: Annotated[int, Field(ge=1, le=2)] = 2
    encoder_layers: Annotated[int, Field(ge=0)] = 0
    kinds: tuple[LayerKind, ...] = ()
    linear_bytes: Positive = float(BYTES_PER_NUMBER)
    expert_bytes: Positive = float(BYTES_PER_NUMBER)
    kv_number_bytes: Count = BYTES_PER_NUMBER
    linear_format: Format = "bf16"
    expert_format: Format = "bf16"
    weight_group: Annotated[int, Field(ge=0)] = 0
    norms_across_heads: bool = False
    state_requests: Annotated[int, Field(ge=0)] = 0
    window_at_tokens: Count = WINDOW_AT_TOKENS
    stated: tuple[str, ...] = ()

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        """Refuse parts that do not go together."""
        if self.experts_per_token > self.experts:
            raise ValueError(f"experts_per_token is more than the {self.experts} experts")
        if self.attention_heads % self.kv_heads:
            raise ValueError(f"{self.kv_heads} kv_heads cannot share {self.attention_heads} heads")

    @cached_property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The layers, alike ones together."""
        if self.kinds:
            return self.kinds
        heads = self.attention_heads + self.kv_heads
        attention = Mixer(
            parameters=2 * self.hidden_size * heads * self.head_dim,
            heads=self.attention_heads,
            kv_heads=self.kv_heads,
            kv_numbers_per_head=2 * self.head_dim,
            attended_width=self.attention_heads * self.head_dim,
        )
        mlp = Mlp(dense_parameters=self.expert_parameters)
        if self.experts > 1:
            mlp = Mlp(
                router_parameters=self.hidden_size * self.experts,
                experts=self.experts,
                experts_per_token=self.experts_per_token,
                expert_parameters=self.expert_parameters,
            )
        return (LayerKind(layers=self.layers, mixer=attention, mlp=mlp),)

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers, whole model, windows as stated."""
        return self.kv_bytes_per_gpu(1)

    def kv_bytes_per_gpu(self, tensor_parallel: int) -> int:
        """KV bytes of one token on each GPU of a group; heads too few to split are repeated."""
        kept_bytes = self._kept_bytes(tensor_parallel, self.window_at_tokens)
        return -(-kept_bytes // self.window_at_tokens)

    def kv_bytes(self, tokens: int) -> int:
        """Keys and values of one request of so many tokens, whole model; windows cap them."""
        return self._kept_bytes(1, tokens)

    def _kept_bytes(self, tensor_parallel: int, tokens: int) -> int:
        """Bytes that a request of so many tokens keeps on each GPU of a group."""
        total = 0
        for kind in self.layer_kinds:
            mixer = kind.mixer
            if not mixer.shares_kv:
                heads = mixer.kv_heads_per_gpu(tensor_parallel)
                numbers_bytes = heads * mixer.kv_numbers_per_head * self.kv_number_bytes
                each = numbers_bytes + mixer.kept_bytes
                total += kind.layers * each * mixer.kept_tokens(tokens)
        return total

    @property
    def state_bytes(self) -> int:
        """State of one request in layers that keep no KV, whole model."""
        return sum(kind.layers * kind.mixer.state_bytes for kind in self.layer_kinds)

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of all weights, whole model. Embeddings, routers, norms and biases take 2 bytes."""
        layers = [(kind.layers, kind.mixer, kind.mlp) for kind in self.layer_kinds]
        linear = sum(
            count * (mixer.parameters + mlp.dense_parameters + mlp.shared_parameters)
            for count, mixer, mlp in layers
        )
        routed = sum(count * mlp.routed_parameters for count, _, mlp in layers)
        saved = linear * (BYTES_PER_NUMBER - self.linear_bytes)
        saved += routed * (BYTES_PER_NUMBER - self.expert_bytes)
        return self.parameters * BYTES_PER_NUMBER - round(saved)

    @property
    def expert_parameters(self) -> int:
        """Sizes of the MLP matrices of one expert of one layer; of the MLP if it is dense."""
        return (3 if self.gated_mlp else 2) * self.hidden_size * self.intermediate_size

    @property
    def matmul_parameters(self) -> int:
        """Matrices of all layers that one token meets: of experts those that it is sent to."""
        return sum(
            kind.layers * (kind.matrix_parameters - kind.mlp.idle_parameters)
            for kind in self.layer_kinds
        )

    @property
    def layer_matmul_parameters(self) -> int:
        """`matmul_parameters` of the mean layer."""
        return self.matmul_parameters // self.layers

    @property
    def layer_parameters(self) -> int:
        """Matrices of the mean layer that are multiplied: `c` of arXiv 2503.16893 eq. 1-2."""
        total = sum(kind.layers * kind.matrix_parameters for kind in self.layer_kinds)
        return total // self.layers

    @property
    def attended_width(self) -> float:
        """Width of attention (`Mixer.attended_width`) in all layers, windows as stated.

        Of the pairs of tokens of a prompt, a window that holds the share r of it keeps r (2 - r).
        """
        total = 0.0
        for kind in self.layer_kinds:
            share = kind.mixer.kept_tokens(self.window_at_tokens) / self.window_at_tokens
            total += kind.layers * kind.mixer.attended_width * share * (2.0 - share)
        return total

    @property
    def layer_attended_width(self) -> int:
        """`attended_width` of the mean layer: `h` of arXiv 2503.16893 eq. 1-2."""
        return int(self.attended_width) // self.layers

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What costs and KV of the model assume, in sentences."""
        windows = sum(kind.layers for kind in self.kinds if kind.mixer.window_tokens)
        states = sum(kind.layers for kind in self.kinds if kind.mixer.state_bytes)
        found = list(self.stated)
        if windows:
            tokens = sorted({kind.mixer.window_tokens for kind in self.kinds} - {0})
            found.append(
                f"{windows} of {self.layers} layers keep KV of the last "
                f"{' or '.join(f'{each:,}' for each in tokens)} tokens; KV, its reading and "
                f"attention are counted as in requests of {self.window_at_tokens:,} tokens "
                "(hardware.window_at_tokens)"
            )
        if states:
            held = "is not counted in KV"
            if self.state_requests:
                held = f"is set aside in KV for {self.state_requests:,} running requests"
            found.append(
                f"the state of {states} layers without KV, {self.state_bytes / 1e6:.1f} MB a "
                f"request, {held}, in pages of vLLM without prefix caching"
            )
        return tuple(found)


@cache
def load_models() -> Mapping[str, ModelFacts]:
    """All known models by name. Raises ValueError where the file says what no model is."""
    return read_named(MODELS, ModelFacts)


def model_facts(service: str) -> ModelFacts:
    """Facts of a service's model: a name in models.json, or the path of what tells them.

    `config_path` says which paths. ValueError for a name that is neither.
    """
    models = load_models()
    if service in models:
        return models[service]
    name = model_of(service)
    if name != service and Path(service).is_dir():
        name = service
    if name in models:
        return models[name]
    path = config_path(name)
    if path is not None:
        return _of_config(path)
    if "/" in name:
        close = difflib.get_close_matches(name.rpartition("/")[2], models, n=3, cutoff=0.4)
        known = f"; known short names close to it: {', '.join(close)}" if close else ""
        raise ValueError(
            f"{name} is no file here and nothing is downloaded: give the path of the model's "
            f"{CONFIG}{known}"
        )
    if (CONFIGS / name).is_dir():
        raise ValueError(f"No model is called {name!r}: give {CONFIGS.relative_to(ROOT) / name}")
    raise ValueError(unknown_name("model", name, models, f"{LISTED} or the path of a {CONFIG}"))


@cache
def _of_config(path: Path) -> ModelFacts:
    """Facts from a config; such a model was not measured, so its costs are the roofline's."""
    return fits(config_facts(path), ModelFacts, str(path))


def matrices_of(facts: ModelFacts) -> tuple[object, ...]:
    """The matrices of a model, by which its iterations take their time; norms are left out."""
    return (
        tuple(replace(kind, norm_parameters=0) for kind in facts.layer_kinds),
        facts.hidden_size,
        facts.vocab_size,
        facts.linear_bytes,
        facts.expert_bytes,
        facts.kv_number_bytes,
    )


def shape_of(facts: ModelFacts) -> tuple[object, ...]:
    """What two models have in common whose iterations cost the same."""
    return (
        facts.layers,
        facts.hidden_size,
        facts.attention_heads,
        facts.kv_heads,
        facts.weight_bytes,
    )
