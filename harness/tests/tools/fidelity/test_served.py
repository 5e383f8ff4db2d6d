"""Simulated servers beside measured ones: rows that count, fits that find terms, known settings."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.costs.engine_kinds import engine_kind
from harness.tools.fidelity.served import (
    errors_of,
    folds,
    linear,
    main,
    run_all,
    stored_values,
    summary,
)
from harness.tools.fidelity.served_rows import FIGURES, ServedSetting, rows_of, simulated

LLAMA, OSS, QWEN = "llama-3.1-70b-fp8", "gpt-oss-120b", "qwen3-32b"
PLAIN = {
    **{"backend": "vllm", "backend_version": "0.18.0", "mode": "agg", "precision": "fp8"},
    **{"model_path": "meta-llama/Llama-3.1-70B", "system": "h100_sxm"},
    **{"isl": 1024, "osl": 128, "batch_size": 4, "tp_size": 4, "pp_size": 1},
    **{"attention_dp_size": 1, "moe_tp_size": None, "moe_ep_size": None},
    **{"silicon_ttft_ms": 90.0, "silicon_tpot_ms": 12.0},
}


def rows_file(folder: Path, *changes: Mapping[str, object]) -> Path:
    path = folder / "rows.csv.gz"
    pd.DataFrame([{**PLAIN, **change} for change in changes]).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("config", "gpu", "tp", "isl", "osl", "clients", "engine", "tpot_ms"),
    [
        (LLAMA, "H100-80G", 4, 1024, 1024, 4, "vllm-async", 11.8),
        (LLAMA, "H100-80G", 4, 1024, 1024, 8, "vllm-async", 12.1),
        (LLAMA, "H100-80G", 4, 1024, 1024, 64, "vllm-async", 19.5),
        (LLAMA, "H100-80G", 8, 1024, 1024, 4, "vllm-async", 9.11),
        (LLAMA, "H100-80G", 8, 1024, 1024, 16, "vllm-async", 11.39),
        (LLAMA, "H100-80G", 8, 1024, 1024, 64, "vllm-async", 15.45),
        (OSS, "H200-141G", 2, 1024, 1024, 4, "vllm-async", 4.8),
        (OSS, "H200-141G", 2, 1024, 1024, 64, "vllm-async", 14.4),
        (QWEN, "H100-80G", 4, 4096, 512, 8, "vllm-0.12", 12.3),
        (QWEN, "H100-80G", 4, 4096, 512, 128, "vllm-0.12", 61.7),
    ],
)
def test_tokens_of_measured_servers_come_within_15_percent(
    config: str, gpu: str, tp: int, isl: int, osl: int, clients: int, engine: str, tpot_ms: float
) -> None:
    setting = ServedSetting(config, gpu, 2, tp, False, isl, osl, clients)
    found, _ = simulated(setting, engine_kind(engine))
    assert found == pytest.approx(tpot_ms, rel=0.15)


LEFT_OUT: list[tuple[dict[str, object], str]] = [
    ({}, ""),
    ({}, "exact double"),
    ({"silicon_ttft_ms": 25_000.0}, "TTFT above"),
    ({"model_path": "nobody/Nothing-7B"}, "no config"),
    ({"system": "abacus"}, "no facts"),
    ({"attention_dp_size": 2, "batch_size": 8}, "data-parallel"),
    ({"pp_size": 2, "batch_size": 16}, "pipeline"),
    ({"batch_size": 512}, "more than 256 clients"),
    ({"model_path": "MiniMax-M2.5", "moe_tp_size": 2, "moe_ep_size": 1}, "sizes unclear"),
    ({"tp_size": 1, "batch_size": 8}, "no room"),
]
"""Changes to a row, and why it is left out then."""


def test_rows_are_left_out_by_what_they_say_of_themselves(tmp_path: Path) -> None:
    others = ({"backend": "sglang"}, {"mode": "disagg"})
    path = rows_file(tmp_path, *(change for change, _ in LEFT_OUT), *others)
    for said, (_, start) in zip(rows_of(path)["why"], LEFT_OUT, strict=True):
        assert start in said if start else said == "", (said, start)


def test_a_version_names_the_kind_of_engine(tmp_path: Path) -> None:
    versions = {"0.11.2": "vllm-0.12", "0.16.0": "vllm-0.17", "0.18.1": "vllm-async"}
    versions |= {"nightly-5b8c30d62b754b57": "vllm-async", "": "vllm-async"}
    path = rows_file(tmp_path, *({"backend_version": each} for each in versions))
    assert rows_of(path)["engine"].tolist() == list(versions.values())


def test_a_fit_finds_terms_that_give_what_rows_were_simulated_with(tmp_path: Path) -> None:
    """Also where a row is twice as slow as the rest: errors count without squares."""
    sizes = [(isl, clients, tp) for isl in (256, 1024, 4096) for clients in (1, 8) for tp in (4, 8)]
    path = rows_file(
        tmp_path,
        *({"isl": isl, "batch_size": clients, "tp_size": tp} for isl, clients, tp in sizes),
    )
    rows = rows_of(path)
    true = {
        ("vllm-async", "layer_s"): 3e-5,
        ("vllm-async", "prompt_kernels"): 1.5,
        ("vllm-async", "prompt_s"): 4e-3,
        ("vllm-async", "intake_token_s"): 2e-5,
    }
    rows[list(FIGURES)] = run_all(rows, true)
    rows["tpot"] *= np.where(rows.index == 0, 2.0, 1.0)
    values = linear(rows, {name: stored_values()[name] for name in true}).fitted(rows)
    assert values["vllm-async", "layer_s"] == pytest.approx(3e-5, rel=0.1)
    again = run_all(rows, values)
    assert errors_of(rows, again).abs().median().max() < 0.03


def test_folds_keep_settings_that_differ_in_clients_together(tmp_path: Path) -> None:
    sizes = [(isl, clients) for isl in (128, 256, 512, 1024, 2048) for clients in (1, 2, 4)]
    path = rows_file(tmp_path, *({"isl": isl, "batch_size": clients} for isl, clients in sizes))
    rows = rows_of(path)
    thirds = [out for kind, _, out in folds(rows) if kind == "third"]
    assert sorted(index for out in thirds for index in out) == list(rows.index)
    for out in thirds:
        assert set(rows.loc[out, "isl"]).isdisjoint(rows.drop(out)["isl"])


def test_the_command_tests_stored_terms_on_any_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--rows", str(rows_file(tmp_path, {}, {"system": "abacus"}))]) == 0
    out = capsys.readouterr().out
    assert "left out: 1 rows, no facts of the GPU" in out
    assert "TPOT median" in out
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    for bad in (tmp_path / "none.csv.gz", tmp_path / "other.csv"):
        assert main(["--rows", str(bad)]) == 2
        assert str(bad) in capsys.readouterr().err


def test_a_summary_has_medians_without_sign_and_bias_with_it() -> None:
    errors = pd.DataFrame({"tpot": [-0.2, 0.1, 0.1], "ttft": [0.0, 0.0, 0.3]})
    found = summary(errors)
    assert (found["tpot_median"], found["tpot_bias"]) == (0.1, 0.1)
    assert found["ttft_p90"] == pytest.approx(0.24)
