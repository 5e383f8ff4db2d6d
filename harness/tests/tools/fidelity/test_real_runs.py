"""Measured runs beside simulated ones: figures, batches by their logs, and twins."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness import api
from harness.costs.iteration import iteration_seconds
from harness.engines.state import LOG_COLUMNS
from harness.report.real_texts import same_batches_text, saving_text, savings_texts
from harness.runs import published
from harness.runs.building import costs_of
from harness.runs.cell_lists import ScenarioCells
from harness.runs.config import stored_configuration
from harness.runs.record import config_of
from harness.tools.fidelity import real_runs as fidelity_runs
from harness.tools.fidelity.real_runs import (
    COMPARED,
    FIGURES,
    as_resolved,
    compared,
    compared_batches,
    every_iteration,
    first_difference,
    lags_of,
    order_agreement,
    resolved_of,
    savings,
    twins,
    with_functions,
)
from harness.tools.fidelity.speed import BATCH, Speed


def rows(measured: int = 2, simulated: int = 2) -> pd.DataFrame:
    """Runs of one system: measured ones take 10 s and more, simulated ones a tenth less."""
    found = [
        {"engine": engine, "config.system.name": "a", "config.seed": seed, "requests": 20}
        | dict.fromkeys(FIGURES, scale * (10.0 + 2 * seed))
        for engine, scale, count in (("measured on x", 1, measured), ("simulated", 0.9, simulated))
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


STEADY = {"iterations": 3, "decode_requests": 2, "context_tokens": 30, "longest_tokens": 20}
ALONE = [
    {"decode_requests": 2, "context_tokens": 30 + 2 * i, "longest_tokens": 20 + i}
    for i in (0, 1, 2)
]
PROMPT = {"prefill_requests": 2, "prefill_tokens": 28, "prefill_attended": 400}


def log(*rows: dict[str, int]) -> pd.DataFrame:
    """Iterations with these values, zeros else; KV held is what is attended."""
    given = [{"iterations": 1, "held_tokens": row.get("context_tokens", 28)} | row for row in rows]
    return pd.DataFrame(given, columns=LOG_COLUMNS).fillna(0.0)


def folder(path: Path, frame: pd.DataFrame, answers: list[int]) -> str:
    """A run's folder with a log and requests."""
    path.mkdir()
    frame.to_parquet(path / "iterations.parquet")
    requests = pd.DataFrame({"request": range(len(answers)), "output_tokens": answers})
    requests.to_parquet(path / "requests.parquet")
    return str(path)


def runs(folders: list[str]) -> pd.DataFrame:
    """Two policies, each measured and simulated with one seed."""
    engines = ["measured on x", "simulated"] * 2
    return pd.DataFrame(
        {"engine": engines, "folder": folders, "policy": list("aabb"), "config.seed": 0}
    )


def test_a_run_of_equal_iterations_is_the_same_as_each_alone() -> None:
    steady, alone = every_iteration(log(PROMPT, STEADY)), every_iteration(log(PROMPT, *ALONE))
    assert steady.shape == (4, len(COMPARED))
    assert first_difference(steady, alone) == 4
    assert first_difference(steady, alone[:-1]) == 3
    assert first_difference(steady, every_iteration(log(PROMPT, ALONE[0], ALONE[0]))) == 2


def test_batches_are_compared_by_policy(tmp_path: Path) -> None:
    logs = [log(PROMPT, *ALONE), log(PROMPT, STEADY), log(PROMPT, *ALONE), log(PROMPT, ALONE[1])]
    folders = [folder(tmp_path / str(n), it, [3, 4]) for n, it in enumerate(logs[:3])]
    folders.append(folder(tmp_path / "3", logs[3], [3, 5]))
    same, other = compared_batches(runs(folders), "policy")
    counts = {"seeds": 1, "equal": 1, "iterations": 4, "until": 4}
    assert same == {"system": "a", **counts, "exact": True}
    assert (other["equal"], other["until"], other["exact"]) == (0, 1, False)
    assert same_batches_text(same) == (
        "a runs the same batches in 1 of 1 seeds, in 4 of 4 iterations up to the first that "
        "differs; the same answer lengths"
    )


def test_runs_without_logs_are_left_out(tmp_path: Path) -> None:
    assert compared_batches(runs([str(tmp_path)] * 4), "policy") == []


WORDS = ("workload.model=tiny", "workload.requests=20", "workload.rate_per_s=null", "seed=0")
RESOLVED = {"kv_blocks": 100, "block_tokens": 32, "kv_bytes_per_token": 4096}
LIMITS = {"max_num_seqs": 256, "max_num_batched_tokens": 2048}

BATCHES = [(1, 100, 1e4, 0, 0, 0), (0, 0, 0.0, 8, 900, 200)]


@pytest.fixture(scope="module")
def like(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a simulated run: a backlog on this project's own profile of a CPU."""
    results = tmp_path_factory.mktemp("results")
    words = ("hardware=cpu", "workload=synthetic", "policy=vllm", "predictor=none", *WORDS)
    rows = api.sweep(overrides=[*words, f"results={results}", "name=toy", "tracking=none"])
    return Path(str(rows["folder"].iloc[0]))


def measured(folder: Path, **about: Any) -> Path:
    """A folder of a measured run that kept how its engine was configured."""
    folder.mkdir()
    engines = {"tiny@0": {"tiny": RESOLVED | LIMITS | about}}
    (folder / "engines.json").write_text(json.dumps(engines))
    return folder


def test_a_twin_has_the_limits_and_the_kv_of_the_engine(like: Path, tmp_path: Path) -> None:
    plain = as_resolved(config_of(like), measured(tmp_path / "run"))
    assert {name: plain["engine"][name] for name in LIMITS} == LIMITS
    assert plain["hardware"]["kv_bytes"] == 100 * 32 * 4096
    assert plain["hardware"]["block_tokens"] == 32
    assert as_resolved(config_of(like), tmp_path / "none") == config_of(like)


def test_a_twin_at_half_the_speed_takes_twice_as_long(
    like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Designed batches took twice as long as profiled, and so does a backlog to the last answer."""
    run = measured(tmp_path / "run")
    table = costs_of(stored_configuration(config_of(like))).table("tiny", 1)
    rows = pd.DataFrame(BATCHES, columns=BATCH)
    whole_s = [
        iteration_seconds(table, int(p), int(t), int(t), a, int(d), int(c), int(most))
        for p, t, a, d, c, most in rows.to_numpy(float).tolist()
    ]
    rows = rows.assign(service="tiny", prepare_s=0.0, other_s=0.0, when="before")
    slow = rows.assign(forward_s=[2 * it for it in whole_s])
    pd.concat([slow, slow.assign(when="after")]).to_parquet(run / "speed.parquet")
    # As if the profile had been exact on these batches when it was measured.
    monkeypatch.setattr("harness.tools.fidelity.speed.reference_of", lambda *_: Speed(1.0, 1.0))
    found = {}
    for at_speed in (False, True):
        with twins({run: like}, at_speed=at_speed) as rows_of:
            found[at_speed] = rows_of[run]
            assert Path(str(rows_of[run]["folder"])).is_dir()
    assert found[True]["speed"] == {"tiny": pytest.approx({"prefill": 2.0, "decode": 2.0})}
    assert found[True]["inference_s"] == pytest.approx(2 * found[False]["inference_s"], rel=1e-6)


def test_groups_of_different_kv_have_no_twin(like: Path, tmp_path: Path) -> None:
    run = measured(tmp_path / "run")
    one = RESOLVED | LIMITS
    engines = {"a": {"tiny": one}, "b": {"tiny": one | {"kv_blocks": 7}}}
    (run / "engines.json").write_text(json.dumps(engines))
    with pytest.raises(ValueError, match="its groups have"):
        as_resolved(config_of(like), run)
