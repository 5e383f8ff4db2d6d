"""A constant for iterations with prompts, found in whole runs."""

import argparse
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.config.paths import PROFILES
from harness.tools.fidelity.prompt_pause import FITTED, Paused, fitted_pause, main
from harness.tools.fidelity.real_engine import MeasuredSetting, costs_of, simulated
from harness.tools.fidelity.real_engine import main as compare

OPTIONS = argparse.Namespace(gpu="CPU", profile="cpu_vllm")
RESOLVED = {
    **{"max_num_seqs": 256, "max_num_batched_tokens": 2048},
    **{"kv_blocks": 400, "block_tokens": 32, "kv_bytes_per_token": 4096},
}


def entries(pause_s: float) -> list[dict[str, Any]]:
    """Settings as they are stored, of a machine whose iterations with prompts take longer."""
    costs = Paused(costs_of(OPTIONS, RESOLVED), pause_s)
    found = []
    for load, rate in (("offline", None), ("Poisson 0.5", 20.0)):
        setting = MeasuredSetting("tiny", "vllm", load, 20, rate, 1.0)
        means = simulated(setting, costs, RESOLVED)
        told = {name: {"measured": means[name], "noise": 0.0} for name in FITTED}
        found.append(asdict(setting) | {"means": told, "repetitions": 2})
    return found


def test_the_constant_that_runs_were_made_with_is_found() -> None:
    found = fitted_pause(entries(2e-3), costs_of(OPTIONS, RESOLVED), RESOLVED)
    assert found.pause_s == pytest.approx(2e-3)
    assert found.low_s <= found.pause_s <= found.high_s < 3e-3


def test_a_profile_gets_a_constant_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profiles, path = tmp_path / "profiles", tmp_path / "stored.json"
    profiles.mkdir()
    for name in ("tiny.json", "roofline.json"):
        shutil.copy(PROFILES / "cpu_vllm" / name, profiles)
    content = {"engine": "", "machine": {}, "sweeps": {}, "resolved": {"tiny": RESOLVED}}
    path.write_text(json.dumps(content | {"settings": entries(2e-3)}))
    words = [str(path), "--gpu", "CPU", "--profile", str(profiles), "--write"]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("2.0 ms")
    assert "2.0 ms" in json.loads((profiles / "tiny.json").read_text())["note"]
    assert json.loads(path.read_text())["note"].startswith("measurements were divided by a probe")
    assert main(words) == 2
    assert "has a constant already" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "said"), [("{}", "has no engine"), ("nothing", "cannot be read")])
def test_a_file_of_something_else_is_named(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    assert compare(["--again", str(path)]) == 2
    assert main([str(path), "--gpu", "CPU", "--profile", "cpu_vllm"]) == 2
    told = capsys.readouterr().err
    assert told.count(f"{path} {said}") == 2
