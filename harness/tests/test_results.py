"""`python -m harness results`: verify, list and compare run folders."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.__main__ import main
from harness.results import selection
from harness.runs.comparison import axes, compared
from harness.runs.record import read_summaries, write_run
from harness.runs.stats import paired_ratio
from harness.tests.support.run_folders import run_with

NAMES = {"ours": {"rule": {"slots": 4}}, "theirs": {"rule": {"slots": 8}, "patience_s": 1.0}}
JCT_S = {("ours", 1): 2.0, ("ours", 2): 3.0, ("theirs", 1): 4.0, ("theirs", 2): 9.0}


def write(
    scenario: Path, policy: str, requests: int, seed: int, *, code: int = 1, **summary: float
) -> None:
    """A run, as far as it is read."""
    run = run_with(
        {"extra_s": 0.0, **summary},
        config={
            "policy": NAMES[policy],
            "workload": {"requests": requests},
            "seed": seed,
            "chosen": {"policy": policy, "engine": "simulator"},
        },
        provenance={"code": f"c{code}", "started": f"2026-01-0{code}T00:00:0{seed}+00:00"},
    )
    write_run(scenario / f"{policy}{requests}{seed}{'' if code == 1 else code}", run)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two policies, two numbers of requests, three seeds; a seed's factor is on both sides."""
    for (policy, requests), jct_s in JCT_S.items():
        for seed in range(3):
            noise = 1.0 + 0.1 * seed + (0.01 * seed if policy == "ours" else 0.0)
            write(tmp_path / "toy", policy, requests, seed, jct_s_mean=jct_s * noise)
    return tmp_path


def said(results: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command prints that succeeds."""
    assert main(["results", words[0], "--results", str(results), *words[1:]]) == 0
    return capsys.readouterr().out


def refused(results: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence of bad input."""
    assert main(["results", words[0], "--results", str(results), *words[1:]]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_runs_as_they_were_written_are_verified(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = said(results, capsys, "verify")
    assert printed == "12 runs are as they were written, 0 are not\n"


@pytest.mark.parametrize("name", ["facts.json", "requests.parquet", "manifest.json"])
def test_verify_names_what_is_damaged_and_changes_nothing(
    results: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (results / "toy" / "ours10" / name).unlink()
    (results / "toy" / "ours11" / "facts.json").write_text("{}")
    before = sorted(results.rglob("*"))
    assert main(["results", "verify", "--results", str(results), "toy"]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first == f"toy/ours10 has no {name}"
    assert second == "toy/ours11 has another facts.json than was written"
    assert last == "10 runs are as they were written, 2 are not"
    assert sorted(results.rglob("*")) == before


def test_list_says_what_every_run_is(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(results, capsys, "list").splitlines()
    assert lines[0].split() == ["scenario", "run", "setting", "engine", "code", "date"]
    assert len(lines) == 14
    assert lines[2].split() == [
        *("toy", "ours10"),
        *("workload.requests=1", "policy=ours", "seed=0"),
        *("simulated", "c1", "2026-01-01T00:00:00"),
    ]


def test_index_has_a_row_per_run(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(results, capsys, "index").endswith("12 runs of 1 scenarios\n")
    rows = pd.read_parquet(results / "index.parquet")
    assert len(rows) == 12
    assert rows.index.names == ["scenario", "run"]
    assert rows.loc[("toy", "ours10"), "config.seed"] == 0
    assert rows["engine"].unique().tolist() == ["simulated"]


def test_what_a_choice_brings_along_is_not_named_beside_it(results: Path) -> None:
    found = axes(read_summaries(results / "toy"))
    assert found == ["config.workload.requests", "config.chosen.policy"]


def test_compare_pairs_seeds_in_every_common_setting(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = said(results, capsys, "compare", "toy:policy=ours", "toy:policy=theirs").splitlines()
    rows = [line.split() for line in lines if "jct_s_mean" in line]
    assert [row[0] for row in rows] == ["1", "2"]
    for row, requests in zip(rows, (1, 2), strict=True):
        found = read_summaries(results / "toy")["jct_s_mean"]
        values = {
            policy: found[[f"{policy}{requests}{seed}" for seed in range(3)]].tolist()
            for policy in NAMES
        }
        wanted = paired_ratio(values["ours"], values["theirs"])
        assert " ".join(row[4:7]) == wanted.text(3)
        assert float(row[2]) == pytest.approx(np.mean(values["ours"]), rel=1e-3)
        assert row[7:] == ["+", "3"]
    # A figure of zeros has no ratio.
    assert [line.split()[4] for line in lines if "extra_s" in line] == ["-", "-"]
    assert lines[-2] == "A: toy:policy=ours, 6 runs, the newest of 2026-01-01T00:00:02"


def test_two_runs_are_compared_without_an_interval(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(results / "toy" / "ours10")
    printed = said(results, capsys, "compare", path, "toy/theirs10", "--figures", "jct_s_mean")
    assert printed.splitlines()[2].split() == ["jct_s_mean", "2", "4", "0.500", "1"]


def test_of_runs_of_one_configuration_the_newest_is_compared(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(3):
        write(results / "more", "ours", 1, seed, code=1, jct_s_mean=100.0)
        write(results / "more", "ours", 1, seed, code=2, jct_s_mean=1.0 + 0.11 * seed)
    printed = said(results, capsys, "compare", "toy:policy=ours", "more", "--figures", "jct_s_mean")
    assert "2.000 [2.000, 2.000]" in printed
    assert "B: more, 3 runs, the newest of 2026-01-02T00:00:02" in printed


def write_trace(folder: Path, policy: str, *, file: str, gap_s: float, gpus: int = 1) -> None:
    """A run of 80 requests of a trace, so far apart; of theirs each takes twice as long."""
    arrival_s = np.arange(80) * gap_s
    takes_s = np.linspace(1.0, 2.0, 80) * (2.0 if policy == "theirs" else 1.0)
    requests = pd.DataFrame(
        {
            "request": np.arange(80),
            "app": np.arange(80),
            "arrival_s": arrival_s,
            "started_s": arrival_s,
            "first_token_s": arrival_s + takes_s,
            "finished_s": arrival_s + takes_s,
            "prompt_tokens": 10,
            "output_tokens": 1,
        }
    )
    run = run_with(
        {
            "jct_s_mean": float(takes_s.mean()),
            "inference_s": 1e3,
            "trace_interval": {"block_requests": 4.0},
        },
        facts={"cut_off_s": 1e3},
        config={
            "policy": NAMES[policy],
            "workload": {"file": file},
            "hardware": {"gpu_count": gpus},
            "seed": 0,
            "chosen": {"policy": policy},
        },
        requests=requests,
    )
    write_run(folder, run)


@pytest.mark.parametrize(
    ("gap_s", "more", "also"),
    [
        (1.0, {}, []),
        (2.0, {}, ["workload.file (/x:1/a, b.jsonl, other.jsonl)"]),
        (1.0, {"gpus": 2}, ["workload.file (/x:1/a, b.jsonl, other.jsonl)", "gpu_count (1, 2)"]),
    ],
)
def test_blocks_are_paired_of_the_same_requests_alone(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    gap_s: float,
    more: dict[str, int],
    also: list[str],
) -> None:
    trace = "/x:1/a, b.jsonl"
    write_trace(tmp_path / "x:1" / "ours", "ours", file=trace, gap_s=1.0)
    theirs = "other.jsonl" if also else trace
    write_trace(tmp_path / "x:1" / "theirs", "theirs", file=theirs, gap_s=gap_s, **more)
    names = ("x:1:policy=ours", "x:1:policy=theirs")
    printed = said(tmp_path, capsys, "compare", *names, "--figures", "jct_s_mean")
    assert ("0.500 [0.5" in printed) is (gap_s == 1.0)
    assert ("A and B served other requests" in printed) is (gap_s != 1.0)
    assert ("of one trace, with the 95% interval" in printed) is (gap_s == 1.0)
    assert ("also unlike: " in printed) is bool(also)
    assert all(key in printed for key in also)
    # Of a value with commas and of a folder with colons.
    rows, keys = selection(f"x:1:workload.file={trace},policy=ours", tmp_path)
    assert (rows.index[0], keys) == ("ours", ["workload.file", "policy"])


BAD: Mapping[str, tuple[str, ...]] = {
    "No folder of runs is called 'nope'; known: toy": ("compare", "nope", "toy"),
    "toy:policy: policy is no KEY=VALUE": ("compare", "toy:policy", "toy"),
    "No key of these runs is called 'polisy'": ("compare", "toy:polisy=ours", "toy"),
    "there are no runs of": ("compare", "toy:policy=nobodys", "toy"),
    "No figure of both is called 'jct'": ("compare", "toy", "toy", "--figures", "jct"),
    "the two have no runs in common": ("compare", "toy:seed=0", "toy:seed=1"),
    "No scenario with runs is called 'nowhere'": ("verify", "nowhere"),
    "No scenario with runs is called 'toys'; closest: toy": ("list", "toys"),
}


@pytest.mark.parametrize("sentence", BAD)
def test_bad_names_are_one_sentence(
    results: Path, capsys: pytest.CaptureFixture[str], sentence: str
) -> None:
    assert refused(results, capsys, *BAD[sentence]).startswith(f"error: {sentence}")


def test_two_runs_for_one_place_are_refused(results: Path) -> None:
    rows, _ = selection("toy", results)
    twice = pd.concat([rows, rows.set_axis([f"{name}x" for name in rows.index])])
    with pytest.raises(ValueError, match="are of the same setting and seed: name one of them"):
        compared(twice, ["jct_s_mean"], by="config.chosen.policy", reference="ours")


def test_a_folder_without_runs_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = said(tmp_path, capsys, "verify")
    assert printed == "0 runs are as they were written, 0 are not\n"
    assert said(tmp_path, capsys, "list").split()[:2] == ["scenario", "run"]


@pytest.mark.parametrize("command", ["verify", "list"])
def test_results_that_are_not_there_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    nowhere = tmp_path / "nowhere"
    assert refused(nowhere, capsys, command) == f"error: --results {nowhere} is no folder\n"
