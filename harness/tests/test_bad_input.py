"""Values that a key cannot have are refused in one sentence.

Words are drawn, the same in every run; `test_refused.py` has the sentences.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.config.paths import ROOT
from harness.tests.support.command import command, refused

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


WRONG_TYPES = {
    "shows=${seed}": "shows=0: it must be a list",
    "shows=[[1]]": "shows[0]=[1]: it must be a text",
    "matrix=${seed}": "matrix=0: it must be keys with values",
    "matrix=${name}": "matrix='adhoc': it must be keys with values",
    "+compare={axis:[1],reference:1}": "compare.axis is [1], it must be a text",
    "compare=${shows}": "compare=['",
    "vary_at=${seed}": "vary_at=0: it must be a list",
    "vary=${name}": "vary='adhoc': it must be keys with values",
    "vary_at=${matrix}": "vary_at={}: it must be a list",
    "slo=${seed}": "slo=0: it must be keys with values",
    "slo=${matrix}": "slo.ttft_s is missing",
    "record=${matrix}": "record.iterations is missing",
    "policy.rule=${workload}": "policy.rule is a Chats, not ContinuousBatching or StaticBatching",
    "predictor.name=[1]": "predictor.name is [1], it must be a text",
    "engine.max_num_seqs=[1]": "engine.max_num_seqs=[1] is not a whole number",
    "workload.model=3": "workload.model=3 is not a text",
    "uncertainty_draws=${name}": "uncertainty_draws='adhoc': it must be a whole number",
    "cluster._target_=harness.predictors.oracle.Oracle": "cluster is a Oracle, not CellExecutor",
}
"""A word whose value has another type than its key, given or by reference, and the sentence."""


@pytest.mark.parametrize("word", ["hardware=5", "policy=null"])
def test_a_choice_of_a_file_that_is_no_name_is_a_sentence(word: str) -> None:
    group = word.partition("=")[0]
    said = f"{word} is no name of a file, as in scenarios/{group}/NAME.yaml"
    assert refused(*BASE[1:], word) == said


def test_a_choice_that_hydra_cannot_compose_is_a_sentence(tmp_path: Path) -> None:
    done = command(*BASE, "cluster=[1]", folder=tmp_path)
    said = "error: cluster=[1] is no name of a file, as in scenarios/cluster/NAME.yaml\n"
    assert (done.stderr, done.returncode) == (said, 2)


@pytest.mark.parametrize("word", WRONG_TYPES)
def test_a_value_of_another_type_is_a_sentence(word: str) -> None:
    said = refused("workload=chats", *BASE, word)
    assert said.startswith(WRONG_TYPES[word])
    assert "\n" not in said
