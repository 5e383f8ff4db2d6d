"""A profile of a model on a GPU from its kernels and an engine's terms.

Kernels of an iteration go by its tokens (matrix products, experts, all-reduces) or by its contexts
(attention). The profile has them at knots of requests and of prompt tokens; when prompts and
decodes share an iteration, what they share is counted once (`Profile.shared_s`).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from harness.costs.engine_kinds import EngineKind
from harness.costs.kernels import LATENT_HIDDEN, LATENT_NUMBERS, Kernels, Latent
from harness.costs.layer_kinds import Mixer, Mlp
from harness.costs.model_facts import ModelFacts
from harness.costs.profiles import Phase, Profile, Received

Floats = NDArray[np.float64]

REQUEST_KNOTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
"""Among them the sizes of captured graphs at which kernels change most."""
TOKEN_KNOTS = (
    *(1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048),
    *(3072, 4096, 6144, 8192, 12288, 16384),
)
MANY_TOKENS = (2048.0, 8192.0)
"""Between these a further token of an iteration with prompts has its cost taken."""
HIDDEN_BYTES = 2
"""Of a number of the hidden state."""
SQUARES_BYTES = 8
"""Of a token's sums of squares of queries and keys."""
MEASURED_RANGES = {"requests": (1, 256), "prefill_tokens": (800, 8192), "longest": (800, 9216)}
"""Of iterations of the measured servers: running requests, prompt tokens, context of a request."""
BLOCK_TOKENS = 16
"""Tokens of a KV block of vLLM."""


@dataclass(frozen=True)
class Forward:
    """Seconds of the kernels of one model on one group, of all its layers."""

    model: ModelFacts
    kernels: Kernels

    def products_s(self, tokens: Floats) -> Floats:
        """Matrix products and experts."""
        total = np.zeros(len(tokens))
        for kind in self.model.layer_kinds:
            layer_s = self._mixer_products_s(kind.mixer, tokens) + self._mlp_s(kind.mlp, tokens)
            total += kind.layers * layer_s
        return total

    def all_reduces_s(self, tokens: Floats) -> Floats:
        """One behind each mixer and MLP, and one of the sums of squares of some norms."""
        message_bytes = tokens * self.model.hidden_size * HIDDEN_BYTES
        parts = sum(
            kind.layers * ((kind.mixer.parameters > 0) + (kind.mlp.matrix_parameters > 0))
            for kind in self.model.layer_kinds
        )
        found: Floats = parts * self.kernels.all_reduce_s(message_bytes)
        if self.model.norms_across_heads:
            found = found + self.model.layers * self.kernels.all_reduce_s(tokens * SQUARES_BYTES)
        return found

    def logits_s(self, requests: Floats) -> Floats:
        """The output over the vocabulary, each GPU its part."""
        vocab = self.model.vocab_size / self._tp
        return self.kernels.gemm_s("bf16", vocab, self.model.hidden_size, requests)

    def decode_attention_s(self, requests: Floats) -> tuple[Floats, Floats]:
        """Seconds of a batch, and of each token of its context."""
        base, slope = np.zeros(len(requests)), np.zeros(len(requests))
        for kind in self.model.layer_kinds:
            found = self._decode_of(kind.mixer, requests)
            base += kind.layers * found[0]
            slope += kind.layers * found[1]
        return base, slope

    def prompt_attention_s(self) -> tuple[float, float, float]:
        """Seconds of a prompt, of each of its tokens, and of each of `Work.prefill_attended`."""
        total = np.zeros(3)
        for kind in self.model.layer_kinds:
            total += kind.layers * np.array(self._prompt_of(kind.mixer))
        base, per_token, per_attended = total.tolist()
        return base, per_token, per_attended

    @property
    def _tp(self) -> int:
        return self.kernels.tensor_parallel

    def _mixer_products_s(self, mixer: Mixer, tokens: Floats) -> Floats:
        """Projections of attention; those of latent attention are measured with it."""
        facts, kind = self.model, self.model.linear_format
        if self._latent(mixer) is not None or not mixer.parameters:
            return np.zeros(len(tokens))
        if mixer.state_bytes or _is_latent(mixer):
            self.kernels.stand_in(
                "state-space layers" if mixer.state_bytes else "latent attention of this size"
            )
            wide = mixer.parameters / facts.hidden_size / self._tp
            return self.kernels.gemm_s(kind, wide, facts.hidden_size, tokens)
        size = mixer.kv_numbers_per_head // 2
        heads = mixer.heads // self._tp
        kept = mixer.kv_heads_per_gpu(self._tp)
        gates = mixer.parameters // facts.hidden_size - 2 * (mixer.heads + mixer.kv_heads) * size
        wide = (heads + 2 * kept) * size + gates // self._tp
        asked = self.kernels.gemm_s(kind, wide, facts.hidden_size, tokens)
        return asked + self.kernels.gemm_s(kind, facts.hidden_size, heads * size, tokens)

    def _mlp_s(self, mlp: Mlp, tokens: Floats) -> Floats:
        """A dense or shared MLP of a layer, and its router and experts."""
        facts, total = self.model, np.zeros(len(tokens))
        dense = mlp.dense_parameters + mlp.shared_parameters
        if dense:
            up = 2 if facts.gated_mlp else 1
            width = dense / (up + 1) / facts.hidden_size / self._tp
            kind = facts.linear_format
            total += self.kernels.gemm_s(kind, up * width, facts.hidden_size, tokens)
            total += self.kernels.gemm_s(kind, facts.hidden_size, width, tokens)
        if mlp.experts:
            width = mlp.expert_parameters // (3 * facts.hidden_size)
            total += self.kernels.gemm_s("bf16", mlp.experts, facts.hidden_size, tokens)
            total += self.kernels.experts_s(
                facts.expert_format,
                facts.hidden_size,
                width,
                mlp.experts,
                mlp.experts_per_token,
                tokens,
            )
        return total

    def _decode_of(self, mixer: Mixer, requests: Floats) -> tuple[Floats, Floats]:
        entry = self._latent(mixer)
        if entry is not None:
            return self.kernels.latent_s(entry, requests)
        states_s = self.kernels.state_s(mixer.state_bytes, requests)
        if not mixer.kv_heads:
            return states_s, np.zeros(len(requests))
        share = self._share(mixer)
        base, slope = self.kernels.decode_s(mixer, self.model.kv_number_bytes, requests)
        return base + states_s, slope * share

    def _prompt_of(self, mixer: Mixer) -> tuple[float, float, float]:
        entry = self._latent(mixer)
        if entry is not None:
            base, per_token, per_attended = entry.prompt
            return 1e-6 * base, 1e-12 * per_token, 1e-12 * per_attended
        if not mixer.kv_heads:
            return 0.0, 0.0, 0.0
        share = self._share(mixer)
        base, per_token, per_attended = self.kernels.prompt_s(mixer, self.model.kv_number_bytes)
        return base, per_token, per_attended * share * (2.0 - share)

    def _share(self, mixer: Mixer) -> float:
        """Share of a request's tokens that are in a window; 1 where the table has the window."""
        if self.kernels.has_window(mixer, self.model.kv_number_bytes):
            return 1.0
        at = self.model.window_at_tokens
        return mixer.kept_tokens(at) / at

    def _latent(self, mixer: Mixer) -> Latent | None:
        """The measured latent attention of a mixer's sizes; None where there is none."""
        if not _is_latent(mixer) or mixer.kv_numbers_per_head != LATENT_NUMBERS:
            return None
        if self.model.hidden_size != LATENT_HIDDEN:
            return None
        heads = self.model.attention_heads // self._tp
        return self.kernels.latent(self.model.linear_format, self.model.kv_number_bytes, heads)


def _is_latent(mixer: Mixer) -> bool:
    """Whether one latent serves all heads."""
    return mixer.heads == 1 and mixer.kv_heads == 1 and mixer.attended_width > 0


@dataclass(frozen=True)
class _Iterations:
    """Seconds of an engine's iterations, kernels and terms, as a profile has them."""

    forward: Forward
    engine: EngineKind

    @property
    def layers_s(self) -> float:
        """Of an iteration by its layers."""
        model, term = self.forward.model, self.engine.value
        across = model.norms_across_heads and self.forward.kernels.tensor_parallel > 1
        return model.layers * (term("layer_s") + across * term("head_norm_s"))

    def tokens_s(self, tokens: Floats) -> tuple[Floats, Floats]:
        """Kernels that go by tokens: of an iteration of decodes, and of one with prompts."""
        products_s = self.forward.products_s(tokens)
        reduces_s = self.forward.all_reduces_s(tokens)
        with_prompts_s = self.engine.value("prompt_kernels") * products_s + reduces_s
        return products_s + reduces_s, with_prompts_s

    @cached_property
    def further_s(self) -> float:
        """Of a further token in an iteration with many."""
        many = np.array(MANY_TOKENS)
        return float((np.diff(self.tokens_s(many)[1]) / np.diff(many))[0])

    @property
    def first_s(self) -> float:
        """Of the output over the vocabulary for a prompt's first token."""
        return float(self.forward.logits_s(np.ones(1))[0])

    def decode(self) -> Phase:
        """Coefficients along the knots of requests."""
        requests, term = np.array(REQUEST_KNOTS, np.float64), self.engine.value
        attention_s, per_context_s = self.forward.decode_attention_s(requests)
        kernels_s = self.tokens_s(requests)[0] + self.forward.logits_s(requests) + attention_s
        return {
            "forward": {
                "base_s": _rounded(kernels_s + self.layers_s),
                "per_context_s": _rounded(per_context_s),
            },
            "prepare": {"base_s": _rounded(term("iteration_s") + 0.0 * requests)},
            "sample": {"base_s": _rounded(term("running_s") * requests)},
            "other": {},
        }

    def prefill(self) -> Phase:
        """Coefficients along the knots of requests; `steps` has what they leave."""
        requests, term = np.array(REQUEST_KNOTS, np.float64), self.engine.value
        prompt_s, per_token_s, per_attended_s = self.forward.prompt_attention_s()
        base_s = prompt_s * requests + self.first_s + self.layers_s
        ones = np.ones(len(requests))
        return {
            "forward": {
                "base_s": _rounded(base_s),
                "per_padded_token_s": _rounded(self.further_s * ones),
                "per_token_s": _rounded(per_token_s * ones),
                "per_attended_s": _rounded(per_attended_s * ones),
            },
            "prepare": {
                "base_s": _rounded(
                    term("iteration_s") + term("any_prompt_s") + term("prompt_s") * requests
                )
            },
            "sample": {},
            "other": {},
        }

    def steps(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Along 0 and the knots of tokens: `Profile.step_s` and `Profile.shared_s`.

        Decodes beside prompts share layers, iteration, and their kernels but for what a further
        token takes there.
        """
        tokens = np.array(TOKEN_KNOTS, np.float64)
        decodes_s, with_prompts_s = self.tokens_s(tokens)
        line_s = self.further_s * tokens
        fixed_s = self.layers_s + self.first_s + self.engine.value("iteration_s")
        shared_s = fixed_s + np.maximum(decodes_s - line_s, 0.0)
        return (0.0, *_rounded(with_prompts_s - line_s)), (fixed_s, *_rounded(shared_s))


def kernel_profile(model: ModelFacts, kernels: Kernels, engine: EngineKind) -> Profile:
    """The profile of a model on a group, in an engine of a kind."""
    priced = _Iterations(Forward(model, kernels), engine)
    step_s, shared_s = priced.steps()
    return Profile(
        model=model.name,
        gpu=kernels.gpu.name,
        engine=engine.name,
        kind=kernels.basis,
        source=f"{model.source}; {kernels.source}; {engine.about}",
        tensor_parallel=kernels.tensor_parallel,
        knots_requests=REQUEST_KNOTS,
        prefill=priced.prefill(),
        decode=priced.decode(),
        step_knots_tokens=(0, *TOKEN_KNOTS),
        step_s=step_s,
        shared_s=shared_s,
        received_s=Received(engine.value("received_s"), engine.value("received_s")),
        block_tokens=BLOCK_TOKENS,
        valid=MEASURED_RANGES,
    )


def _rounded(values: Floats) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
