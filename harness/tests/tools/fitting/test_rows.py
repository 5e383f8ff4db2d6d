import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.config.paths import PROFILES
from harness.costs.model_facts import load_models
from harness.costs.profiles import profile_from, read_profiles
from harness.tests.support.data import DATA
from harness.tools.fitting.iteration_rows import (
    MeasuredSource,
    by_pair,
    coefficients,
    iteration_rows,
    measured_sources,
)
from harness.tools.fitting.rows import (
    coefficient_entry,
    fit_entry,
    fit_error,
    held_out_seconds,
    measured_files,
    predicted_seconds,
    profile_sources,
    share_table,
)
from harness.tools.fitting.stored import as_text

needs_data = pytest.mark.skipif(
    not all((DATA / source.file).is_file() for source in measured_sources()),
    reason=f"the measurements are not in {DATA}",
)
Read = Callable[..., list[list[object]]]
SHARED = {
    "model": "m",
    "gpu": "A100-80G",
    "engine": "e",
    "kind": "measured",
    "source": "s",
    "block_tokens": 16,
}


def _source(kind: str, file: str, **changes: object) -> MeasuredSource:
    fields = {
        "folder": "f",
        "family": "authors",
        "kind": kind,
        "file": file,
        "keep": {},
        "gpu": "A100-80G",
        "engine": "e",
        "models": {"theirs": "ours"},
        "source": "s",
        "note": "",
    }
    return MeasuredSource(**(fields | changes))  # type: ignore[arg-type]


def _prefill_s(requests: int, length: int) -> float:
    return 0.02 + 1e-4 * requests * length + 2e-9 * requests * length**2


def _decode_s(requests: int, length: int) -> float:
    return 0.01 + 1e-4 * requests + 3e-7 * requests * length


def _rows() -> pd.DataFrame:
    """Batches whose seconds are linear functions."""
    batches = [(n, s) for n in (1, 2, 4, 8, 16) for s in (32, 64, 128, 256)]
    found = [("prefill", n, s, _prefill_s(n, s)) for n, s in batches]
    found += [("decode", n, s, _decode_s(n, s)) for n, s in batches]
    rows = pd.DataFrame(found, columns=["phase", "requests", "length", "seconds"])
    return rows.assign(model="ours", tp=1)


def test_linear_batches_are_fitted_and_predicted_between_and_beyond() -> None:
    profile = profile_from(SHARED, 1, fit_entry(_rows()))
    unseen = pd.DataFrame(
        [
            ("prefill", 3, 100, _prefill_s(3, 100)),
            ("prefill", 16, 512, _prefill_s(16, 512)),
            ("decode", 12, 200, _decode_s(12, 200)),
            ("decode", 24, 300, _decode_s(24, 300)),
        ],
        columns=["phase", "requests", "length", "seconds"],
    )
    assert predicted_seconds(profile, unseen) == pytest.approx(unseen["seconds"], rel=0.01)


def test_a_left_out_size_is_predicted_from_its_neighbours() -> None:
    """But for the smallest and the largest; what is off by 2 on one size shows as that."""
    rows = _rows()
    kept, seconds = held_out_seconds(rows)
    assert set(rows["requests"][kept]) == {2, 4, 8}
    assert seconds == pytest.approx(rows["seconds"][kept], rel=0.02)
    assert max(fit_error(rows).values()) < 0.02
    off = rows.assign(seconds=rows["seconds"].where(rows["requests"] != 4, 2 * rows["seconds"]))
    kept, seconds = held_out_seconds(off)
    of_four = off["requests"].to_numpy()[kept] == 4
    ratios = seconds[of_four] / off["seconds"].to_numpy()[kept][of_four]
    assert ratios == pytest.approx(0.5, abs=0.02)


COEFFICIENTS = pd.DataFrame(
    {
        "model": "theirs",
        "tp": 2,
        "phase": ["prefill", "decoding_smallbs", "decoding_largebs"],
        "decode_batch_threshold": 10,
        "c0": [20.0, 10.0, 5.0],
        "c1": [0.1, 0.001, 0.002],
        "c2": [1e-5, 0.05, 0.1],
    }
)


def test_coefficients_are_kept_on_both_sides_of_their_threshold() -> None:
    """In ms: 10 + 0.001 x 900 + 0.05 x 9 = 11.35 and 5 + 0.002 x 1000 + 0.1 x 10 = 8."""
    assert coefficients(COEFFICIENTS)["prefill"] == pytest.approx((0.02, 1e-4, 1e-8))
    profile = profile_from(SHARED, 2, coefficient_entry(COEFFICIENTS))
    batches = [("decode", 9, 100), ("decode", 10, 100), ("prefill", 2, 100)]
    rows = pd.DataFrame(batches, columns=["phase", "requests", "length"])
    by_hand = [0.01135, 0.008, 0.02 + 0.02 + 2 * 1e-8 * 100**2]
    assert predicted_seconds(profile, rows) == pytest.approx(by_hand)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Every kind of file is brought to the same columns."""

    def read(kind: str, rows: pd.DataFrame, **changes: object) -> list[list[object]]:
        rows.to_csv(tmp_path / "rows.csv.gz", index=False)
        return iteration_rows(_source(kind, "rows.csv.gz", **changes), tmp_path).to_numpy().tolist()

    return read


def test_a_grid_is_read_on_whole_gpus(read: Read) -> None:
    grid = pd.DataFrame(
        {
            "model": "theirs",
            "tp": 1,
            "sm_percent": [100, 50, 100],
            "batch_size": [4, 4, 2048],  # half the SMs; beyond what costs know
            "seq_len": 64,
            "prefill_ms": 30.0,
            "decode_ms": 20.0,
        }
    )
    assert read("grid", grid) == [
        ["ours", 1, "prefill", 4, 64, 0.03],
        ["ours", 1, "decode", 4, 64, 0.02],
    ]


def test_repeated_batches_are_read_as_their_means(read: Read) -> None:
    means = pd.DataFrame(
        {
            "model": "theirs",
            "tp": 2,
            "prompt_size": 512,
            "batch_size": [1, 1, 2],
            "token_size": 128,
            "prompt_ms": [90.0, 110.0, 50.0],  # twice the prompts in half the time: left out
            "token_ms": [30.0, 40.0, 35.0],
        }
    )
    assert read("means", means) == [
        ["ours", 2, "prefill", 1, 512.0, 0.1],
        ["ours", 2, "decode", 1, 576.0, 0.035],
    ]


def test_a_list_is_read_with_what_its_source_says_of_it(read: Read) -> None:
    listed = pd.DataFrame(
        {
            "phase": ["decode", "prefill"],
            "batch_size": 2.0,
            "num_tokens": [2, 300],
            "batch_s": [0.05, 0.5],
        }
    )
    assert read("list", listed, tensor_parallel=4, decode_context=1024) == [
        ["ours", 4, "decode", 2, 1024.0, 0.05],
        ["ours", 4, "prefill", 2, 300.0, 0.5],
    ]


def test_coefficients_are_read_at_the_batches_asked_for(read: Read) -> None:
    asked = {"requests": [9, 10], "lengths": [100], "most_prefill_tokens": 900}
    assert read("coefficients", COEFFICIENTS, **asked) == [
        ["ours", 2, "prefill", 9, 100, pytest.approx(0.02 + 0.09 + 9e-4)],
        ["ours", 2, "decode", 9, 100, pytest.approx(0.01135)],
        ["ours", 2, "decode", 10, 100, pytest.approx(0.008)],
    ]


def test_shares_of_the_sms_are_ratios_to_the_whole() -> None:
    rows = pd.DataFrame(
        {
            "sm_percent": [100, 50, 100, 50],
            "batch_size": [1, 1, 2, 2],
            "seq_len": 32,
            "prefill_ms": [10.0, 18.0, 20.0, 40.0],
            "decode_ms": [10.0, 11.0, 10.0, 12.0],
        }
    )
    counts = {"tokens": [32, 64], "requests": [1, 2]}
    expected = {**counts, "prefill": [1.8, 2.0], "decode": [1.1, 1.2]}
    assert share_table(rows) == {"50": expected}


@pytest.mark.parametrize("source", profile_sources(), ids=lambda source: source.folder)
def test_every_stored_profile_says_what_it_was_fitted_on(source: MeasuredSource) -> None:
    profiles = read_profiles(PROFILES / source.folder)
    assert {model for model, _ in profiles} == set(source.models.values()) <= set(load_models())
    for profile in profiles.values():
        assert (profile.gpu, profile.source) == (source.gpu, source.source)
        assert bool(profile.error) == (source.kind != "coefficients")
    for path in (PROFILES / source.folder).glob("[!r]*.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["note"]


@needs_data
@pytest.mark.slow
def test_profiles_are_reproduced_byte_for_byte() -> None:
    for source in profile_sources():
        for name, content in measured_files(source, DATA):
            kept = (PROFILES / source.folder / name).read_text(encoding="utf-8")
            assert as_text(content) == kept


@needs_data
def test_stored_profiles_predict_the_rows_they_were_fitted_on() -> None:
    for source in profile_sources():
        profiles = read_profiles(PROFILES / source.folder)
        for model, size, pair in by_pair(iteration_rows(source, DATA)):
            errors = predicted_seconds(profiles[model, size], pair) / pair["seconds"] - 1.0
            assert np.median(np.abs(errors)) < 0.02
