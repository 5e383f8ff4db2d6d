"""Requests simulated per second with prefix caching: W1, and a stored trace of conversations."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from harness.config.paths import PROFILES
from harness.costs.model_facts import model_facts
from harness.interface.entities import Service, ServiceId
from harness.tools.benchmarks.reference_load import (
    MODEL,
    PROMPT_TOKENS,
    best_s,
    serve_s,
    vllm_policy,
    w1,
)
from harness.workloads.prefixes import prefixes_of_hashes
from harness.workloads.workload import Workload

TRACE = PROFILES / "traces" / "mooncake_conversation.jsonl"
HASH_TOKENS = 512
"""Tokens that a hash of the trace stands for."""
KV_BLOCKS, BLOCK_TOKENS = 12_000, 16
"""That the trace is served with: each is evicted and filled again many times."""
REPEATS = 3


def begun_alike(load: Workload, tokens: int) -> Workload:
    """The load with prompts that begin with so many tokens of the first one; 0 for none."""
    first = np.full(len(load), -1)
    first[1:] = 0 if tokens else -1
    return replace(load, prefix=first, prefix_tokens=np.where(first < 0, 0, tokens))


def conversations() -> Workload:
    """The stored trace, for a model of W1's sizes with a longer context."""
    rows = [json.loads(line) for line in TRACE.read_text(encoding="utf-8").splitlines()]
    columns = ("timestamp", "input_length", "output_length")
    at_ms, prompts, answers = (np.array([row[name] for row in rows]) for name in columns)
    hashes = [row["hash_ids"] for row in rows]
    prefix, tokens = prefixes_of_hashes(hashes, HASH_TOKENS, prompts)
    count = len(rows)
    return Workload(
        services=(Service(ServiceId(MODEL), model_facts(MODEL).kv_bytes_per_token, 1 << 20),),
        service=np.zeros(count, np.int64),
        arrival_s=at_ms / 1000,
        prompt_tokens=prompts,
        output_tokens=answers,
        max_output_tokens=answers,
        app=np.arange(count),
        deadline_s=np.full(count, np.nan),
        prefix=prefix,
        prefix_tokens=tokens,
    )


def measure() -> dict[str, float]:
    """Figures under vLLM's order; the best of several repetitions after a warm-up.

    `prefix_caching_slowdown` is how many times as long W1 takes with the cache and nothing shared.
    """
    load, turns = w1(2000, 1), conversations()
    # At 16 bits a number they would not fit beside the weights.
    token_bytes = turns.services[0].kv_bytes_per_token // 2
    kv = {"kv_number_bytes": 1, "kv_bytes": KV_BLOCKS * BLOCK_TOKENS * token_bytes}
    plain_s = _best_s(load)
    alone_s = _best_s(begun_alike(load, 0), prefix_caching=True)
    half_s = _best_s(begun_alike(load, PROMPT_TOKENS // 2), prefix_caching=True)
    turns_s = _best_s(turns, prefix_caching=True, kv=kv)
    return {
        "prefix_caching_w1_nothing_shared_requests_per_s": len(load) / alone_s,
        "prefix_caching_slowdown": alone_s / plain_s,
        "prefix_caching_w1_half_shared_requests_per_s": len(load) / half_s,
        "prefix_caching_conversations_requests_per_s": len(turns) / turns_s,
    }


def _best_s(load: Workload, **engine: Any) -> float:
    served: Callable[[], float] = lambda: serve_s(vllm_policy(), load, 1, **engine)  # noqa: E731
    served()
    return best_s(served, REPEATS)
