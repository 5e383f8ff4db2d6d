"""Real vLLM beside simulated: the speed of a machine, constants of profiles, stored files."""

import argparse
import json
import pickle
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.config.paths import PROFILES
from harness.costs.iteration import iteration_seconds
from harness.costs.model import ProfileCosts
from harness.interface.entities import ServiceId
from harness.tools.calibrate import raw
from harness.tools.fidelity.prompt_pause import FITTED, Paused, fitted_pause, main
from harness.tools.fidelity.real_engine import MeasuredSetting, costs_of, simulated
from harness.tools.fidelity.real_engine import main as compare
from harness.tools.fidelity.speed import (
    BATCH,
    AtSpeed,
    Speed,
    against,
    reference_of,
    short_runs,
    speed_of,
    speeds_between,
    speeds_of,
    totals_of,
)

OPTIONS = argparse.Namespace(gpu="CPU", profile="cpu_vllm")
RESOLVED = {
    **{"max_num_seqs": 256, "max_num_batched_tokens": 2048},
    **{"kv_blocks": 400, "block_tokens": 32, "kv_bytes_per_token": 4096},
}
TINY = ServiceId("tiny")
BATCHES = [  # prompts, their tokens, attended; decodes, their contexts, the longest
    (1, 100, 1e4, 0, 0, 0),
    (2, 150, 2e4, 8, 900, 200),
    (0, 0, 0.0, 8, 908, 201),
    (0, 0, 0.0, 1, 300, 300),
]


@pytest.fixture(scope="module")
def costs() -> ProfileCosts:
    return costs_of(OPTIONS)


def seconds(costs: ProfileCosts) -> list[float]:
    """Of the batches."""
    table = costs.table(TINY, 1)
    return [
        iteration_seconds(table, prompts, tokens, tokens, attended, *decodes)
        for prompts, tokens, attended, *decodes in BATCHES
    ]


def measured(costs: ProfileCosts) -> pd.DataFrame:
    """The batches as a machine takes that is as fast as these costs."""
    rows = pd.DataFrame(BATCHES, columns=BATCH)
    return rows.assign(forward_s=seconds(costs), prepare_s=0.0, other_s=0.0)


def test_the_speed_of_a_machine_is_found_in_its_batches(costs: ProfileCosts) -> None:
    """Prompts take 1.5 times, decodes 1.2 times as long; a batch with both shares what is one."""
    slow = AtSpeed(costs, {"tiny": Speed(1.5, 1.2)})
    assert speed_of(measured(slow), costs, TINY) == pytest.approx((1.5, 1.2))
    assert speed_of(measured(costs), costs, TINY) == pytest.approx((1.0, 1.0))


def test_costs_at_a_speed(costs: ProfileCosts) -> None:
    slow = pickle.loads(pickle.dumps(AtSpeed(costs, {"tiny": Speed(1.5, 1.2)})))
    prompt_s, _, decode_s, _ = seconds(slow)
    assert (prompt_s, decode_s) == pytest.approx((1.5 * seconds(costs)[0], 1.2 * seconds(costs)[2]))
    assert slow.received_s(TINY, 1) == pytest.approx([1.2 * it for it in costs.received_s(TINY, 1)])
    other = ServiceId("small")
    assert slow.table(other, 1).decode_base_s[4] == costs.table(other, 1).decode_base_s[4]


def test_a_repetition_is_between_two_sweeps() -> None:
    speeds = [Speed(1.0, 1.0), Speed(1.2, 1.4), Speed(1.0, 1.0)]
    assert speeds_between(speeds) == [pytest.approx((1.1, 1.2))] * 2


def test_a_pause_of_the_machine_is_no_speed(costs: ProfileCosts) -> None:
    """The others took twice as long; the one that took 3 s more is one of them."""
    rows = measured(AtSpeed(costs, {"tiny": Speed(2.0, 2.0)}))
    rows["forward_s"] += [3.0, 0.0, 0.0, 0.0]
    assert speed_of(rows, costs, TINY) == pytest.approx((2.0, 2.0))


def test_stored_totals_give_the_speed_against_any_profile(costs: ProfileCosts) -> None:
    rows = measured(AtSpeed(costs, {"tiny": Speed(1.5, 1.2)}))
    swept = {
        "batches": rows[BATCH].to_numpy().tolist(),
        "totals": [list(totals_of(rows, costs, TINY))],
    }
    prefill, decode = reference_of(costs, TINY)
    assert speeds_of(swept, costs, TINY) == [pytest.approx((1.5 / prefill, 1.2 / decode))]
    assert speeds_of(None, costs, TINY) == []


def test_the_speed_is_1_for_the_minutes_of_the_profile(costs: ProfileCosts) -> None:
    rows, facts = raw.read(PROFILES / "cpu_vllm" / "tiny.parquet")
    short = short_runs(rows, facts)
    assert 50 < len(short) < len(rows) / 8
    found = against(speed_of(short, costs, TINY), reference_of(costs, TINY))
    assert found == pytest.approx((1.0, 1.0))
    assert reference_of(costs, TINY) == pytest.approx((1.0, 1.0), abs=0.05)
    assert reference_of(costs, ServiceId("none")) == (1.0, 1.0)


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


def test_noise_needs_two_repetitions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    assert compare(["--repeats", "1", "--out", str(out)]) == 2
    assert "--repeats=1" in capsys.readouterr().err
    assert not out.exists()
