"""What a layer of a model consists of: parameters by part, KV of a token, state of a request.

Sizes are counts of numbers, not bytes, of one layer. Knows nothing of files or of GPUs.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from harness.config.schema import STRICT, Count

Size = Annotated[int, Field(ge=0, le=2**62)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """Attention, or a state-space mixer in its place.

    `parameters` are those of matrices; `other_parameters` are biases, norms of queries and keys,
    and convolutions. `attended_width` is the mean width of keys and values of all heads, with which
    a token is compared with an earlier one. `kv_heads` is 0 where nothing is kept per token, and a
    latent shared by all heads is one KV head read by one head (`heads`). `kept_bytes` are kept of
    each token beside those numbers, whatever the format of KV. With `shares_kv` the KV of an
    earlier layer is read and nothing is kept. `window_tokens` limits what is kept; 0 is no limit.
    `state_bytes` are kept per request.
    """

    parameters: Size
    other_parameters: Size = 0
    heads: Size = 0
    kv_heads: Size = 0
    kv_numbers_per_head: Size = 0
    attended_width: Size = 0
    kept_bytes: Size = 0
    shares_kv: bool = False
    window_tokens: Size = 0
    state_bytes: Size = 0

    __pydantic_config__ = STRICT

    def kept_tokens(self, tokens: int) -> int:
        """Tokens of a request of so many whose KV is kept."""
        return min(tokens, self.window_tokens) if self.window_tokens else tokens

    def kv_heads_per_gpu(self, tensor_parallel: int) -> int:
        """KV heads on each GPU of a group; heads too few to split are repeated."""
        return max(1, self.kv_heads // tensor_parallel) if self.kv_heads else 0

    def query_group(self, tensor_parallel: int) -> float:
        """Heads per KV head on one GPU; 1 unless KV heads are shared."""
        kv_heads = max(1, self.kv_heads_per_gpu(tensor_parallel))
        return max(1.0, self.heads / tensor_parallel / kv_heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """Dense MLP, or routed experts with a router and perhaps experts that every token meets."""

    dense_parameters: Size = 0
    shared_parameters: Size = 0
    router_parameters: Size = 0
    experts: Size = 0
    experts_per_token: Size = 0
    expert_parameters: Size = 0
    other_parameters: Size = 0

    __pydantic_config__ = STRICT

    @property
    def routed_parameters(self) -> int:
        """All routed experts."""
        return self.experts * self.expert_parameters

    @property
    def idle_parameters(self) -> int:
        """Routed experts that a token is not sent to."""
        return (self.experts - self.experts_per_token) * self.expert_parameters

    @property
    def matrix_parameters(self) -> int:
        """All matrices."""
        each_token = self.dense_parameters + self.shared_parameters + self.router_parameters
        return each_token + self.routed_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """So many layers that are alike."""

    layers: Count
    mixer: Mixer
    mlp: Mlp
    norm_parameters: Size = 0

    __pydantic_config__ = STRICT

    @property
    def matrix_parameters(self) -> int:
        """Matrices of one of these layers, all experts included."""
        return self.mixer.parameters + self.mlp.matrix_parameters

    @property
    def parameters(self) -> int:
        """Everything in one of these layers."""
        other = self.mixer.other_parameters + self.mlp.other_parameters + self.norm_parameters
        return self.matrix_parameters + other
