"""What a machine with a GPU measures in one go, rehearsed on the CPU."""

import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.engines.recorder import TIMES  # noqa: E402
from harness.tools.fidelity import lease, real_engine  # noqa: E402

LOADS = ("offline", "Poisson 0.8")
NOT_NEEDED = ("ray", "docker", "wandb", "datasets")
ROW = lease.FigureRow("a", "jct_s_mean", [2.0, 4.0], [3.3])


def start(folder: Path, *words: str) -> int:
    return lease.main(["tiny", "--out", str(folder), *words])


def summary(folder: Path) -> Any:
    return json.loads((folder / "tiny.json").read_text())["steps"]


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Every table of the tar, by STEP/RUN.TABLE."""
    with tarfile.open(folder / "tiny.tar") as archive:
        files = {name: archive.extractfile(name) for name in archive.getnames()}
        return {
            name.removesuffix(".parquet"): pd.read_parquet(file)  # type: ignore[arg-type]
            for name, file in files.items()
        }


def test_a_step_that_fails_is_a_line_and_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fails(_: object) -> list[lease.FigureRow]:
        raise RuntimeError("no kernel image\nis available")

    monkeypatch.setattr(lease, "BY_NAME", {"sweep": fails, "fidelity": lambda _: [ROW]})
    assert start(tmp_path, "--steps", "sweep", "fidelity") == 1
    said = capsys.readouterr().out
    assert "sweep: failed: RuntimeError: no kernel image\n" in said
    assert "+10.0%" in said
    assert summary(tmp_path)["sweep"]["failed"] == "RuntimeError: no kernel image"
    assert summary(tmp_path)["fidelity"]["rows"][0]["measured"] == [2.0, 4.0]


def test_no_step_begins_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(lease, "BY_NAME", {"sweep": lambda _: [ROW], "stock": lambda _: [ROW]})
    assert start(tmp_path, "--steps", "sweep") == 0
    assert start(tmp_path, "--steps", "stock", "--seconds", "1e-9") == 1
    assert "stock: left out, 1e-09 s are over" in capsys.readouterr().out
    assert list(summary(tmp_path)) == ["sweep"]  # of an earlier process


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--requests", "0"], "--requests=0 must be above 0"),
        (["--seconds", "nan"], "--seconds=nan must be above 0"),
        (["--gpu", "H300"], "H300"),
        (["--profile", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: Sequence[str], says: str
) -> None:
    assert start(tmp_path / "out", *words) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_every_step_leaves_its_runs_and_its_simulated_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two loads of six, without packages that runs in one process do not need."""
    monkeypatch.setattr(real_engine, "LOADS", {it: real_engine.LOADS[it] for it in LOADS})
    for package in NOT_NEEDED:
        monkeypatch.setitem(sys.modules, package, None)
    assert start(tmp_path, "--rehearse") == 0
    steps, found = summary(tmp_path), tables(tmp_path)
    assert list(steps) == list(lease.BY_NAME)
    for name, step in steps.items():
        assert step["rows"], name
        assert [name for row in step["rows"] if not (row["measured"] and row["simulated"])] == []
    assert {name.partition("/")[0] for name in found} == set(steps)
    assert set(found["sweep/tiny"]["repetition"]) == {0}
    assert steps["hermes"]["engines"] == steps["fidelity"]["engines"]
    for name in steps.keys() - {"sweep"}:
        runs = {key: table for key, table in found.items() if key.startswith(f"{name}/")}
        requests = {key: table for key, table in runs.items() if key.endswith(".requests")}
        assert requests
        for key, table in requests.items():
            assert table["finished_s"].notna().all()
            if name != "stock":
                assert list(runs[f"{key.removesuffix('.requests')}.times"]) == list(TIMES)
    # Batches make up all that was computed, each time after the one before.
    times = found["fidelity/vllm_offline_0.times"]
    served = found["fidelity/vllm_offline_0.requests"]
    assert (times[list(TIMES[:5])].diff(axis=1).iloc[:, 1:] >= 0).all(axis=None)
    assert times["prompt_tokens"].sum() == served["prompt_tokens"].sum()
    assert times["decodes"].sum() == (served["output_tokens"] - 1).sum()
    assert lease.STEPS.keys() < steps.keys()
