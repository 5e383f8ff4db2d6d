"""The answer to which scheduler: on a small trace, from Python and from the command line."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.compare import Comparison, advice, compare, main


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 requests at 4 a second: long and short prompts in turn."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "arrival_s": round(number / 4, 2),
            "prompt_tokens": int(rng.integers(50, 2000)),
            "output_tokens": int(rng.integers(20, 300)),
        }
        for number in range(80)
    ]
    path = tmp_path_factory.mktemp("trace") / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


@pytest.mark.slow
def test_policies_are_compared_at_the_own_rate_and_at_shares_of_capacity(
    trace: Path, tmp_path: Path
) -> None:
    found = compare(trace, "Llama-2-7b-hf", policies=("srtf",), results=tmp_path / "results")
    assert sorted(found.figures["policy"].unique()) == ["srtf", "vllm"]
    assert found.own_load * found.capacity_per_s == pytest.approx(79 / 19.75, rel=1e-3)
    loads = found.figures["load"].unique().tolist()
    assert sorted(loads) == sorted([found.own_load, 0.5, 0.8, 0.95, 1.2])
    own = found.ratios.set_index(["policy", "load", "figure"])
    assert own.loc[[("vllm", 1.2, "jct_s_mean")]]["ratio"].item() == 1.0
    row = own.loc[[("srtf", 1.2, "jct_s_mean")]].iloc[0]
    assert row["low"] <= row["ratio"] <= row["high"]
    here = own.loc[[("srtf", found.own_load, "jct_s_mean")]].iloc[0]
    assert here["costs_low"] <= here["ratio"] <= here["costs_high"]


def test_the_advice_counts_figures_in_which_a_policy_is_beaten() -> None:
    """Of two figures `vllm` is best in one; `srtf` is best in one and as good in the other."""
    ratios = [
        {"load": 0.5, "policy": policy, "figure": figure, "ratio": ratio, "low": low, "high": 1.2}
        for policy, figure, ratio, low in (
            ("vllm", "jct_s_mean", 1.0, np.nan),
            ("vllm", "ttft_s_mean", 1.0, np.nan),
            ("srtf", "jct_s_mean", 0.8, 0.7),
            ("srtf", "ttft_s_mean", 1.1, 0.9),
        )
    ]
    best = [
        {"load": 0.5, "figure": "jct_s_mean", "policy": "srtf", "alike": ""},
        {"load": 0.5, "figure": "ttft_s_mean", "policy": "vllm", "alike": "srtf"},
    ]
    found = Comparison(
        figures=pd.DataFrame(),
        ratios=pd.DataFrame(ratios),
        best=pd.DataFrame(best),
        reference="vllm",
        capacity_per_s=1.0,
        own_load=0.5,
        about="",
        notes=(),
    )
    assert advice(found) == [
        "At the trace's own rate, load 0.50: srtf, beaten beyond noise in 0 of 2 figures; mean JCT "
        "s 0.80x [0.70, 1.20] of vllm's, mean TTFT s 1.10x [0.90, 1.20] of vllm's"
    ]


def test_bad_input_is_one_sentence(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(trace.with_name("no.jsonl")), "--model", "Llama-2-7b-hf"]) == 2
    assert capsys.readouterr().err == f"error: {trace.with_name('no.jsonl')} is no file\n"
