"""Runs in one process need no Ray, no docker, and nothing that copies or fetches data."""

import subprocess
import sys

import pytest

from harness.config.paths import ROOT

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

WITHOUT = """
import sys
sys.modules |= dict.fromkeys(("ray", "docker", "wandb", "datasets"))
import harness.tools.fidelity.lease
from harness.run import composed, matrix_of
with composed("engine=vllm", "hardware=cpu", "workload.model=tiny", "tracking=none") as config:
    matrix = matrix_of(config)
    print(type(matrix.cell_at(matrix.places[0]).engine).__name__)
"""


def test_a_cell_of_vllm_is_built_without_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "Vllm\n"), done.stderr
