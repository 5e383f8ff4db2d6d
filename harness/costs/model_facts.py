"""Published facts of the models: what memory, FLOPs and context follow from."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from harness.costs.model_config import config_facts, is_config, norm_parameters
from harness.paths import PROFILES
from harness.schema import STRICT, Count, fits, read_named

MODELS = PROFILES / "models.json"
BYTES_PER_NUMBER = 2  # fp16 weights and KV, as every engine here runs them


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model's architecture. `parameters` counts all experts and the embeddings.

    `same_architecture_as` names the model whose measurements stand in where this one has none;
    empty if there is none. `embeddings` counts the matrices of vocabulary x hidden size: one if
    input and output share it. An encoder-decoder has `encoder_layers` beside its decoder's
    `layers`; only the latter are costed.
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

    __pydantic_config__ = STRICT

    def __post_init__(self) -> None:
        """Refuse parts that do not go together."""
        if self.experts_per_token > self.experts:
            raise ValueError(f"experts_per_token is more than the {self.experts} experts")
        if self.attention_heads % self.kv_heads:
            raise ValueError(f"{self.kv_heads} kv_heads cannot share {self.attention_heads} heads")

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers, whole model."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES_PER_NUMBER

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights, whole model."""
        return self.parameters * BYTES_PER_NUMBER

    @property
    def expert_parameters(self) -> int:
        """Sizes of the MLP matrices of one expert of one layer; of the MLP if it is dense."""
        return (3 if self.gated_mlp else 2) * self.hidden_size * self.intermediate_size

    @property
    def layer_matmul_parameters(self) -> int:
        """Sizes of the matrices one token meets in a layer.

        Of a mixture, only the experts a token is sent to, and the router.
        """
        idle = (self.experts - self.experts_per_token) * self.expert_parameters
        return self.layer_parameters - idle

    @property
    def layer_parameters(self) -> int:
        """Sizes of all matrices of a layer that are multiplied: `c` of arXiv 2503.16893 eq. 1-2."""
        heads = 2 * self.attention_heads + 2 * self.kv_heads
        attention = self.hidden_size * heads * self.head_dim
        router = self.hidden_size * self.experts if self.experts > 1 else 0
        return attention + router + self.experts * self.expert_parameters

    def prefill_flops(self, requests: ArrayLike, longest_tokens: ArrayLike) -> NDArray[np.float64]:
        """FLOPs of a padded prefill by arXiv 2503.16893 eq. 1, summed over its shards.

        The paper counts a multiply-add as one. Scalars or arrays that broadcast; same shape back.
        """
        count = np.asarray(requests, np.float64)
        longest = np.asarray(longest_tokens, np.float64)
        attention = 2 * count * self.hidden_size * longest**2
        return self.layers * (self.layer_matmul_parameters * count * longest + attention)

    def decode_flops(self, requests: ArrayLike, context_tokens: ArrayLike) -> NDArray[np.float64]:
        """FLOPs of a decode iteration by arXiv 2503.16893 eq. 2, summed over the shards.

        `context_tokens` is the total over the requests. Counted and shaped as in `prefill_flops`.
        """
        count = np.asarray(requests, np.float64)
        attention = 2 * self.hidden_size * np.asarray(context_tokens, np.float64)
        return self.layers * (self.layer_matmul_parameters * count + attention)

    def kv_bytes_per_gpu(self, tensor_parallel: int) -> int:
        """KV bytes of one token on each GPU of a group; heads too few to split are repeated."""
        heads = max(1, self.kv_heads // tensor_parallel)
        return self.kv_bytes_per_token // self.kv_heads * heads


@cache
def load_models() -> Mapping[str, ModelFacts]:
    """All known models by name. Raises ValueError where the file says what no model is."""
    return read_named(MODELS, ModelFacts)


def model_of(service: str) -> str:
    """The model that a service runs.

    Two services of a run may run the same model: `model~tag` is one of them.
    """
    return service.partition("~")[0]


def model_facts(service: str) -> ModelFacts:
    """Facts of a service's model: a name in models.json, or the path of a Hugging Face config.

    Raises ValueError, with the closest names, if it is unknown, and for a config that is damaged.
    """
    models, name = load_models(), model_of(service)
    if is_config(name):
        return _of_config(name)
    if name not in models:
        raise ValueError(unknown_name("model", name, models))
    return models[name]


@cache
def _of_config(name: str) -> ModelFacts:
    """Facts from a config; nobody has measured such a model, so its costs are the roofline's."""
    stated = config_facts(name)
    where = str(stated["name"])
    facts = fits({**stated, "parameters": 1}, ModelFacts, where)
    matrices = facts.layers * facts.layer_parameters
    embedded = facts.embeddings * facts.vocab_size * facts.hidden_size
    counted = matrices + embedded + norm_parameters(stated)
    return fits({**stated, "parameters": counted}, ModelFacts, where)


def unknown_name(kind: str, name: str, known: Mapping[str, object]) -> str:
    """Sentence for a name that is not in a table: the name, and what was perhaps meant."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    others = f"known: {', '.join(sorted(known))}" if known else "none is known"
    meant = f"closest: {', '.join(close)}" if close else others
    return f"No {kind} is called {name!r}; {meant}."
