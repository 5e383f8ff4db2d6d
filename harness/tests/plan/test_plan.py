"""How many GPUs for a load: on small traces of an 8B model, from Python and the command line."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.__main__ import main
from harness.capacity import question as of_question
from harness.capacity.grid import Trial
from harness.capacity.question import CapacityQuestion, prepared, question_of
from harness.capacity.search import cheapest
from harness.capacity.serving import Servers
from harness.config.paths import ROOT
from harness.observed import fit
from harness.plan import CapacityPlan, plan, server_of, written
from harness.runs.record import is_finished
from harness.tests.support.server_log import simulated_log

MODEL = str(ROOT / "scenarios/models/llama-3.1-8b-16k/config.json")
SLO = "ttft 0.4 p90, tpot 0.02 p90"
HOUR_S = 3600


def _trace(path: Path, arrival_s: Iterator[float] | list[float]) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        {
            "arrival_s": round(float(at_s), 3),
            "prompt_tokens": int(np.clip(1200 * np.exp(rng.normal()), 16, 6000)),
            "output_tokens": int(np.clip(100 * np.exp(0.6 * rng.normal()), 2, 400)),
        }
        for at_s in arrival_s
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 requests, 15 a second."""
    rng = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("trace")
    return _trace(folder / "mine.jsonl", np.cumsum(rng.exponential(1 / 15, 120)).tolist())


@pytest.fixture
def asked(trace: Path, tmp_path: Path) -> CapacityQuestion:
    """A grid of eight settings, in this process."""
    return CapacityQuestion(
        trace=trace,
        model=MODEL,
        slo=SLO,
        most_gpus=4,
        policies=("vllm", "vllm_0_4"),
        dispatch=("least_loaded",),
        tensor_parallel=(1, 2),
        max_num_batched_tokens=(8192,),
        max_num_seqs=(256, 8),
        results=tmp_path,
        more=("workers=1",),
    )


def test_the_answer_is_that_of_all_settings_at_all_replicas(asked: CapacityQuestion) -> None:
    """And a higher load needs no fewer GPUs."""
    ready = prepared(asked)
    assert len(ready.candidates) == 8
    problem, needed = ready.problem, []
    with Servers(ready.site, 1) as servers:
        for load in (0.5, 1.0, 2.0):
            found = cheapest(problem, ready.candidates, servers.serve, at={"load": load})
            every = [
                Trial(one, replicas, load=load)
                for one in ready.candidates
                for replicas in range(1, 4 // one.tensor_parallel + 1)
            ]
            served = dict(zip(every, servers.serve(every), strict=True))
            kept = [trial for trial in every if problem.is_kept(served[trial])]
            rank = [(problem.cost(it), round(problem.worst(served[it]), 2)) for it in kept]
            assert found[0].trial == kept[rank.index(min(rank))]
            needed.append(found[0].trial.gpus)
    assert needed == sorted(needed)
    assert needed[0] < needed[-1]


@pytest.fixture(scope="module")
def done(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[CapacityPlan, list[str]]:
    """A plan with a price and a curve, and what was said before."""
    said: list[str] = []
    asked = CapacityQuestion(
        trace=trace,
        model=MODEL,
        slo=SLO,
        prices=(2.5,),
        most_gpus=4,
        policies=("vllm", "srtf"),
        tensor_parallel=(1,),
        max_num_batched_tokens=(8192,),
        max_num_seqs=(256,),
        loads=(0.2, 1.0, 50.0),
        results=tmp_path_factory.mktemp("results"),
        more=("workers=1",),
    )
    return plan(asked, said.append), said


def test_the_assumptions_are_said_first(done: tuple[CapacityPlan, list[str]]) -> None:
    found, said = done
    assert tuple(said) == found.basis
    text = "\n".join(said)
    for part in (
        "requests: 120, mean prompt 1,",
        "objectives: ttft 0.4 p90, tpot 0.02 p90, over all requests; one that is not answered is",
        "GPUs: h100_80g_8 (8 a machine), at most 4 in all; a replica lies within a machine; to",
        "settings: 4: tensor parallel 1; max_num_batched_tokens 8,192; max_num_seqs 256; policies",
        "lengths: srtf order by the predictor oracle: true lengths, the most that orders by",
        "seconds: simulated, llama-3.1-8b-16k on h100_80g_8, engine vllm-async on kernels of H100",
    ):
        assert part in text


def test_the_answer_its_margin_and_what_binds(done: tuple[CapacityPlan, list[str]]) -> None:
    found, _ = done
    answer, margin, binds = found.sentences
    gpus = found.found[0].trial.gpus
    assert answer.startswith(f"{gpus} GPUs of h100_80g_8 keep the objectives for ${2.5 * gpus:.2f}")
    assert "ttft p90 0." in answer
    assert margin.startswith("It keeps the objectives up to ")
    assert binds.startswith(("What binds there is compute: ", "What binds there is bursts: "))
    blocks, costs, basis = found.sure
    assert blocks.startswith("Over blocks of the trace (95%): ttft p90 0.")
    assert "% of the draws keep the objectives" in blocks
    assert costs.startswith("As the costs may be off by 12%")
    assert "median error TPOT 7%, TTFT 12%" in basis
    assert is_finished(found.folder)


def test_the_curve_and_the_files(done: tuple[CapacityPlan, list[str]], tmp_path: Path) -> None:
    """No number of GPUs up to the most suffices at 50 times the load."""
    found, _ = done
    assert found.curve["at"].tolist() == ["0.2", "1", "50"]
    few, own, lost = found.curve["gpus"]
    assert few == 1
    assert own == found.found[0].trial.gpus > 1
    assert pd.isna(lost)
    paths = written(found, tmp_path)
    assert [path.name for path in paths] == ["settings.csv", "curve.csv", "curve.png"]
    assert len(pd.read_csv(paths[0])) == len(found.found) == 4


def test_hours_are_served_apart(
    asked: CapacityQuestion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three hours from 10:30 on, of which the last has too few requests; 30 of each are taken."""
    monkeypatch.setattr(of_question, "MOST_REQUESTS", 30)
    start_s = 1_700_000_000 // 86_400 * 86_400 + 10.5 * HOUR_S
    times = [*np.linspace(0, 1700, 40), *np.linspace(1900, 1910, 60), *np.linspace(5500, 5600, 5)]
    path = _trace(tmp_path / "day.jsonl", [start_s + it for it in times])
    few = replace(
        asked, trace=path, hours=True, slo="ttft 1 p90", policies=("vllm",), requests=None
    )
    found = plan(few)
    assert found.curve["at"].tolist() == ["2023-11-14 10:00", "2023-11-14 11:00"]
    assert [it.requests for it in found.prepared.few] == [5]
    slow, fast = found.curve["requests_per_s"]
    assert (slow, fast) == (pytest.approx(39 / 1700, rel=0.02), pytest.approx(5.9, rel=0.02))
    assert found.curve["gpus"].tolist() == sorted(found.curve["gpus"])


def test_seconds_are_those_of_an_observed_server(asked: CapacityQuestion, tmp_path: Path) -> None:
    """A server that is 1.3 times as slow: the plan takes its seconds, and the error of the fit."""
    log = simulated_log(tmp_path, "hardware.scale_seconds=1.3", model=MODEL, requests=80)
    few = replace(asked, policies=("vllm",), tensor_parallel=(1,), max_num_seqs=(256,))
    server = server_of(few, log, "1x1 engine.max_num_seqs=256")
    fitted = fit(replace(server, folder=tmp_path / "fit"))
    assert fitted.factors["scale_seconds"] == pytest.approx(1.3, rel=0.03)
    assert fitted.error < 0.05
    own, plain = plan(few, fitted=fitted), plan(few)
    assert f"{fitted.error:.0%}, their median error (of TTFT or TPOT, 40 requests of" in own.sure[1]
    assert "seconds of iterations x 1." in own.sure[2]
    limits = zip(own.found[0].values_s, plain.found[0].values_s, strict=True)
    assert own.found[0].trial.gpus > plain.found[0].trial.gpus or all(a > b for a, b in limits)


def _failing(asked: CapacityQuestion) -> str:
    with pytest.raises(ValueError, match=r"\w") as refused:
        plan(asked)
    return str(refused.value)


def test_what_cannot_be_kept_is_said_with_the_nearest_value(asked: CapacityQuestion) -> None:
    said = _failing(replace(asked, slo="tpot 0.001 p90, ttft 1 p90"))
    assert said.startswith("tpot 0.001 p90: the least that any setting gives is 0.00")
    assert "GPUs (tensor parallel 2, policy vllm" in said


def test_files_without_times_have_arrivals_drawn(asked: CapacityQuestion, tmp_path: Path) -> None:
    """The first requests are taken: none is in a busiest minute."""
    rows = [{"prompt_tokens": 100 + it, "output_tokens": 10} for it in range(60)]
    path = tmp_path / "lengths.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    drawn = ("workload/arrivals=gamma", "workload.arrivals.rate_per_s=5", *asked.more)
    ready = prepared(replace(asked, trace=path, requests=40, more=drawn, slo="ttft 1 p90"))
    assert (ready.load.requests, ready.there) == (40, 60)


def test_a_model_that_fits_no_split_is_said_in_bytes(asked: CapacityQuestion) -> None:
    large = str(ROOT / "scenarios/models/llama-3.1-70b/config.json")
    said = _failing(replace(asked, model=large, tensor_parallel=(1,)))
    assert "fits no split of h100_80g_8 (1 GPUs): weights of 141.1 GB a GPU leave no room" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpu", "h100"], "No file of scenarios/hardware is called 'h100'"),
        (["--policies", "vllm,nope"], "No policy is called 'nope'"),
        (["--dispatch", "muxserve"], "No system/dispatch is called 'muxserve'"),
        (["--slo", "ttft 1 p999"], "p999 is neither a percentile, as p95, nor mean"),
        (["--slo", "ttft 1 p99.9"], "ttft p99.9 needs 1,000 requests, 120 are served"),
        (["--price", "1,2"], "--price has 1.0, 2.0, it needs one number for each kind of"),
        (["--max-num-seqs", "256,0"], "--max-num-seqs: 256, 0 are not all above 0"),
        (["--observed-at", "1x4"], "--observed-at 1x4: no log is given, --observed LOG"),
        (["--tensor-parallel", "16"], "a machine of h100_80g_8 has 8 GPUs"),
        (["--scale", "1,x"], "--scale 1,x: it takes numbers with commas between them"),
        (["--requests", "500"], "has 120 requests, 500 were asked for"),
        (["--hours"], "which is no more than an hour"),
        (["--observed", "a.csv", "--observed-at", "4"], "--observed-at 4: it begins with copies x"),
        (["--observed", "a.csv", "hardware.scale_seconds=2"], "itself: they are fitted"),
        (["slo.ttft_s=3"], "slo.ttft_s=3: plan sets slo itself (--slo)"),
        (["hardware.expert_parallel=true"], "plan sets hardware.expert_parallel itself"),
    ],
)
def test_bad_input_is_one_sentence(
    words: list[str], said: str, trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(trace), "--model", MODEL, "--slo", "ttft 1", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert said in error


def test_a_trace_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "no.jsonl", "--model", MODEL, "--slo", "ttft 1"]) == 2
    assert capsys.readouterr().err == "error: no.jsonl is no file\n"


def test_texts_of_a_command_line_are_lists(trace: Path) -> None:
    texts = {"gpus": "a,b", "prices": "1,2.5", "policies": "", "tensor_parallel": "2, 4"}
    asked = question_of(texts, trace=trace, model="m", slo="ttft 1")
    assert (asked.gpus, asked.prices, asked.policies) == (["a", "b"], [1.0, 2.5], ())
    assert asked.tensor_parallel == [2, 4]


def test_words_fix_a_choice(asked: CapacityQuestion) -> None:
    fixed = replace(asked, policies=(), more=("policy=vllm", "engine.max_num_seqs=64", *asked.more))
    of = prepared(fixed).candidates
    assert {(one.policy, one.max_num_seqs) for one in of} == {("vllm", 64)}


def test_a_policy_with_a_limit_of_its_own_has_one_choice_for_it(asked: CapacityQuestion) -> None:
    own = replace(asked, policies=("slai",), max_num_batched_tokens=(2048, 8192))
    of = prepared(own).candidates
    assert {one.max_num_batched_tokens for one in of} == {2048}
