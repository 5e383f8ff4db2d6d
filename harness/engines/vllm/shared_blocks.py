"""KV blocks that the services of a group share: one pool of blocks of equal bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import lcm
from typing import Protocol

from harness.core.kv_ledger import KvLedger
from harness.interface.entities import Service, ServiceId

MOST_TOKENS = 512
"""Of a block: a request leaves half of its last one empty on average."""


def equal_blocks(
    token_bytes: Sequence[int], models: Sequence[str], *, least_tokens: int
) -> list[int]:
    """Tokens of a block of each model, multiples of `least_tokens`, so that all have equal bytes.

    ValueError where a block would have too many tokens.
    """
    common_bytes = lcm(*token_bytes)
    tokens = [least_tokens * (common_bytes // each) for each in token_bytes]
    if max(tokens) > MOST_TOKENS:
        given = ", ".join(
            f"{model} has {each} bytes of KV a token"
            for model, each in zip(models, token_bytes, strict=True)
        )
        raise ValueError(
            f"no common layout of KV blocks: {given}, so equal blocks would have {max(tokens)}"
            f" tokens, at most {MOST_TOKENS} are allowed"
        )
    return tokens


class HasBlocks(Protocol):
    """A scheduler, as far as its KV blocks go."""

    kv_blocks: int
    block_size: int
    kv_bytes_per_token: int


def ledger_of(schedulers: Mapping[ServiceId, HasBlocks], services: Sequence[Service]) -> KvLedger:
    """An empty ledger of the blocks of the first scheduler, in bytes as the engines have them.

    ValueError where blocks of the services have different sizes.
    """
    first = schedulers[services[0].id]
    in_engine = {
        s.id: replace(s, kv_bytes_per_token=schedulers[s.id].kv_bytes_per_token) for s in services
    }
    capacity_bytes = first.kv_blocks * first.block_size * first.kv_bytes_per_token
    block_tokens = {s.id: schedulers[s.id].block_size for s in services}
    kv = KvLedger(capacity_bytes=capacity_bytes, services=in_engine, block_tokens=block_tokens)
    common_blocks(kv)
    return kv


def common_blocks(kv: KvLedger) -> int:
    """Blocks of a ledger. ValueError where those of its services have different sizes."""
    sizes = {str(service): kv.block_bytes(service) for service in kv.services}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            "services of one group share a pool of equal KV blocks, and theirs have different"
            f" bytes: {sizes}"
        )
    return kv.capacity_blocks(next(iter(kv.services)))
