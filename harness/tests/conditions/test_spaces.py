"""Spaces of papers and of a user's two policies: what their settings are, as configurations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from harness.__main__ import main
from harness.claims.paper import papers
from harness.conditions.cells import ground_of
from harness.conditions.space import read_spaces, space_of
from harness.conditions.trials import OfPaper, tried
from harness.config.paths import ROOT
from harness.predictors.ranked import Ranked
from harness.runs.building import cell_of
from harness.runs.config import configuration
from harness.where import OfPolicies, PoliciesAsked, content_of
from harness.workloads.lengths import Paired
from harness.workloads.reshaped import Reshaped

MANY = {"requests": 1000}
BUG = "def bug(*_): raise ValueError('a bug of its own')"
LENGTHS = {"table": "lmsys_arena", "part": "all", "outputs": None, "longest_output_tokens": None}


@pytest.mark.parametrize("paper", papers())
def test_claims_and_cells_of_a_space_are_there(paper: str) -> None:
    for name, space in read_spaces(paper).items():
        assert OfPaper(paper, name, space.content).claims.keys() == space.claims.keys()
        assert ground_of(space).sides


@pytest.mark.parametrize("times", [0.4, 1.0, 1.6])
def test_spread_keeps_the_mean_and_the_order_of_answers(times: float) -> None:
    own = Paired(**LENGTHS)  # type: ignore[arg-type]
    other = Reshaped(lengths=own, spread_times=times, prompt_times=2.0, longest_output_tokens=4096)
    (prompts, answers), (doubled, spread) = (
        it.draw(4000, np.random.default_rng(1), np.random.default_rng(2)) for it in (own, other)
    )
    variation = [it.std() / it.mean() for it in (answers, spread)]
    assert variation[1] / variation[0] == pytest.approx(times, rel=0.05)
    assert spread.mean() == pytest.approx(answers.mean(), rel=0.05)
    assert (np.diff(spread[np.argsort(answers, kind="stable")]) >= 0).all()
    assert (doubled == 2 * prompts).all()


def test_a_setting_of_two_policies_is_served_at_equal_limits() -> None:
    """Neither of them is the policy that comparisons are over where nothing else is said."""
    one, other = "ssjf_continuous", "fcfs_continuous"
    asked = PoliciesAsked(one, other, words=("workload.requests=60",))
    content = content_of([one, other], [*asked.words], asked) | {"backlog": 60}
    question = OfPolicies(one, other, "jct_s_mean", 0.1, content)
    ground = ground_of(space_of("where", content))
    point = {**ground.reference[0], "load": 2.0, "batch": 8.0}
    limits = {ground.configuration(it, point, 0).engine["max_num_seqs"] for it in ground.sides}
    assert limits == {8}
    (found,) = tried(ground, question.claims, point, 3).found.values()
    assert found.value > 0.05


def test_cells_go_by_what_is_claimed_and_not_by_where_a_file_lies(tmp_path: Path) -> None:
    names = ["ssjf_continuous", "vllm"]
    asked = PoliciesAsked("ssjf_continuous", "vllm", words=("workload.requests=60",))
    stamps = []
    for folder, gain in (("a", 0.1), ("b", 0.1), ("a", 0.3)):
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        words = [*asked.words, f"hydra.searchpath=[file://{path}]"]
        ground = ground_of(space_of("where", content_of(names, words, asked)))
        stamps.append(ground.stamp([], {"where": [repr(1.5 * gain), "%"]}))
    assert stamps[0] == stamps[1] != stamps[2]


def test_an_error_of_a_policy_is_no_impossible_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    space = read_spaces("ssjf")["fig4-none"]
    ground, claims = ground_of(space), OfPaper("ssjf", space.name, space.content).claims
    monkeypatch.setattr(ground, "serve", lambda *_: read_spaces("nope"))
    assert tried(ground, claims, {"load": 1.0}, 1).why.startswith("No paper with conditions.yaml")
    names: dict[str, Any] = {}
    exec(compile(BUG, "/somewhere/policy.py", "exec"), names)
    monkeypatch.setattr(ground, "serve", names["bug"])
    with pytest.raises(ValueError, match="with load 1: a bug of its own"):
        tried(ground, claims, {"load": 1.0}, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["vllm", "srtf", "--gain", "nan"], "--gain nan: it takes a share above 0"),
        (["vllm", "srtf", "--gain", "-0.1"], "--gain -0.1: it takes a share above 0"),
    ],
)
def test_a_bad_gain_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["where", *words]) == 2
    assert said in capsys.readouterr().err


def test_files_of_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A policy is known by the name of its file."""
    files = [tmp_path / folder / "mine.py" for folder in ("a", "b")]
    for path in files:
        path.parent.mkdir()
        path.write_bytes((ROOT / "harness/tests/data/policies/mine.py").read_bytes())
    assert main(["where", *map(str, files)]) == 2
    assert "are both called mine" in capsys.readouterr().err


def test_predictions_agree_with_the_truth_as_far_as_asked() -> None:
    load = ground_of(read_spaces("ssjf")["fig4-none"]).baseline
    cell = cell_of(configuration(load.plain | {"workload": load.plain["workload"] | MANY}))
    workload = cell.workload_factory.build(0)
    for wanted in (0.0, 0.5, 0.8, 1.0):
        predictor = Ranked(rank_correlation=wanted, latency_s=0.0).of(workload, 0)
        requests = [workload.facts(it) for it in range(len(workload))]
        said = [predictor.predict(it)[0].mean_tokens for it in requests]
        assert spearmanr(said, workload.output_tokens)[0] == pytest.approx(wanted, abs=0.06)


def test_applications_come_at_a_load_of_each_seed() -> None:
    """Half the load is twice the seconds in which they come; seeds have loads of their own."""
    space = read_spaces("hermes")["windows"]
    ground = ground_of(space)
    point = {**ground.reference[0], "applications": 50.0}
    spans_s = [
        ground.configuration(ground.baseline, {**point, "load": load}, seed).workload["arrivals"][
            "duration_s"
        ]
        for load, seed in ((1.0, 0), (0.5, 0), (1.0, 1))
    ]
    assert spans_s[1] == pytest.approx(2 * spans_s[0])
    assert spans_s[2] != pytest.approx(spans_s[0], rel=0.01)
    assert spans_s[0] == pytest.approx(50 / ground.capacity_per_s(point, 0))
