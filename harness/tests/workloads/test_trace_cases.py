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
    "bom_comma.csv": (40, 12_780, 800, 39.5, 0),
    "burstgpt_whole_seconds.csv": (80, 19_160, 3_200, 19.0, 0),
    "light.jsonl": (20, 2_190, 160, 9.5, 0),
    "light.jsonl.gz": (20, 2_190, 160, 9.5, 0),
    "light.ndjson": (20, 2_190, 160, 9.5, 0),
    "light.txt": (20, 2_190, 160, 9.5, 0),
    "light_lines.json": (20, 2_190, 160, 9.5, 0),
    "lmbench_gmi_ns_text.jsonl": (40, 24_780, 800, 19.5, 19_968),
    "mooncake.parquet": (40, 44_000, 800, 19.5, 39_936),
    "nullable.parquet": (40, 12_780, 800, 19.5, 0),
    "pandas.csv.gz": (40, 12_780, 800, 19.5, 0),
    "pandas_index.csv": (40, 12_780, 800, 19.5, 0),
    "semicolon_bom.csv": (40, 12_780, 800, 39.5, 0),
    "tabs.tsv": (40, 12_780, 800, 19.5, 0),
    "utf16.csv": (40, 12_780, 800, 19.5, 0),
    "vllm_timed_trace_16.jsonl": (40, 8_664, 640, 39.0, 5_616),
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
    "own_lengths.csv": (40, 16_780, 2_000),
    "vidur_lengths.csv": (40, 16_780, 2_000),
}
REFUSED = {
    "BurstGPT_3.head.csv": "row 6: Request tokens 0 must be at least 1",
    "arrival_ms_input_length.jsonl": "has no columns arrival_ms, session_id; 'workload.columns=",
    "azure2024_mixed_fraction.csv": "row 2: TIMESTAMP .* is before that of the row ahead",
    "azure_zero.csv": "row 4: GeneratedTokens 0 must be .*; workload.no_output=drop leaves out",
    "dates_day_first.csv": "row 1: TIMESTAMP '28/11/2026 10:00:00' is no time; .* the year first",
    "missing_values.csv": "row 2: prompt_tokens is missing",
    "negative.jsonl": "row 1: arrival_s -2.0 must be at least 0",
    "priority_words.jsonl": "row 1: priority 'low' is no number",
    "slo_class.jsonl": "format own, which has no columns slo_class; 'workload.columns=",
    "thousands.csv": "row 1: prompt_tokens '1,300' is no number",
    "unsorted.jsonl": "row 4: arrival_s 2 is before that of the row ahead: sort the file by it",
    "zero_output.jsonl": "row 8: output_tokens 0 must be at least 1; workload.no_output=drop",
    **dict.fromkeys(UNTIMED, "does not say when its requests come"),
}
# Sessions, requests, prompt tokens and those of the turns before, and the last session's arrival
SESSIONS = {
    "aiperf_mooncake_sessions.jsonl": (2, 3, 1_240, 340, 0.5),
    "sessions_many.jsonl": (50, 200, 238_000, 168_000, 49.0),
    "tracelab.csv": (12, 48, 99_360, 70_560, 22.0),
}
SAID = {
    "burstgpt_whole_seconds.csv": "whole seconds, up to 4 requests at one",
    "lmbench_gmi_ns_text.jsonl": "ns since 1970, from the first: 40 requests in 19.5 s, 2/s",
    "vllm_timed_trace_16.jsonl": "times read as s, as ms is implausible: 40 requests in 39 s, 1/s",
    "mooncake_multiturn.jsonl": "as ms, as Mooncake has them: 40 requests in 78 s, 0.5/s",
    "light.jsonl": "times read as s: 20 requests in 9.5 s, 2/s",
}


def _read(name: str, **changes: Any) -> Any:
    return trace(CASES / "traces" / name, model=MODEL, **changes).build(0)


def test_every_trace_has_its_right_values() -> None:
    assert set(listed("traces")) == {*RIGHT, *REFUSED, *SESSIONS}


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


@pytest.mark.parametrize("name", SAID)
def test_unit_span_and_rate_are_said(name: str) -> None:
    assert any(SAID[name] in note for note in _read(name).notes)


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_have_their_turns(name: str) -> None:
    load = trace(CASES / "traces" / name, model=MODEL).load()
    found = (load.sessions, load.requests, load.prompt_tokens, load.shared_tokens, load.span_s)
    assert found == SESSIONS[name]


@pytest.mark.parametrize(
    ("name", "left", "there"), [("azure_zero.csv", 1, 20), ("zero_output.jsonl", 1, 40)]
)
def test_requests_without_an_answer_are_left_out_and_counted(
    name: str, left: int, there: int
) -> None:
    recipe = trace(CASES / "traces" / name, model=MODEL, no_output="drop")
    assert (recipe.load().requests, recipe.load().left_out) == (there - left, left)
    said = f"{name}: {left} of {there} requests have no output tokens and are left out"
    assert said in recipe.build(0).notes
