"""States of state-space and linear-attention layers in the KV of a group, as vLLM keeps them.

vLLM has one pool of blocks for a hybrid model (`v1/core/kv_cache_utils.py`). Blocks of attention
are made so long that a page of a layer holds a state, and layers form groups of equal size, each of
which takes blocks of its own. A running request holds one block for each group of layers with
states, whatever its context; that is without prefix caching, which holds more.
"""

import math

from harness.costs.model_facts import ModelFacts

KERNEL_TOKENS = 16
"""Of which lengths of blocks are multiples."""
MOST_BLOCK_TOKENS = 2048
ONE_GROUP = 1.5
"""Ratio of layers of two types below which neither type is split into groups."""


def block_tokens(model: ModelFacts) -> int | None:
    """Tokens of a block of attention whose page holds a state; None of a model without states."""
    state_bytes, token_bytes = _largest_state(model), _token_bytes(model)
    if not state_bytes or not token_bytes:
        return None
    tokens = KERNEL_TOKENS * math.ceil(state_bytes / token_bytes / KERNEL_TOKENS)
    return min(tokens, MOST_BLOCK_TOKENS)


def state_blocks(model: ModelFacts, tokens_per_block: int) -> float:
    """Blocks of KV of all attention layers that the states of a running request take."""
    states = sum(kind.layers for kind in model.layer_kinds if kind.mixer.state_bytes)
    attention = sum(kind.layers for kind in model.layer_kinds if kind.mixer.kv_heads)
    token_bytes = _token_bytes(model)
    if not states or not token_bytes:
        return 0.0
    fewer, more = sorted((states, attention))
    size = more if more < ONE_GROUP * fewer else fewer
    page_bytes = max(_largest_state(model), tokens_per_block * token_bytes)
    of_block_bytes = attention * tokens_per_block * token_bytes
    return math.ceil(states / size) * size * page_bytes / of_block_bytes


def most_running(
    model: ModelFacts, blocks: int, tokens_per_block: int, context_tokens: int, longest_tokens: int
) -> int | None:
    """Requests that run at once in KV of so many blocks; None of a model without states.

    Each holds its states and KV of `context_tokens`, the typical context; what the states leave
    holds a request of `longest_tokens`. At least 1, also where there is no room for it.
    """
    each = state_blocks(model, tokens_per_block)
    if not each:
        return None
    typical = math.ceil(context_tokens / tokens_per_block)
    longest = math.ceil(longest_tokens / tokens_per_block)
    return max(1, math.floor(min(blocks / (each + typical), (blocks - longest) / each)))


def _largest_state(model: ModelFacts) -> int:
    return max(kind.mixer.state_bytes for kind in model.layer_kinds)


def _token_bytes(model: ModelFacts) -> int:
    """KV of a token in one layer of attention."""
    return max(
        kind.mixer.kv_heads * kind.mixer.kv_numbers_per_head * model.kv_number_bytes
        + kind.mixer.kept_bytes
        for kind in model.layer_kinds
    )
