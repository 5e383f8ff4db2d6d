"""Factors of a server that is simulated at other seconds: found, and what they predict."""

import json
from pathlib import Path

import pytest

from harness import api
from harness.__main__ import main
from harness.config.paths import ROOT
from harness.observed import ObservedServer, fit
from harness.tests.support.server_log import MODEL, simulated_log


@pytest.mark.parametrize(("all_s", "prompts_s"), [(1.3, 1.3), (0.9, 1.3), (1.0, 1.0)])
def test_hidden_factors_are_found_and_predict_the_other_half(
    tmp_path: Path, all_s: float, prompts_s: float
) -> None:
    """One of all iterations, and one of decodes beside another of prompts."""
    hidden = {"scale_seconds": all_s, "scale_prompt_seconds": prompts_s / all_s}
    log = simulated_log(tmp_path, *(f"hardware.{key}={value}" for key, value in hidden.items()))
    said: list[str] = []
    found = fit(ObservedServer(log=log, model=MODEL, folder=tmp_path / "fit"), say=said.append)
    assert dict(found.factors) == pytest.approx(hidden, rel=0.03)
    assert found.words[0].startswith("hardware.scale_seconds=")
    assert api.configuration(*found.words).hardware.scale_seconds == pytest.approx(all_s, rel=0.03)
    assert (found.fitted, found.withheld) == (100, 100)
    errors = found.errors
    assert (errors["median_after"] <= 0.03).all()
    assert (errors.loc[["tpot_s", "jct_s"], "p90_after"] <= 0.03).all()
    if all_s != 1.0:
        assert (errors["median_after"] < errors["median_before"] / 4).all()
        assert errors["bias_before"].abs().loc["tpot_s"] > 0.05
    assert "200 requests in" in said[0]
    assert tuple(said) == found.notes


def test_the_factors_come_on_top_of_those_of_the_machine(tmp_path: Path) -> None:
    """A machine whose file has 2.3: its own log needs no other."""
    machine = ("hardware=a100_40g_pcie_log", "hardware.gpu_count=1", "hardware.nvlink_island=1")
    log = simulated_log(
        tmp_path, *machine, "hardware.engine=vllm-0.3-eager", requests=120, rate_per_s=0.5
    )
    asked = ObservedServer(
        log=log,
        model=MODEL,
        gpu="a100_40g_pcie_log",
        more=["hardware.engine=vllm-0.3-eager"],
        folder=tmp_path / "fit",
    )
    assert fit(asked).factors["scale_seconds"] == pytest.approx(2.3, rel=0.03)


def test_a_far_server_is_said_to_be_another(tmp_path: Path) -> None:
    log = simulated_log(tmp_path, "hardware.scale_seconds=20", rate_per_s=0.2)
    found = fit(ObservedServer(log=log, model=MODEL, folder=tmp_path / "fit"))
    assert found.is_at_limit
    assert "a factor lies at the limit of 8: the server has probably" in found.notes[-1]


def test_a_real_log_predicts_its_second_half(tmp_path: Path) -> None:
    """TPOT and JCT; pages/plan says why TTFT is farther off."""
    log = ROOT / "results" / "plans" / "m100-cpu" / "log.jsonl"
    errors = fit(ObservedServer(log=log, model="m100", gpu="cpu", folder=tmp_path)).errors
    assert (errors.loc[["tpot_s", "jct_s"], "median_after"] < 0.1).all()
    assert (errors["median_after"] < errors["median_before"]).all()


def test_the_command_prints_factors_and_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = simulated_log(tmp_path, "hardware.scale_seconds=1.3", requests=80)
    assert main(["observed", str(log), "--model", MODEL, f"--folder={tmp_path / 'fit'}"]) == 0
    text = capsys.readouterr().out
    assert "fitted to the first 40 requests: iterations without prompts take 1." in text
    assert "words of later runs: hardware.scale_seconds=1." in text
    assert "the 40 requests withheld, before and after the fit" in text
    assert all(f"\n{name} " in text for name in ("TTFT", "TPOT", "JCT"))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            "hardware.scale_seconds=2",
            "observed sets hardware.scale_seconds itself: they are fitted",
        ),
        ("workload.file=x", "observed sets workload.file itself"),
        ("workload.too_long=drop", "sets workload.too_long itself: all requests of the log"),
        ("system.placement.tensor_parallel=2", "itself (--tensor-parallel, --data-parallel)"),
        ("hardware=a100_80g_1", "observed sets hardware itself (--gpu)"),
    ],
)
def test_words_that_are_not_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, sentence: str
) -> None:
    assert main(["observed", str(tmp_path / "log.csv"), more, "--model", MODEL]) == 2
    assert sentence in capsys.readouterr().err


def test_a_short_log_is_refused(tmp_path: Path) -> None:
    rows = [
        {"arrival_s": i, "prompt_tokens": 9, "output_tokens": 3, "ttft_s": 0.1, "e2e_s": 0.2}
        for i in range(30)
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = ObservedServer(log=tmp_path / "log.jsonl", model=MODEL, folder=tmp_path)
    with pytest.raises(
        ValueError, match="has 15 requests with a TPOT in a half of it, a fit needs 20"
    ):
        fit(asked)
