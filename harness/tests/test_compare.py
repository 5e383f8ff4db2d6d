"""The answer to which scheduler: on small traces, from Python and from the command line."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness import api
from harness import compare as of_compare
from harness import league as of_league
from harness.__main__ import main
from harness.compare import Comparison, Question, answer, compare
from harness.compare import written as written_files
from harness.config.hydra_words import word
from harness.config.paths import ROOT
from harness.engines.recorder import GpuUse
from harness.rank import written
from harness.runs.gpu_time import served_per_s
from harness.runs.limits import POLICY
from harness.workloads.recorded import Trace

MODEL = "Llama-2-7b-hf"
ALONE = ("workers=1",)
"""In the process of the test."""
SAME = """
from harness.interface.decisions import ContinuousBatching, Decision, PriorityOrder


def by_arrival(table):
    return table.arrival_s


class Same:
    requires, subscribes = frozenset(), frozenset()

    def __init__(self, *, rule: ContinuousBatching) -> None:
        self._decision = Decision(priority_order=PriorityOrder(by_arrival, rule))

    def observe(self, event):
        pass

    def schedule(self, view):
        return self._decision
"""


def _write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 requests that come in bursts, with a few long prompts among short ones."""
    rng = np.random.default_rng(0)
    rows: list[dict[str, object]] = []
    for arrival_s in np.cumsum(rng.gamma(0.3, 1 / 1.2, 400)).tolist():
        prompt = int(np.clip(500 * np.exp(1.3 * rng.normal()), 16, 3900))
        output = int(np.clip(40 * np.exp(0.6 * rng.normal()), 4, 150))
        rows.append(
            {"arrival_s": round(arrival_s, 3), "prompt_tokens": prompt, "output_tokens": output}
        )
    return _write(tmp_path_factory.mktemp("trace") / "mine [1] = it's.jsonl", rows)


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with vLLM's policy under another name, as a user of `make rank` has it."""
    home = tmp_path_factory.mktemp("own")
    (home / "same.py").write_text(SAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(home)
        written(home / "same.py", "", home)
    return home


@pytest.mark.slow
def test_slai_meets_more_objectives_and_the_basis_is_said_first(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an overload SLAI serves short prompts first, and decodes before their limit."""
    monkeypatch.setattr(of_compare, "SHARES", (0.5, 1.7))
    monkeypatch.setattr(of_compare, "DRAWS", 1)
    said: list[str] = []
    asked = Question(trace=trace, model=MODEL, policies=("slai",), results=tmp_path, more=ALONE)
    found = compare(asked, say=said.append)
    assert tuple(said) == found.basis
    text = "\n".join(said)
    for part in (
        *("compared: 400 requests", "objectives: TTFT 1 s, TPOT 0.05 s"),
        "max_num_seqs 1,024 and max_num_batched_tokens 8,192, for every policy",
        "GPUs: 1 of h100_80g_8, tensor parallel 1, data parallel 1, 7 of 8 idle",
    ):
        assert part in text
    arrivals = pd.read_json(trace, lines=True)["arrival_s"]
    own_per_s = 399 / (arrivals.max() - arrivals.min())
    assert found.own_load * found.capacity_per_s == pytest.approx(own_per_s, rel=1e-3)
    assert found.figures["load"].unique().tolist() == [found.own_load, 0.5, 1.7]
    rows = found.figures.set_index(["load", "policy", "figure"])
    assert rows.loc[[(1.7, "vllm", "jct_s_mean")]]["ratio"].item() == 1.0
    row = rows.loc[[(1.7, "slai", "slo_attainment")]].iloc[0]
    assert row["sign"] == 1
    assert 1 < row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
    assert answer(found)[-1].endswith("slai at 1.70.")
    assert "unlike limits: max_num_batched_tokens 512 (slai) against 8,192" in text
    paths = written_files(found, tmp_path / "out")
    assert [path.name for path in paths] == ["figures.csv", "loads.png"]
    assert len(pd.read_csv(paths[0])) == len(found.figures)


BAD = """
class Bad:
    requires, subscribes = frozenset(), frozenset()

    def observe(self, event):
        pass

    def schedule(self, view):
        raise RuntimeError("no order")
"""


@pytest.mark.slow
def test_few_requests_another_reference_and_a_policy_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 requests have no P99; a policy that fails is said, the others are compared."""
    monkeypatch.setattr(of_compare, "SHARES", (1.2,))
    monkeypatch.setattr(of_compare, "DRAWS", 1)
    (tmp_path / "failing.py").write_text(BAD)
    policy = tmp_path / "conf" / "policy" / "bad.yaml"
    policy.parent.mkdir(parents=True)
    policy.write_text("_target_: failing.Bad\n")
    monkeypatch.setenv("TRUSTED_PACKAGES", "failing")
    monkeypatch.syspath_prepend(tmp_path)
    rows: list[dict[str, object]] = [
        {"arrival_s": number / 10, "prompt_tokens": 500 + number, "output_tokens": 20}
        for number in range(50)
    ]
    asked = Question(
        trace=_write(tmp_path / "a $x$ b.jsonl", rows),
        model=MODEL,
        policies=("vllm", "bad"),
        reference="srtf",
        results=tmp_path,
        more=(word("hydra.searchpath", [f"file://{tmp_path}/conf"]), *ALONE),
    )
    found = compare(asked)
    assert sorted(found.figures["policy"].unique()) == ["srtf", "vllm"]
    assert "jct_s_p99" not in set(found.figures["figure"])
    at = found.figures.groupby("load")["costs_low"]
    assert at.count().to_dict() == {1.2: 0, found.own_load: at.size()[found.own_load]}
    assert "no order" in found.left_out["bad"]
    assert any(line.startswith("left out: bad: ") for line in found.basis)
    assert len(written_files(found, tmp_path / "out")) == 2


def test_capacity_leaves_out_pauses_and_the_last_answers(tmp_path: Path) -> None:
    """Eight of ten answers end within eight busy seconds and four more after a pause of 100 s."""
    ends_s = [5, 6, 7, 8, 109, 110, 111, 112, 200, 500]
    pd.DataFrame({"finished_s": ends_s}).to_parquet(tmp_path / "requests.parquet")
    busy = {"gpu": 0, "start_s": [0.0, 108.0], "end_s": [8.0, 500.0], "use": GpuUse.BUSY.value}
    pd.DataFrame(busy).to_parquet(tmp_path / "gpu.parquet")
    assert served_per_s(pd.Series({"folder": str(tmp_path)})) == pytest.approx(8 / 12)


@pytest.mark.slow
def test_policies_that_differ_in_name_alone_have_equal_figures(
    trace: Path, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the plain command, `compare`, and `league`, which `rank` calls with such a file."""
    monkeypatch.setenv("TRUSTED_PACKAGES", "same")
    monkeypatch.syspath_prepend(outside)
    monkeypatch.setenv("PYTHONPATH", f"{outside}:{ROOT}")
    search = word("hydra.searchpath", [f"file://{outside}/conf"])
    asked = Question(
        trace=trace, model=MODEL, policies=("same",), results=tmp_path, more=(search, *ALONE)
    )
    axes = word("++matrix", {"policy": ["vllm", "same"]})
    rows = api.sweep(overrides=[*asked.words, axes])
    figures = ["ttft_s_mean", "ttft_s_p99", "jct_s_mean", "itl_s_p99", "requests_per_s"]
    assert rows[figures].nunique().tolist() == [1] * len(figures)
    assert rows[POLICY].tolist() == ["vllm", "same"]
    monkeypatch.setattr(of_compare, "SHARES", (0.95,))
    monkeypatch.setattr(of_compare, "DRAWS", 1)
    found = compare(asked).figures
    assert (found.groupby(["load", "figure"])["value"].nunique() == 1).all()
    assert (found["sign"] == 0).all()
    monkeypatch.setattr(api, "policies_of", lambda _: ["vllm"])
    monkeypatch.setattr(of_league, "SEEDS", (0,))
    monkeypatch.setattr(of_league, "SHARES", (0.95,))
    monkeypatch.setattr(of_league, "SHORT_SHARES", (0.95,))
    ranked, _ = of_league.league(
        ["sharegpt"], policies=["same"], results=tmp_path, more=(search, *ALONE)
    )
    judged = ranked[ranked["figure"].isin(of_league.KINDS["league_requests"]["judged"])]
    assert (judged["rank"] == 1).all()
    assert (judged.groupby(["kv", "figure"])["value"].nunique() == 1).all()


def test_the_load_of_sessions_by_hand(tmp_path: Path) -> None:
    """Three sessions of two turns, one every two seconds: a session each 2 s, a request each s."""
    rows: list[dict[str, object]] = []
    for number in range(3):
        turn = {"session_id": f"s{number}", "input_length": 100, "output_length": 10}
        rows += [{**turn, "timestamp": 2000 * number}, {**turn, "delay": 500}]
    path = _write(tmp_path / "sessions.jsonl", rows)
    cell = api.first_cell(Question(trace=path, model=MODEL, results=tmp_path).words)
    recipe = cell.workload_factory
    assert isinstance(recipe, Trace)
    load = recipe.load()
    assert (load.requests, load.sessions, load.span_s) == (6, 3, 4.0)
    assert load.requests_per_s == pytest.approx(1.0)


def test_what_is_not_told_is_neither_best_nor_alike() -> None:
    """Three policies at one load: one better, one of which blocks tell nothing."""
    row = {"load": 0.5, "figure": "slo_attainment", "base": 0.5, "best": "slai"}
    row |= {"costs_low": np.nan, "costs_high": np.nan, "ratio_low": 1.2, "ratio_high": 1.6}
    figures = [
        {**row, "policy": policy, "value": value, "ratio": value / 0.5, "to_best": sign}
        for policy, value, sign in (("vllm", 0.5, -1.0), ("slai", 0.7, 0.0))
    ]
    figures += [{**it, "figure": "jct_s_mean", "to_best": np.nan} for it in figures]
    found = Comparison(
        figures=pd.DataFrame(figures),
        reference="vllm",
        capacity_per_s=1.0,
        own_load=0.5,
        basis=(),
        left_out={},
        about="",
    )
    first, second, _ = answer(found)
    assert first == (
        "At the trace's own rate, load 0.50: slai has the best SLO attainment, 0.7 against 0.5 of "
        "vllm, 1.40x [1.20, 1.60]."
    )
    assert "whether slai has a better mean JCT s than vllm is not told" in second


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no.jsonl is no file"),
        (["--gpu", "h100"], "No file of scenarios/hardware is called 'h100'"),
        (["--tensor-parallel", "16"], "h100_80g_8 has 8 GPUs, 16 were asked for"),
        (["--requests", "500"], "has 400 requests, 500 were asked for"),
        (["slo.ttft_s=3"], "slo.ttft_s=3: compare sets slo itself (--ttft, --tpot, --itl)"),
        (["workload.rate_scale=2"], "workload.rate_scale=2: compare sets"),
        (["+matrix={policy:[vllm]}"], "compare sets matrix itself"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], said: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace if words else trace.with_name("no.jsonl")
    assert main(["compare", str(path), "--model", MODEL, *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error


def test_bad_options_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for given, said in (("no", "a valid integer"), ("0", "greater than or equal to 1")):
        assert main(["compare", "a.jsonl", "--model", MODEL, "--requests", given]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: Invalid value for '--requests': ")
        assert said in error
    assert main(["compare", "a.jsonl"]) == 2
    assert capsys.readouterr().err == "error: Missing option '--model'.\n"
