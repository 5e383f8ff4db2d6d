"""Values that a key cannot have are refused in one sentence.

Words are drawn, the same in every run; `test_refused.py` has the sentences.
"""

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config.paths import ROOT
from harness.tests.support.command import refused

BASE = ("policy=fcfs_continuous", "hardware.gpu_count=1", "workload.requests=20", "tracking=none")
CODE = "{_target_:logging.FileHandler,filename:written_by_a_key,mode:w}"
NO_NUMBERS = ("nan", "inf", "-inf", "x", "null", "[]", "{a:1}", "1e300", "-1", "1" + "0" * 30, CODE)
NUMBERS: Sequence[tuple[str, Sequence[str]]] = (
    ("", ("seed", "workers", "uncertainty_draws")),
    (
        "workload=chats",
        (
            *(f"hardware.{key}" for key in ("gpu_count", "memory_share", "host_kv_bytes")),
            *(f"workload.{key}" for key in ("requests", "max_output_tokens", "starts_s")),
            *(f"workload.arrivals.{key}" for key in ("rate_per_s", "burstiness")),
            *(f"policy.rule.max_{key}_tokens" for key in ("num_batched", "padding")),
            *(f"policy.rule.{key}" for key in ("max_num_seqs", "watermark")),
        ),
    ),
    (
        "workload=synthetic",
        tuple(
            f"workload.{key}"
            for key in ("burstiness", "prompt_median_tokens", "prompt_sigma", "max_prompt_tokens")
        ),
    ),
    ("predictor=pairwise", ("predictor.accuracy", "predictor.latency_s", "predictor.window")),
    ("predictor=noisy", ("predictor.accuracy", "predictor.rank_correlation")),
    ("workload/arrivals=azure_functions", ("workload.arrivals.functions",)),
)
"""A word that brings keys, and those keys that hold a number of 0 or more."""


def _drawn_keys() -> st.SearchStrategy[tuple[str, ...]]:
    key = st.sampled_from([(words, key) for words, keys in NUMBERS for key in keys])
    return st.builds(
        lambda key, value: (*key[0].split(), f"{key[1]}={value}"), key, st.sampled_from(NO_NUMBERS)
    )


@settings(max_examples=12, deadline=None, derandomize=True)
@given(words=_drawn_keys())
def test_a_number_that_a_key_cannot_have_is_refused(words: tuple[str, ...]) -> None:
    said = refused(*BASE, *words)
    assert said
    assert "Traceback" not in said
    assert not Path("written_by_a_key").exists()
    assert not (ROOT / "written_by_a_key").exists()
