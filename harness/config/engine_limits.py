"""Limits of an engine, and the word with which a policy's file takes them over.

An engine runs at most `max_num_seqs` requests at once and computes at most
`max_num_batched_tokens` tokens in an iteration, under every policy. A policy's file says `auto` for
both, or a smaller number where its paper states one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

AUTO = "auto"
LIMITS = ("max_num_seqs", "max_num_batched_tokens")
USUAL: Mapping[str, int] = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
"""Where a policy's file is read for no engine."""


def with_limits(node: Any, limits: Mapping[str, Any]) -> Any:
    """A part of a configuration with these numbers wherever it says `auto` of them."""
    if not isinstance(node, dict):
        return node
    return {
        key: limits[key] if key in limits and value == AUTO else with_limits(value, limits)
        for key, value in node.items()
    }


def stated_limits(node: Any, path: str) -> Iterator[tuple[str, str, int]]:
    """Limits that a part of a configuration states as numbers: dotted key, limit and number."""
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        name = f"{path}.{key}"
        if key in LIMITS and isinstance(value, int):
            yield name, key, value
        yield from stated_limits(value, name)
