from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.costs.model_facts import model_facts  # noqa: E402
from harness.engines.vllm.designed import Designed, design, is_short  # noqa: E402
from harness.interface.entities import Service, ServiceId  # noqa: E402
from harness.tools.calibrate.model import engine  # noqa: E402
from harness.tools.calibrate.sweep import CalibrationSweep, measure  # noqa: E402


def test_the_design_fits_the_kv_and_the_limits() -> None:
    for most in (2000, 12_800):
        runs = design(most, 16, 512)
        assert runs
        assert all(sum(run.prompts) < most and len(run.prompts) <= 16 for run in runs)
        assert max(run.budget for run in runs) == 512
    assert {run.gap for run in design(12_800, 128, 2048)} == {0, 2}


def test_a_short_sweep_has_one_run_of_each_size_and_arrival() -> None:
    short = [run for run in design(12_800, 128, 2048) if is_short(run)]
    assert {(len(run.prompts), run.budget, run.gap) for run in short} == {
        (count, *arrival) for count in (1, 8, 32) for arrival in ((2048, 0), (160, 0), (2048, 2))
    }


@pytest.fixture(scope="module")
def tiny() -> Iterator[CalibrationSweep]:
    facts = model_facts("tiny")
    service = Service(ServiceId("tiny"), facts.kv_bytes_per_token, facts.max_context_tokens)
    sweep = CalibrationSweep(engine(400), service)
    yield sweep
    sweep.stop()


def test_an_iteration_is_what_was_designed(tiny: CalibrationSweep) -> None:
    """Three prompts at once, chunks of at most 20 tokens beside decodes; answers of 12 to 14."""
    rows = tiny.run(Designed((10, 16, 5), 20, 0))
    assert rows["received"].tolist() == [3] + [0] * (len(rows) - 1)
    assert rows[["prompts", "prompt_tokens", "decodes"]].head(3).to_numpy().tolist() == [
        [2, 20, 0],
        [2, 11, 1],
        [0, 0, 3],
    ]
    assert rows["decodes"].max() == 3
    assert (rows[["received_s", "prepare_s", "forward_s", "other_s"]] >= 0).to_numpy().all()


def test_requests_come_one_by_one(tiny: CalibrationSweep) -> None:
    rows = tiny.run(Designed((10, 16, 5), 2048, 2))
    assert np.flatnonzero(rows["received"]).tolist() == [0, 2, 4]
    assert np.flatnonzero(rows["prompts"]).tolist() == [0, 2, 4]


def test_repetitions_have_the_same_batches(tiny: CalibrationSweep, tmp_path: Path) -> None:
    rows = measure(tiny, 2, 2)
    computed = [it for it in map(str, rows) if not it.endswith("_s") and it != "repetition"]
    first, second = (part[computed] for _, part in rows.groupby("repetition"))
    pd.testing.assert_frame_equal(first, second.reset_index(drop=True))
