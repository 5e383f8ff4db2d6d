"""Published traces that other tools have read wrong: the right numbers, or words that say why."""

from typing import Any

import pytest

from harness.tests.support.cases import CASES, listed
from harness.tests.support.recorded_requests import trace
from harness.workloads.arrivals import Gamma

MODEL = str(CASES / "models" / "qwen3-30b-a3b.json")
DRAWN = {"arrivals": Gamma(rate_per_s=2.0, burstiness=1.0, sorted_gaps=False)}
MAPPED = {
    "columns": {
        "arrival_s": "arrival_ms",
        "prompt_tokens": "input_length",
        "output_tokens": "output_length",
        "unit": "ms",
    }
}
# Requests, their prompt and output tokens, the last arrival in seconds, and shared prompt tokens
RIGHT = {
    "AzureLLMInferenceTrace_code.head300.csv": (300, 627_529, 7_126, 216.838, 0),
    "BurstGPT_3.nofail.csv": (4, 3_656, 776, 144.0, 0),
    "aiperf_mooncake_text.jsonl": (2, 7, 32, 1.0, 0),
    "arrival_ms_input_length.jsonl": (20, 10_000, 2_000, 19.0, 0),
    "azure2024_mixed_fraction_sorted.csv": (3, 4_861, 18, 0.99, 0),
    "azure2025_multimodal.csv": (2, 1_300, 200, 1.5, 0),
    "llmservingsim.head5.jsonl": (5, 65, 351, 0.588, 0),
    "mooncake_conversation.head9.jsonl": (9, 59_528, 2_702, 9.0, 4_096),
    "mooncake_multiturn.jsonl": (40, 471_040, 2_560, 78.0, 387_072),
    "qwen_bailian_traceA_blksz_16.jsonl": (30, 17_913, 3_960, 29.114, 0),
    "servegen.csv": (3, 1_649, 208, 5.0, 0),
    "splitwise_sim_test_trace.csv": (3, 8_192, 56, 4.0, 0),
    "vidur_splitwise_conv.head200.csv": (200, 180_695, 47_050, 61.264, 0),
}
UNTIMED = {
    "guidellm.jsonl": (2, 10, 17),
    "openai_batch.jsonl": (3, 18, 192),
    "sharegpt.json": (2, 13, 17),
    "vllm_bench_custom.jsonl": (2, 13, 17),
}
REFUSED = {
    "BurstGPT_3.head.csv": "row 6: Request tokens 0 must be at least 1",
    "arrival_ms_input_length.jsonl": "has no columns arrival_ms, session_id; 'workload.columns=",
    "azure2024_mixed_fraction.csv": "row 2: TIMESTAMP .* is before that of the row ahead",
    **dict.fromkeys(UNTIMED, "does not say when its requests come"),
}
SESSIONS = "aiperf_mooncake_sessions.jsonl"


def _read(name: str, **changes: Any) -> Any:
    return trace(CASES / "traces" / name, model=MODEL, **changes).build(0)


def test_every_trace_has_its_right_values() -> None:
    assert set(listed("traces")) == {*RIGHT, *REFUSED, SESSIONS}


@pytest.mark.parametrize("name", RIGHT)
def test_a_trace_is_read_as_published(name: str) -> None:
    load = _read(name, **(MAPPED if name in REFUSED else {}))
    requests, prompts, outputs, last_s, shared = RIGHT[name]
    assert len(load) == requests
    assert (load.prompt_tokens.sum(), load.output_tokens.sum()) == (prompts, outputs)
    assert load.arrival_s.max() == pytest.approx(last_s, abs=1e-3)
    assert load.prefix_tokens.sum() == shared


@pytest.mark.parametrize("name", UNTIMED)
def test_lengths_are_read_where_times_are_drawn(name: str) -> None:
    load = _read(name, **DRAWN)
    assert (len(load), load.prompt_tokens.sum(), load.output_tokens.sum()) == UNTIMED[name]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[name]):
        _read(name)
