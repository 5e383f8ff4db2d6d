"""Spaces of papers and of a user's two policies: what their settings are, as configurations."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from harness.claims.paper import papers
from harness.conditions.cells import ground_of
from harness.conditions.space import read_spaces, space_of
from harness.conditions.trials import OfPaper, tried
from harness.predictors.ranked import Ranked
from harness.runs.building import cell_of
from harness.runs.config import configuration
from harness.where import OfPolicies, PoliciesAsked, content_of
from harness.workloads.lengths import Paired
from harness.workloads.reshaped import Reshaped

MANY = {"requests": 1000}
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
    asked = PoliciesAsked("ssjf_continuous", "vllm", words=("workload.requests=60",))
    content = content_of(["ssjf_continuous", "vllm"], [*asked.words], asked) | {"backlog": 60}
    question = OfPolicies("ssjf_continuous", "vllm", "jct_s_mean", 0.1, content)
    ground = ground_of(space_of("where", content))
    point = {**ground.reference[0], "load": 2.0, "batch": 8.0}
    limits = {ground.configuration(it, point, 0).engine["max_num_seqs"] for it in ground.sides}
    assert limits == {8}
    (found,) = tried(ground, question.claims, point, 3).found.values()
    assert found.value > 0.05


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
