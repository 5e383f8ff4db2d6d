from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.config.paths import PROFILES
from harness.costs.iteration import expand, iteration_seconds
from harness.costs.model import PARTS
from harness.costs.profiles import read_profiles
from harness.tests.support.data import DATA, ITERATIONS, needs_data
from harness.tools.fitting.__main__ import main
from harness.tools.fitting.applications import application_files
from harness.tools.fitting.components import FOLDER, profile_files
from harness.tools.fitting.in_process import in_process_file
from harness.tools.fitting.lengths import MEASURED_HERE, length_files, thinned
from harness.tools.fitting.robust import fit_relative, hats, ramps
from harness.tools.fitting.roofline import calibration_file
from harness.tools.fitting.stored import as_text

APPLICATIONS = PROFILES / "applications"
MEASURED = [key for key, p in read_profiles(PROFILES / FOLDER).items() if p.decode]


@pytest.mark.parametrize(("model", "size"), MEASURED)
def test_held_out_errors_are_within_their_aims(model: str, size: int) -> None:
    error = read_profiles(PROFILES / FOLDER)[model, size].error
    assert error["decode_median"] <= 0.03
    assert error["prefill_median"] <= 0.021  # one pair, mpt-7b-chat on two GPUs, is at 0.0205


@needs_data
def test_profiles_predict_random_measured_rows() -> None:
    """Recomputed from the stored coefficients by the code that serves them."""
    rows = pd.read_parquet(ITERATIONS).sample(6000, random_state=1)
    profiles = read_profiles(PROFILES / FOLDER)
    tables = {key: expand(profiles[key], PARTS) for key in MEASURED}
    errors: dict[bool, list[float]] = {True: [], False: []}
    for row in rows.to_dict("records"):
        table = tables[row["model"], row["tp"]]
        requests, tokens, longest = row["n_seqs"], row["context_tokens"], row["max_len"]
        padded = requests * longest
        if row["is_prefill"]:
            work = (requests, tokens, padded, float(padded * longest), 0, 0, 0)
        else:
            work = (0, 0, 0, 0.0, requests, tokens, longest)
        seconds = iteration_seconds(table, *work)
        errors[row["is_prefill"]].append(abs(seconds / row["iter_s"] - 1))
    assert np.median(errors[True]) < 0.01
    assert np.median(errors[False]) < 0.015
    assert np.quantile(errors[False], 0.9) < 0.08


@needs_data
@pytest.mark.slow
def test_a_model_is_reproduced_byte_for_byte() -> None:
    for name, content in profile_files(DATA, frozenset({"gpt-j-6b"})):
        kept = (PROFILES / FOLDER / name).read_text(encoding="utf-8")
        assert as_text(content) == kept


@needs_data
def test_applications_are_reproduced_byte_for_byte() -> None:
    made = {name: as_text(content) for name, content in application_files(DATA)}
    kept = {path.name: path.read_text(encoding="utf-8") for path in APPLICATIONS.iterdir()}
    del kept["LLMR.json"]  # no run of LLM reasoning is recorded: written by hand
    assert made == kept


@needs_data
def test_lengths_are_reproduced_byte_for_byte() -> None:
    made = {name: as_text(content) for name, content in length_files(DATA)}
    kept = {
        path.name: path.read_text(encoding="utf-8")
        for path in (PROFILES / "lengths").iterdir()
        if not path.name.startswith(MEASURED_HERE)
    }
    assert made == kept


def test_the_calibration_is_reproduced_byte_for_byte() -> None:
    kept = (PROFILES / FOLDER / "roofline.json").read_text(encoding="utf-8")
    assert as_text(calibration_file(PROFILES / FOLDER)) == kept


def test_missing_measurements_are_one_sentence_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--data", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"There are no measurements in {str(tmp_path)!r}.\n"


def test_sparse_outliers_do_not_move_a_fit() -> None:
    requests = np.arange(1, 201).astype(np.float64)
    knots = np.array([1.0, 100.0, 200.0])
    columns = np.hstack([np.ones((200, 1)), ramps(requests, knots)])
    times_s = 1.0 + np.where(requests < 100, 0.0, (requests - 100) / 100)
    times_s[::25] *= 5.0
    found = fit_relative(columns, times_s, times_s)
    assert found == pytest.approx([1.0, 0.0, 1.0], abs=0.02)


def test_hats_interpolate() -> None:
    knots, values = np.array([1.0, 3.0, 9.0]), np.array([1.0, 2.0, 6.0, 9.0, 12.0])
    assert hats(values, knots) @ np.array([5.0, 7.0, 1.0]) == pytest.approx([5, 6, 4, 1, 1])


def test_thinning_keeps_a_distribution_and_its_cap() -> None:
    """Half of the mass at 5,000, the rest even on 1..4,999: nothing may leak beside the cap."""
    tokens = np.arange(1, 5001)
    share = np.full(5000, 0.5 / 4999)
    share[-1] = 0.5
    at, cumulative = thinned(tokens, np.cumsum(share))
    assert len(at) < 600
    assert (at[0], cumulative[0], at[-1], cumulative[-1]) == (0, 0.0, 5000, 1.0)
    assert (at[-2], cumulative[-2]) == (4999, pytest.approx(0.5))
    assert np.interp(2500, at, cumulative) == pytest.approx(0.25, abs=1e-3)


def test_terms_of_an_engine_in_process_follow_from_its_profiles() -> None:
    kept = (PROFILES / "engines" / "vllm-sync.json").read_text(encoding="utf-8")
    assert as_text(in_process_file()) == kept
