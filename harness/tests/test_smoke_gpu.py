import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness import smoke_gpu
from harness.costs.local_hardware import known_gpu
from harness.costs.model_facts import load_models
from harness.paths import ROOT


def test_names_of_drivers_are_recognised() -> None:
    assert known_gpu("NVIDIA H200") == "H200-141G"
    assert known_gpu("NVIDIA A100-SXM4-80GB") in {"A100-40G", "A100-80G"}
    assert known_gpu("GeForce GTX 1080") is None


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(smoke_gpu, "open_nvml", lambda: None)
    assert smoke_gpu.main() == 3
    assert "no GPU here" in capsys.readouterr().err


def test_the_first_failure_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    class Done:
        returncode = 7

    def run(command: list[str], **_: Any) -> Done:
        ran.append(command)
        return Done()

    monkeypatch.setattr(smoke_gpu, "open_nvml", lambda: object())
    monkeypatch.setattr(smoke_gpu, "gpu_name", lambda nvml: "NVIDIA H200")
    monkeypatch.setattr(subprocess, "run", run)
    assert smoke_gpu.main() == 7
    assert len(ran) == 1


@pytest.mark.parametrize("model", smoke_gpu.MODELS)
def test_its_models_are_there(model: str) -> None:
    assert model in load_models()
    assert (Path(ROOT) / "scenarios" / "models" / model / "config.json").is_file()
