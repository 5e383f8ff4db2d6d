"""A model's layers by kind, and what the families of models have in common.

The families are functions of `dense_models.py` and `mixture_models.py`. Each follows the model's
class in `transformers`, its defaults included, and is tested against that class's parameters.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.costs.config_reader import ConfigReader
from harness.costs.layer_kinds import LayerKind, Mixer, Mlp

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
GRANITE_MULTIPLIERS = "attention_multiplier embedding_multiplier logits_scaling residual_multiplier"

Fields = dict[str, Any]
"""Fields of `ModelFacts`: sizes, and the parameters added up."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What every family has, whatever its keys are called."""

    config: ConfigReader
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int

    def attention(
        self,
        *,
        bias: bool = False,
        qkv_bias: bool = False,
        other: int = 0,
        window: int = 0,
        gated: bool = False,
    ) -> Mixer:
        """Attention with heads of keys and values; `other` are norms of queries and keys.

        A `gated` one projects a gate of its output.
        """
        wide, kept = self.heads * self.head_dim, self.kv_heads * self.head_dim
        biases = (bias or qkv_bias) * (wide + 2 * kept) + bias * self.hidden
        projected = (2 + gated) * wide + 2 * kept
        return Mixer(
            parameters=self.hidden * projected,
            other_parameters=biases + other,
            heads=self.heads,
            kv_heads=self.kv_heads,
            kv_numbers_per_head=2 * self.head_dim,
            attended_width=wide,
            window_tokens=window,
        )

    def windowed(
        self, window: int, default: Sequence[bool], *, kind: str = SLIDING, **attention: Any
    ) -> list[Mixer]:
        """Attention of each layer, with a window where `layer_types` says so, or else `default`."""
        by_default = [kind if each else FULL for each in default]
        types = self.config.layer_types(self.layers, (FULL, kind), by_default)
        return [self.attention(window=window if it == kind else 0, **attention) for it in types]

    def mlp(self, width: int, *, gated: bool = True, bias: bool = False) -> Mlp:
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

    @property
    def _stated(self) -> Fields:
        return {
            "hidden_size": self.hidden,
            "attention_heads": self.heads,
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "max_context_tokens": self.context,
        }

    def model(
        self,
        mixers: Mixer | Sequence[Mixer],
        mlps: Mlp | Sequence[Mlp],
        width: int,
        *,
        tied: bool = False,
        gated: bool = True,
        norms: int = 2,
        outside: int | None = None,
        embedding_size: int | None = None,
    ) -> Fields:
        """A mixer and an MLP of each layer, or of all; alike layers become a kind.

        Norms of a layer have `norms` numbers a hidden unit. `outside` are the parameters in no
        layer and no embedding, a norm without biases unless given.
        """
        tied = self.config.flag("tie_word_embeddings", tied)
        mixers = [mixers] * self.layers if isinstance(mixers, Mixer) else mixers
        mlps = [mlps] * self.layers if isinstance(mlps, Mlp) else mlps
        kinds = [
            LayerKind(layers=count, mixer=mixer, mlp=mlp, norm_parameters=norms * self.hidden)
            for (mixer, mlp), count in Counter(zip(mixers, mlps, strict=True)).items()
        ]
        embeddings = 1 if tied else 2
        most = max((kind.mlp for kind in kinds), key=lambda mlp: mlp.experts)
        parameters = sum(kind.layers * kind.parameters for kind in kinds)
        parameters += embeddings * self.vocab * (embedding_size or self.hidden)
        return self._stated | {
            "layers": sum(kind.layers for kind in kinds),
            "intermediate_size": width,
            "gated_mlp": gated,
            "embeddings": embeddings,
            "experts": most.experts or 1,
            "experts_per_token": most.experts_per_token or 1,
            "parameters": parameters + (self.hidden if outside is None else outside),
            "kinds": [asdict(kind) for kind in kinds],
        }

    def layer_normed(
        self, mixer: Mixer, mlp: Mlp, width: int, *, tied: bool = True, outside: int = 0
    ) -> Fields:
        """MLPs of two matrices; norms with biases, two in each layer and one at the end."""
        outside += 2 * self.hidden
        return self.model(mixer, mlp, width, tied=tied, gated=False, norms=4, outside=outside)


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
        config=config,
        layers=config.layers("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=config.whole("num_key_value_heads", default=kv_heads or heads, null=heads),
        head_dim=_head_dim(config, hidden, heads, head_dim),
        vocab=config.whole("vocab_size", default=vocab),
        context=config.whole("max_position_embeddings", default=context),
    )


def older_sizes(config: ConfigReader, hidden: str, heads: str, layers: str, context: str) -> Sizes:
    """By keys of other names, in texts of names; as many KV heads as heads."""
    size, count = config.whole(*hidden.split()), config.whole(*heads.split())
    if size % count:
        raise ValueError(f"{config.path}: {count} heads cannot share {size} {hidden.split()[0]}")
    return Sizes(
        config=config,
        layers=config.layers(*layers.split()),
        hidden=size,
        heads=count,
        kv_heads=count,
        head_dim=size // count,
        vocab=config.whole("vocab_size"),
        context=config.whole(context, default=2048),
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
    keys = ("num_local_experts", "num_experts", "n_routed_experts")
    return (
        config.whole(*keys, default=experts, least=least),
        config.whole("num_experts_per_tok", "experts_per_token", default=per_token, least=least),
    )


def used_window(config: ConfigReader, default: int = 4096) -> int:
    """The window of Qwen, 0 unless it is used."""
    window = config.window(default)
    return window if config.flag("use_sliding_window") else 0


def patterned(config: ConfigReader, layers: int, *, every: int) -> list[bool]:
    """Which layers have a window: the L of a text, which repeats, or all but every n-th."""
    pattern = config.value("sliding_window_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        letters = [pattern[layer % len(pattern)] for layer in range(layers)]
        return [letter == "L" for letter in letters[:-1]] + [False]
    every = config.whole("sliding_window_pattern", default=every, null=every, least=0)
    return [every > 0 and (layer + 1) % every != 0 for layer in range(layers)]
