import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from harness.config.paths import PROFILES
from harness.costs.gpu_facts import gpu_facts, load_gpus
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.model_facts import load_models, model_facts
from harness.costs.roofline import read_calibration
from harness.interface.entities import ServiceId, Work
from harness.runs.published import RESULTS
from harness.tests.support.data import DATA, needs_data
from harness.tools.fidelity.__main__ import all_lines, as_json, main, pooled
from harness.tools.fidelity.applications import serve
from harness.tools.fidelity.lines import (
    ACROSS,
    AUTHORS,
    HELD_OUT,
    ONE_ENGINE,
    SAME_ROWS,
    gemm_seconds,
    line,
    ring_seconds,
)

ROOT = Path(__file__).parents[4]
HARDWARE = sorted(
    path
    for path in (ROOT / "scenarios" / "hardware").glob("*.yaml")
    # What the machine has, and what no machine is: both have tests of their own.
    if path.stem not in ("local", "linear_latency")
)
SUMMARY: list[dict[str, Any]] = json.loads(
    (RESULTS / "fidelity" / "summary.json").read_text("utf-8")
)["lines"]
ABOUT = {
    "source": "s",
    "gpu": "g",
    "engine": "e",
    "model": "m",
    "tensor_parallel": 1,
    "what": "decode iteration",
    "basis": HELD_OUT,
    "seen": False,
}


def test_errors_of_a_line_by_hand() -> None:
    """+10%, -20%, +50% and exact."""
    made = line([1.0, 1.0, 2.0, 4.0], [1.1, 0.8, 3.0, 4.0], **ABOUT)
    assert made.median_error == pytest.approx(0.15)
    assert made.bias == pytest.approx(0.05)
    assert made.p95_error == pytest.approx(0.2 + 0.85 * 0.3)
    assert (made.rows, made.low_s, made.high_s) == (4, 1.0, 4.0)


def test_pooled_lines_take_medians_of_errors_and_all_rows() -> None:
    first = line([1.0, 3.0], [1.1, 3.3], **ABOUT)
    second = line([2.0], [2.6], **(ABOUT | {"model": "n"}))
    other = line([2.0], [2.0], **(ABOUT | {"basis": ONE_ENGINE}))
    (row, alone) = pooled([first, second, other]).to_dict("records")
    assert (row["pairs"], row["rows"], row["low_s"], row["high_s"]) == (2, 3, 1.0, 3.0)
    assert row["median_error"] == pytest.approx(0.2)
    assert row["worst_median"] == pytest.approx(0.3)
    assert (alone["pairs"], alone["median_error"]) == (1, 0.0)


def test_the_file_keeps_every_field_and_four_digits() -> None:
    made = replace(line([1.0], [1.123456], **ABOUT), p95_error=None)
    (kept,) = json.loads(as_json([made]))["lines"]
    assert kept["median_error"] == 0.1235
    assert kept["p95_error"] is None
    assert kept["basis"] == HELD_OUT


def test_operators_by_hand() -> None:
    """Reading 2 x 10^6 weights at half of 2.039 TB/s; 2 GPUs send a message of 54 MB once."""
    gpu = gpu_facts("A100-80G")
    found = replace(
        read_calibration(PROFILES / "roofline"),
        memory_efficiency=0.5,
        flops_efficiency=0.5,
        link_efficiency={2: 0.18},
    )
    ones = pd.Series([1.0])
    assert gemm_seconds(ones, 1e6 * ones, gpu, found).item() == pytest.approx(
        2e6 / 1.0195e12, rel=1e-3
    )
    compute_s = 2 * 1e6 * 1e6 / 156e12
    assert gemm_seconds(1e6 * ones, 1e6 * ones, gpu, found).item() == pytest.approx(
        compute_s, rel=1e-3
    )
    assert ring_seconds(54e6 * ones, 2 * ones, gpu, found).item() == pytest.approx(1e-3)


def test_requests_are_served_in_the_order_of_their_arrival() -> None:
    recorded = pd.DataFrame(
        {"prompt_len": [256, 256, 64], "output_len": [64, 32, 16], "req_time_s": [0.0, 0.5, 1.0]}
    )
    served = serve(recorded)
    assert (np.diff(served.first_token_s) > 0).all()
    assert (served.finished_s > served.first_token_s).all()
    # alone, a prompt of 256 tokens takes about as long as one of the profile's batches of them
    assert 0.05 < served.first_token_s[0] < 0.2


def test_missing_measurements_are_one_sentence_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"Not all measurements are in {str(tmp_path)!r}: ")
    assert said.count("\n") == 1


@needs_data
@pytest.mark.slow
def test_the_summary_is_what_the_data_give() -> None:
    """All but most of the applications, which come last and are simulated 456 times."""
    lines = len(SUMMARY) - len([it for it in SUMMARY if "application time" in it["what"]]) + 3
    made = json.loads(as_json(islice(all_lines(DATA), lines)))["lines"]
    for ours, kept in zip(made, SUMMARY[:lines], strict=True):
        for name, value in kept.items():
            assert ours[name] == (pytest.approx(value, rel=0.02, abs=1e-3) if name.endswith(
                ("error", "bias", "_s")
            ) and value is not None else value)  # fmt: skip


def _lines(**about: object) -> list[dict[str, Any]]:
    return [
        entry for entry in SUMMARY if all(entry[name] == value for name, value in about.items())
    ]


LOGGED = {"engine": "vLLM 0.3.0, eager", "basis": HELD_OUT}


def test_aims_for_the_logged_engine() -> None:
    """One pair of 46 misses 2% on prompts: mpt-7b-chat on two GPUs, at 2.05%."""
    decodes, prompts = (
        _lines(what=f"{phase} iteration", **LOGGED) for phase in ("decode", "prefill")
    )
    assert len(decodes) == len(prompts) == 46
    assert max(entry["median_error"] for entry in decodes) <= 0.03
    above = [entry for entry in prompts if entry["median_error"] > 0.02]
    assert [(entry["model"], entry["tensor_parallel"]) for entry in above] == [("mpt-7b-chat", 2)]
    assert above[0]["median_error"] <= 0.021


def test_aims_for_other_measured_profiles() -> None:
    """Held out, the median over models and sizes. Missed: prompts of Splitwise on A100, at 11%."""
    for gpu, source, phase, most in (
        ("A100-80G", "MuxServe", "decode", 0.03),
        ("A100-80G", "MuxServe", "prefill", 0.02),
        ("A100-80G", "Splitwise", "decode", 0.03),
        ("H100-80G", "Splitwise", "decode", 0.03),
        ("H100-80G", "Splitwise", "prefill", 0.03),
        ("A10G-24G", "S-LoRA", "decode", 0.03),
    ):
        lines = _lines(gpu=gpu, source=source, what=f"{phase} iteration", basis=HELD_OUT)
        assert np.median([entry["median_error"] for entry in lines]) <= most


def test_the_corrected_roofline_is_better_for_the_median_group_of_authors() -> None:
    """Not for each: it is worse for S-LoRA on the A10G and for DistServe's own engine."""
    for phase in ("prefill", "decode"):
        medians = {}
        for basis in (ONE_ENGINE, ACROSS):
            lines = _lines(what=f"{phase} iteration", basis=basis)
            others = [entry for entry in lines if entry["engine"] != LOGGED["engine"]]
            frame = pd.DataFrame(others).groupby("source")["median_error"].median()
            medians[basis] = frame.median()
        assert medians[ACROSS] < 0.85 * medians[ONE_ENGINE]


def test_lines_say_what_the_predictor_had_seen() -> None:
    for entry in SUMMARY:
        assert entry["seen"] or entry["basis"] != SAME_ROWS
        assert not entry["seen"] or entry["basis"] not in (HELD_OUT, ACROSS, ONE_ENGINE)
        assert entry["median_error"] is not None
    assert sorted(entry["rows"] for entry in _lines(basis=AUTHORS)) == [4, 10, 16, 16]


@pytest.mark.parametrize("path", HARDWARE, ids=lambda path: path.stem)
def test_every_model_that_fits_has_a_finite_cost_on_every_machine(path: Path) -> None:
    hardware = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert hardware["gpu_count"] % hardware["nvlink_island"] == 0
    costs = ProfileCosts(
        gpu=hardware["gpu"],
        profile_dir=hardware["profile"],
        memory_share=hardware["memory_share"],
        parts=PARTS,
    )
    works = (
        Work(
            prefill_requests=1,
            prefill_tokens=256,
            prefill_padded_tokens=256,
            prefill_attended=65536,
        ),
        Work(decode_requests=16, context_tokens=16 * 300, longest_tokens=300),
    )
    fitting = []
    for name in load_models():
        heads, service = model_facts(name).attention_heads, ServiceId(name)
        sizes = [size for size in (1, 2, 4, 8) if heads % size == 0]
        fits = [size for size in sizes if costs.kv_blocks(service, size) > 0]
        for size in fits:
            seconds = [costs.iteration_s(service, size, work) for work in works]
            longest_s = 1000.0 if hardware["gpu"] == "CPU" else 10.0
            assert all(1e-3 < second < longest_s for second in seconds)
            assert 0.0 < costs.load_s(service, size) < 3600.0
            assert costs.label(name, size).startswith(("measured", "roofline"))
        fitting.append(bool(fits))
    assert sum(fitting) >= 30


def test_there_is_a_machine_for_every_gpu() -> None:
    found = {yaml.safe_load(path.read_text(encoding="utf-8"))["gpu"] for path in HARDWARE}
    assert found == set(load_gpus())
