import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import run
from harness.config.paths import ROOT
from harness.costs.local_hardware import called, known_gpu
from harness.costs.model_facts import load_models
from harness.tests.support.configured import composed
from harness.tools.fidelity import real_engine, smoke_gpu


def test_names_of_drivers_are_recognised() -> None:
    assert known_gpu("NVIDIA H200") == "H200-141G"
    assert known_gpu("NVIDIA A100-SXM4-80GB") in {"A100-40G", "A100-80G"}
    assert known_gpu("GeForce GTX 1080") is None
    assert called("NVIDIA A100-SXM4-80GB", 80 * 2**30) == "A100-80G"
    assert called("NVIDIA GeForce GTX 1080") == "NVIDIA-GeForce-GTX-1080"


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(smoke_gpu, "open_nvml", lambda: None)
    assert smoke_gpu.main([]) == 3
    assert "no GPU here" in capsys.readouterr().err


def test_the_first_failure_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        ran.append(command)
        return SimpleNamespace(returncode=7)

    monkeypatch.setattr(subprocess, "run", run)
    assert smoke_gpu.run(smoke_gpu.on_gpu("NVIDIA-GeForce-GTX-1080")) == 7
    assert len(ran) == 1


@pytest.mark.parametrize("model", smoke_gpu.MODELS)
def test_its_models_are_there(model: str) -> None:
    assert model in load_models()
    assert (Path(ROOT) / "scenarios" / "models" / model / "config.json").is_file()


def test_a_rehearsal_runs_the_same_commands(tmp_path: Path) -> None:
    """Word for word, but for names, sizes and what only a rehearsal adds."""
    real = smoke_gpu.on_gpu("X")
    rehearsed = smoke_gpu.rehearsal(tmp_path)
    for one, other in zip(real, rehearsed, strict=True):
        options = [word.partition("=")[0] for word in one if word.startswith(("-", "+"))]
        assert set(options) <= {word.partition("=")[0] for word in other}


@pytest.mark.slow
@pytest.mark.vllm
def test_a_gpu_of_no_list_is_measured_served_and_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, for each command would import vLLM on its own; two loads of six."""
    pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    from harness.engines.vllm import timed_batches
    from harness.tools.calibrate.__main__ import main as calibrate
    from harness.tools.fidelity.real_engine import main as compare

    commands = {"harness.tools.calibrate": calibrate, "harness.tools.fidelity.real_engine": compare}

    def run_here(command: list[str], **_: Any) -> SimpleNamespace:
        if command[1] == "-m":
            return SimpleNamespace(returncode=commands[command[2]](command[3:]))
        with composed(*command[2:]) as config:
            return SimpleNamespace(returncode=run.run(config))

    monkeypatch.setattr(smoke_gpu, "subprocess", SimpleNamespace(run=run_here))
    loads = {it: real_engine.LOADS[it] for it in ("offline", "Poisson 0.8")}
    monkeypatch.setattr(real_engine, "LOADS", loads)
    monkeypatch.setattr(timed_batches, "SHORT_S", 0.01)
    assert smoke_gpu.main(["--rehearse"]) == 0
    assert "makespan_s, over all settings: off by" in capsys.readouterr().out
