import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.calibrate.stored import Sample  # noqa: E402
from harness.calibrate.sweep import Designed, Sweep, design, measure  # noqa: E402


def test_the_design_fits_the_kv() -> None:
    for most in (2000, 12_800):
        runs = design(most)
        assert runs
        assert all(sum(run.prompts) < most for run in runs)
    assert {run.gap for run in design(12_800)} == {0, 2}


class Machine(Sweep):
    """Measures every run in no time, always the same."""

    def __init__(self) -> None:
        self.kv_blocks, self.block_tokens = 400, 32
        self.ran: list[Designed] = []

    def run(self, designed: Designed) -> list[Sample]:
        """An iteration for every prompt."""
        self.ran.append(designed)
        return [Sample(1, it, it**2, 0, 0, 0, (it / 7, 0.1, 0.2)) for it in designed.prompts]


def test_every_run_is_repeated_behind_a_warm_up() -> None:
    machine, runs = Machine(), design(12_800, 4)
    samples, seconds = measure(machine, 2, 4)
    prompts = [prompt for run in runs for prompt in run.prompts]
    assert machine.ran[-2 * len(runs) :] == runs * 2
    assert [sample.prompt_tokens for sample in samples] == prompts
    assert seconds.shape == (2, len(prompts), 3)
