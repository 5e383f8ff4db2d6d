"""A model's layers by kind, and what the families of models have in common.

The families are functions of `dense_models.py` and `mixture_models.py`. Each follows the model's
class in `transformers`, its defaults included, and is tested against that class's parameters.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.costs.config_reader import ConfigReader
from harness.costs.layer_kinds import LayerKind, Mixer, Mlp

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
GRANITE_MULTIPLIERS = (
    "attention_multiplier",
    "embedding_multiplier",
    "logits_scaling",
    "residual_multiplier",
)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A model as its family has it. `outside_parameters` are in no layer and no embedding."""

    hidden_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    intermediate_size: int
    gated_mlp: bool
    vocab_size: int
    max_context_tokens: int
    tied: bool
    kinds: tuple[LayerKind, ...]
    embedding_size: int
    outside_parameters: int


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What every family has, whatever its keys are called."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int

    def attention(
        self, *, qkv_bias: bool = False, out_bias: bool = False, other: int = 0, window: int = 0
    ) -> Mixer:
        """Attention with heads of keys and values; `other` are norms of queries and keys."""
        wide, kept = self.heads * self.head_dim, self.kv_heads * self.head_dim
        biases = qkv_bias * (wide + 2 * kept) + out_bias * self.hidden
        return Mixer(
            parameters=2 * self.hidden * (wide + kept),
            other_parameters=biases + other,
            heads=self.heads,
            kv_heads=self.kv_heads,
            kv_numbers_per_head=2 * self.head_dim,
            attended_width=wide,
            window_tokens=window,
        )

    def mlp(self, width: int, *, gated: bool, bias: bool = False) -> Mlp:
        """A dense MLP of three matrices, or two if it is not gated."""
        up = 2 if gated else 1
        return Mlp(
            dense_parameters=(up + 1) * self.hidden * width,
            other_parameters=bias * (up * width + self.hidden),
        )

    def mixture(
        self, experts: int, per_token: int, width: int, *, shared: int = 0, other: int = 0
    ) -> Mlp:
        """Gated experts of a width, beside shared ones of a width in total."""
        return Mlp(
            shared_parameters=3 * self.hidden * shared,
            router_parameters=self.hidden * experts,
            experts=experts,
            experts_per_token=per_token,
            expert_parameters=3 * self.hidden * width,
            other_parameters=other,
        )

    def model(
        self,
        mixers: Iterable[Mixer],
        mlps: Iterable[Mlp],
        *,
        norm_parameters: int,
        width: int,
        tied: bool,
        gated: bool = True,
        outside: int | None = None,
        embedding_size: int | None = None,
    ) -> Architecture:
        """A mixer and an MLP for each layer; alike ones become a kind. Outside is one norm."""
        counted = Counter(zip(mixers, mlps, strict=True))
        return Architecture(
            hidden_size=self.hidden,
            attention_heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            intermediate_size=width,
            gated_mlp=gated,
            vocab_size=self.vocab,
            max_context_tokens=self.context,
            tied=tied,
            kinds=tuple(
                LayerKind(layers=count, mixer=mixer, mlp=mlp, norm_parameters=norm_parameters)
                for (mixer, mlp), count in counted.items()
            ),
            embedding_size=embedding_size or self.hidden,
            outside_parameters=self.hidden if outside is None else outside,
        )


def sizes(
    config: ConfigReader,
    *,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    vocab: int | None = None,
    context: int | None = None,
) -> Sizes:
    """By the keys that most families share; what is absent has the class's default, given here.

    As many KV heads as heads, and an equal part of the hidden size, unless class or config differ.
    """
    hidden = config.whole("hidden_size")
    heads = config.whole("num_attention_heads", default=heads)
    return Sizes(
        layers=config.layers("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=config.whole("num_key_value_heads", default=kv_heads or heads, null=heads),
        head_dim=_head_dim(config, hidden, heads, head_dim),
        vocab=config.whole("vocab_size", default=vocab),
        context=config.whole("max_position_embeddings", default=context),
    )


def older_sizes(config: ConfigReader, names: Mapping[str, tuple[str, ...]]) -> Sizes:
    """By keys of other names, as many KV heads as heads."""
    hidden, heads = config.whole(*names["hidden"]), config.whole(*names["heads"])
    if hidden % heads:
        raise ValueError(f"{config.path}: {heads} heads cannot share {hidden} {names['hidden'][0]}")
    return Sizes(
        layers=config.layers(*names["layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        vocab=config.whole("vocab_size"),
        context=config.whole(*names["context"], default=2048),
    )


def _head_dim(config: ConfigReader, hidden: int, heads: int, default: int | None) -> int:
    """What the config states, or the class, or an equal part of the hidden size."""
    equal = 0 if hidden % heads else hidden // heads
    found = config.whole("head_dim", default=default or equal, null=equal)
    if not found:
        raise ValueError(
            f"{config.path}: {heads} heads cannot share hidden_size {hidden}, nor is head_dim there"
        )
    return found


def routed_experts(
    config: ConfigReader, experts: int | None = None, per_token: int | None = None, least: int = 1
) -> tuple[int, int]:
    """Routed experts, and how many of them a token is sent to."""
    return (
        config.whole(
            "num_local_experts", "num_experts", "n_routed_experts", default=experts, least=least
        ),
        config.whole("num_experts_per_tok", "experts_per_token", default=per_token, least=least),
    )


def uniform(
    config: ConfigReader,
    size: Sizes,
    mixer: Mixer,
    mlp: Mlp,
    width: int,
    *,
    tied: bool = False,
    gated: bool = True,
) -> Architecture:
    """All layers alike, two norms without biases in each, one at the end."""
    return size.model(
        [mixer] * size.layers,
        [mlp] * size.layers,
        norm_parameters=2 * size.hidden,
        width=width,
        tied=config.flag("tie_word_embeddings", tied),
        gated=gated,
    )


def layer_normed(
    config: ConfigReader,
    size: Sizes,
    mixer: Mixer,
    mlp: Mlp,
    width: int,
    *,
    tied: bool = True,
    outside: int = 0,
) -> Architecture:
    """All layers alike, MLPs of two matrices; norms with biases, two in each and one at the end."""
    return size.model(
        [mixer] * size.layers,
        [mlp] * size.layers,
        norm_parameters=4 * size.hidden,
        width=width,
        tied=config.flag("tie_word_embeddings", tied),
        gated=False,
        outside=2 * size.hidden + outside,
    )


def used_window(config: ConfigReader) -> int:
    """The window of Qwen, 0 unless it is used."""
    window = config.whole("sliding_window", default=4096, null=0, least=0)
    return window if config.flag("use_sliding_window") else 0
