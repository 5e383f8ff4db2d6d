"""Measured runs beside simulated ones."""

import json
from pathlib import Path

import pandas as pd
import pytest

from harness.report.real_texts import saving_text, savings_texts
from harness.runs import published
from harness.runs.cell_lists import ScenarioCells
from harness.tools.fidelity import real_runs as fidelity_runs
from harness.tools.fidelity.real_runs import (
    FIGURES,
    compared,
    lags_of,
    order_agreement,
    resolved_of,
    savings,
    with_functions,
)


def rows(measured: int = 2, simulated: int = 2) -> pd.DataFrame:
    """Runs of one system: measured ones take 10 s and more, simulated ones a tenth less."""
    found = [
        {"engine": engine, "config.system.name": "a", "config.seed": seed, "requests": 20}
        | dict.fromkeys(FIGURES, scale * (10.0 + 2 * seed))
        for engine, scale, count in (
            ("measured on x", 1.0, measured),
            ("simulated", 0.9, simulated),
        )
        for seed in range(count)
    ]
    return pd.DataFrame(found)


def test_means_over_seeds_and_their_error() -> None:
    found = compared(rows())
    assert [entry["figure"] for entry in found] == list(FIGURES)
    first = found[0]
    assert (first["measured"], first["simulated"], first["error"]) == (11.0, 9.9, -0.1)
    assert first["seeds"] == 2
    half = 12.706 * 2**0.5 / 2**0.5  # Student's t of one degree of freedom; deviation / sqrt(2)
    assert (first["low"], first["high"]) == pytest.approx((11 - half, 11 + half), abs=1e-3)


def test_throughput_is_requests_over_the_seconds_to_the_last_answer() -> None:
    (entry,) = compared(rows(measured=1, simulated=1), ["requests_per_s"])
    assert (entry["measured"], entry["simulated"]) == (2.0, 2.2222)
    assert (entry["low"], entry["high"]) == (None, None)


def test_orders_are_compared_by_rank() -> None:
    """Measured 1, 2, 3, 4 s, simulated 1, 2, 4, 3 s: 1 - 6 * (1 + 1) / (4 * 15) = 0.8."""
    found = pd.DataFrame(
        {"engine": engine, "config.system.name": name, "config.seed": seed, "jct_s_mean": value}
        for engine, values in (("measured on x", (1, 2, 3, 4)), ("simulated", (1, 2, 4, 3)))
        for name, value in zip("abcd", values, strict=True)
        for seed in (0, 1)
    )
    (row,) = order_agreement(found, ["jct_s_mean"])
    assert (row["rank_correlation"], row["low"], row["high"]) == pytest.approx((0.8, 0.8, 0.8))
    assert order_agreement(found[found["config.system.name"] < "d"], ["jct_s_mean"]) == []


def test_a_figure_that_no_run_has_is_named() -> None:
    with pytest.raises(ValueError, match="jct_s_men"):
        compared(rows(), ["jct_s_men"])


def test_runs_that_are_missing_are_named() -> None:
    with pytest.raises(ValueError, match="a has 2 measured and 1 simulated runs"):
        compared(rows(simulated=1))


def test_no_runs_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(published, "RESULTS", tmp_path)
    assert fidelity_runs.main(["none"]) == 2
    assert capsys.readouterr().err == "error: no run of none is there; run it first\n"
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = rows().assign(folder=str(tmp_path / "none"))
    found = ScenarioCells(axes=(), reference=there, variations={})
    monkeypatch.setattr(fidelity_runs, "read_cells", lambda *_: found)
    monkeypatch.setattr(published, "RESULTS", tmp_path)
    assert fidelity_runs.main(["toy"]) == 0
    content = json.loads((tmp_path / "local" / "fidelity_runs" / "toy.json").read_text())
    assert content["rows"] == compared(rows())
    assert content["engine"] == "measured on x"
    assert content["batches"] == []


def policies() -> pd.DataFrame:
    """Two policies of one system: the second takes 0.6 of the first's time, simulated 0.5."""
    parts = []
    for policy, real, simulated in (("first", 1.0, 1.0), ("second", 0.6, 0.5)):
        part = rows().assign(**{"config.chosen.policy": policy})
        scale = part["engine"].map({"measured on x": real, "simulated": simulated})
        parts.append(part.assign(jct_s_mean=part["jct_s_mean"] * scale))
    return pd.concat(parts, ignore_index=True)


def test_policies_of_one_system_are_told_apart() -> None:
    assert {entry["system"] for entry in compared(policies())} == {"first", "second"}


def test_a_figure_is_a_function_of_a_folder(tmp_path: Path) -> None:
    runs = policies()
    runs["folder"] = [str(tmp_path / str(number)) for number in runs.index]
    rows, names = with_functions(runs, ["jct_s_mean", "os.path:basename"])
    assert names == ["jct_s_mean", "basename"]
    assert rows["basename"].tolist() == list(map(str, runs.index))
    with pytest.raises(ValueError, match=r"there is no function os\.path:nothing"):
        with_functions(rows, ["os.path:nothing"])
    with pytest.raises(ValueError, match="No figure of a run is called 'jct'"):
        savings(rows, "first", "jct")


def test_savings_are_paired_by_seed() -> None:
    (saved,) = savings(policies(), "first")
    assert (saved["system"], saved["over"], saved["seeds"]) == ("second", "first", 2)
    assert saved["measured"] == pytest.approx([0.4, 0.4, 0.4])
    assert saved["simulated"] == pytest.approx([0.5, 0.5, 0.5])
    assert saving_text(saved) == (
        "second saves of first's mean JCT: measured 40.0% [40.0%, 40.0%], "
        "simulated 50.0% [50.0%, 50.0%] (2 seeds)"
    )
    slower = saved | {"measured": [-0.2, -0.3, -0.1], "simulated": [0.1, None, None]}
    assert saving_text(slower) == (
        "second has 1.20 [1.10, 1.30] times first's mean JCT, simulated 0.90 (2 seeds)"
    )
    assert savings_texts([slower, saved, slower | {"system": "third"}]) == [
        saving_text(saved),
        "times first's mean JCT, measured / simulated: second 1.20 [1.10, 1.30] / 0.90; "
        "third 1.20 [1.10, 1.30] / 0.90",
    ]


def test_a_reference_that_was_not_run_is_named() -> None:
    with pytest.raises(ValueError, match="no run of third, only of first, second"):
        savings(policies(), "third")


def test_each_configuration_is_kept_with_the_runs_that_had_it(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder, blocks in zip(folders, (400, 400, 224), strict=True):
        folder.mkdir()
        (folder / "engines.json").write_text(json.dumps({"g": {"tiny": {"kv_blocks": blocks}}}))
    assert resolved_of(folders) == [
        {"runs": 2, "groups": {"g": {"tiny": {"kv_blocks": 400}}}},
        {"runs": 1, "groups": {"g": {"tiny": {"kv_blocks": 224}}}},
    ]
    with pytest.raises(ValueError, match=r"run none has no engines\.json"):
        resolved_of([*folders, tmp_path / "none"])


def test_lag_and_first_tokens_are_means_of_each_run(tmp_path: Path) -> None:
    requests = pd.DataFrame(
        {"lag_s": [0.0, 0.02], "arrival_s": [0.0, 1.0], "first_token_s": [0.5, 2.5]}
    )
    requests.to_parquet(tmp_path / "requests.parquet")
    assert lags_of([tmp_path]) == [pytest.approx((0.01, 1.0))]
