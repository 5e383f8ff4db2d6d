"""Lengths of a recorded file, drawn for other arrivals."""

from pathlib import Path

import numpy as np
import pytest

from harness.config import inputs
from harness.workloads.recorded_lengths import RecordedLengths

ROWS = "arrival_s,prompt_tokens,output_tokens\n0,10,1\n1,20,2\n2,30,3\n3,40,0\n"


def test_pairs_stay_as_they_are_and_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(ROWS)
    lengths = RecordedLengths(file=str(path), columns=None)
    one, other = (lengths.draw(90, *map(np.random.default_rng, (3, 4))) for _ in range(2))
    assert one.prompt_tokens.tolist() == other.prompt_tokens.tolist()
    assert set(zip(*map(np.ndarray.tolist, one), strict=True)) == {(10, 1), (20, 2), (30, 3)}
    assert lengths.files == inputs.digests([path])


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"workload\.lengths\.file=nowhere\.csv is no file"):
        RecordedLengths(file="nowhere.csv", columns=None)
