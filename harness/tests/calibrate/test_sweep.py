from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.calibrate.checkpoint import Checkpoint, Sample  # noqa: E402
from harness.calibrate.sweep import Designed, design, measure  # noqa: E402


def test_the_design_fits_the_kv() -> None:
    for most in (2000, 12_800):
        runs = design(most)
        assert runs
        assert all(sum(run.prompts) < most for run in runs)
    assert {run.gap for run in design(12_800)} == {0, 2}


class Machine:
    """Measures every run in no time, always the same, and is interrupted at one of them."""

    kv_blocks, block_tokens = 400, 32

    def __init__(self, interrupted_at: int | None = None) -> None:
        self.ran: list[Designed] = []
        self._interrupted_at = interrupted_at

    def run(self, designed: Designed) -> list[Sample]:
        """An iteration for every prompt."""
        if len(self.ran) == self._interrupted_at:
            raise KeyboardInterrupt
        self.ran.append(designed)
        return [Sample(1, it, it**2, 0, 0, 0, (it / 7, 0.1, 0.2)) for it in designed.prompts]


def kept(folder: Path, about: str = "this") -> Checkpoint:
    return Checkpoint(folder / "measured.jsonl", {"model": about})


def test_an_interrupted_calibration_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = Machine()
    expected = measure(whole, 2, 4, kept(tmp_path / "whole"))
    warm_up = len(whole.ran) - 2 * len(design(12_800, 4))
    first = Machine(interrupted_at=warm_up + 40)
    with pytest.raises(KeyboardInterrupt):
        measure(first, 2, 4, kept(tmp_path))
    second = Machine()
    samples, seconds = measure(second, 2, 4, kept(tmp_path))
    assert len(second.ran) == len(whole.ran) - 40
    assert samples == expected[0]
    assert np.array_equal(seconds, expected[1])
    third = Machine()
    measure(third, 2, 4, kept(tmp_path))
    assert third.ran == []


def test_half_a_line_and_what_is_of_something_else_are_measured_again(tmp_path: Path) -> None:
    measure(Machine(), 1, 2, kept(tmp_path))
    file = tmp_path / "measured.jsonl"
    runs = len(kept(tmp_path))
    file.write_text(file.read_text()[:-9])
    assert len(kept(tmp_path)) == runs - 1
    assert kept(tmp_path).get(0, runs - 1) is None
    assert len(kept(tmp_path, about="that")) == 0
    kept(tmp_path).discard()
    assert not file.exists()
