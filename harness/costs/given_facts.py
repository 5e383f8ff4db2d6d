"""Facts of a model by hand, from a file like `scenarios/models/by-hand/facts.yaml`."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from harness.config.schema import STRICT, Count, Positive, fits, one_of
from harness.config.yaml_files import read_yaml
from harness.costs.architectures import Sizes
from harness.costs.config_reader import ConfigReader
from harness.costs.layer_kinds import Mixer

BYTES = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0 + 4 / 128**2,
    "int8": 1.0,
    "int4": 0.5 + 2 / 128,
    "mxfp4": 0.5 + 1 / 32,
    "nvfp4": 0.5 + 1 / 16,
}
"""Of a weight of each format, with its part of the scales."""
Few = Annotated[int, Field(ge=0, le=10_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenFacts:
    """What a file may say. Keys without a default have to be there.

    `parameters` are counted from the sizes unless given. `weight_bytes` of the whole model come in
    the place of those of `weight_format`. Of the `layers`, `windowed_layers` keep KV of the last
    `window_tokens` alone, and `state_layers` none, but `state_bytes` in all of a request. The first
    `dense_layers` of a mixture have an MLP of `intermediate_size`, all others experts of
    `expert_size` beside a shared one of `shared_size`.
    """

    layers: Annotated[int, Field(ge=1, le=10_000)]
    hidden_size: Count
    attention_heads: Count
    intermediate_size: Count
    vocab_size: Count
    context_tokens: Count
    kv_heads: Count | None = None
    head_dim: Count | None = None
    gated_mlp: bool = True
    tied_embeddings: bool = False
    experts: Few = 0
    experts_per_token: Few = 0
    expert_size: Count | None = None
    shared_size: Annotated[int, Field(ge=0)] = 0
    dense_layers: Few = 0
    windowed_layers: Few = 0
    window_tokens: Annotated[int, Field(ge=0)] = 0
    state_layers: Few = 0
    state_bytes: Annotated[int, Field(ge=0)] = 0
    parameters: Count | None = None
    weight_format: Annotated[str, one_of(*BYTES)] = "bf16"
    weight_bytes: Positive | None = None
    kv_number_bytes: Annotated[int, Field(ge=1, le=2)] = 2

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        """Refuse keys that do not go together."""
        if self.windowed_layers + self.state_layers > self.layers:
            raise ValueError(f"windowed_layers and state_layers are more than {self.layers} layers")
        if bool(self.windowed_layers) != bool(self.window_tokens):
            raise ValueError("windowed_layers and window_tokens go together")
        if bool(self.state_layers) != bool(self.state_bytes):
            raise ValueError("state_layers and state_bytes go together")
        if bool(self.experts) != bool(self.experts_per_token) or self.dense_layers > self.layers:
            raise ValueError("experts, experts_per_token and dense_layers do not go together")


def given_facts(path: Path) -> dict[str, Any]:
    """The fields of `ModelFacts`. ValueError with file and key for what no model has."""
    given = fits(read_yaml(path), GivenFacts, str(path))
    heads = given.attention_heads
    if given.head_dim is None and given.hidden_size % heads:
        raise ValueError(f"{path}: {heads} heads cannot share hidden_size, nor is head_dim there")
    size = Sizes(
        config=ConfigReader(path, {"tie_word_embeddings": given.tied_embeddings}),
        layers=given.layers,
        hidden=given.hidden_size,
        heads=heads,
        kv_heads=given.kv_heads or heads,
        head_dim=given.head_dim or given.hidden_size // heads,
        vocab=given.vocab_size,
        context=given.context_tokens,
    )
    width = given.expert_size or given.intermediate_size
    dense = size.mlp(given.intermediate_size, gated=given.gated_mlp)
    mixture = size.mixture(given.experts, given.experts_per_token, width, shared=given.shared_size)
    first = given.dense_layers if given.experts else given.layers
    mlps = [dense if layer < first else mixture for layer in range(given.layers)]
    found = size.model(_mixers(given, size), mlps, width, gated=given.gated_mlp)
    rates = _rates(path, given, found)
    stated = [f"facts of {path.name} were given by hand"]
    return {"name": str(path), "source": str(path), "stated": stated, **found, **rates}


def _mixers(given: GivenFacts, size: Sizes) -> list[Mixer]:
    """Attention to all tokens, then windows, then layers with a state."""
    attention = size.attention()
    windowed = replace(attention, window_tokens=given.window_tokens)
    states = max(1, given.state_layers)
    state = Mixer(parameters=attention.parameters, state_bytes=given.state_bytes // states)
    full = given.layers - given.windowed_layers - given.state_layers
    return [
        *([attention] * full),
        *([windowed] * given.windowed_layers),
        *([state] * given.state_layers),
    ]


def _rates(path: Path, given: GivenFacts, found: dict[str, Any]) -> dict[str, Any]:
    """Parameters and bytes of weights, as given or by the sizes and the format."""
    counted, each = int(found["parameters"]), BYTES[given.weight_format]
    parameters = given.parameters or counted
    linear = sum(_linear(kind) for kind in found["kinds"])
    if parameters < linear:
        raise ValueError(f"{path}: parameters={parameters}, the layers alone have {linear}")
    if given.weight_bytes is not None:
        each = 2.0 - (2.0 * parameters - given.weight_bytes) / linear
        if not 0.0 < each <= 4.0:
            raise ValueError(
                f"{path}: weight_bytes={given.weight_bytes:g} are {each:.2g} a weight of the layers"
            )
    return {
        "parameters": parameters,
        "linear_bytes": each,
        "expert_bytes": each,
        "linear_format": given.weight_format,
        "expert_format": given.weight_format,
        "kv_number_bytes": given.kv_number_bytes,
    }


def _linear(kind: dict[str, Any]) -> int:
    """Matrices of the layers of a kind."""
    mlp = kind["mlp"]
    each = kind["mixer"]["parameters"] + mlp["dense_parameters"] + mlp["shared_parameters"]
    return int(kind["layers"] * (each + mlp["experts"] * mlp["expert_parameters"]))
