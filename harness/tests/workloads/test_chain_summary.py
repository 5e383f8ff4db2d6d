from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from harness.config.build import build
from harness.interface.graph import NO_CALL, Graph
from harness.workloads.chain_summary import ChainSummary

NODE = yaml.safe_load(
    (Path(__file__).parents[3] / "scenarios" / "workload" / "chain_summary.yaml").read_text()
)


def workload_factory(**changes: Any) -> ChainSummary:
    """The workload of the configuration, changed."""
    made = build({**NODE, **changes})
    assert isinstance(made, ChainSummary)
    return made


def test_documents_are_skewed_as_the_paper_says() -> None:
    for documents, longest in ((100, 60), (300, 201), (500, 201)):
        chunks = [workload_factory(documents=documents).chunks(seed) for seed in range(5)]
        assert all(c.max() == longest and c.min() >= 1 for c in chunks)
        assert 2 <= np.median(np.concatenate(chunks)) <= 4


def test_calls_of_a_document_follow_each_other_and_the_last_is_judged() -> None:
    load = workload_factory(documents=4, evaluations=3, median_chunks=3, chunks_sigma=0).build(0)
    graph = Graph(load.edges, load.service)
    assert graph.chain[:12].tolist() == [
        1,
        2,
        NO_CALL,
        4,
        5,
        NO_CALL,
        7,
        8,
        NO_CALL,
        10,
        11,
        NO_CALL,
    ]
    assert [graph.children(call) for call in (2, 11)] == [[12, 13, 14], [21, 22, 23]]
    assert load.app[:12].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert load.app[12:].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    answers = load.output_tokens
    assert load.prompt_tokens[0] == 2048 + 200
    assert load.prompt_tokens[1] == 2048 + 200 + answers[0]
    assert load.prompt_tokens[12] == 200 + answers[2]
    assert (load.own_tokens[[2, 5, 8, 11]] <= 2048 + 200).all()
    assert (answers <= load.max_output_tokens).all()


def test_the_evaluator_may_have_a_limit_of_its_own() -> None:
    own = workload_factory(evaluation_max_output_tokens=40).build(0)
    same = workload_factory().build(0)
    judges = own.service == 1
    assert set(own.max_output_tokens[judges]) == {40}
    assert own.output_tokens[judges].max() == 40
    assert set(same.max_output_tokens) == set(own.max_output_tokens[~judges]) == {900}
    np.testing.assert_array_equal(own.output_tokens[~judges], same.output_tokens[~judges])


def test_true_answers_may_come_from_other_lengths() -> None:
    model = "Mixtral-8x7B-Instruct-v0.1"
    published = {model: f"{model}_book_summaries"}
    plain, book = (
        workload_factory(summariser=model, true_lengths=lengths).build(0).output_tokens[:400].mean()
        for lengths in ({}, published)
    )
    assert 300 < plain < 350
    assert 620 < book < 660


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"documents": 0}, "workload.documents is 0"),
        ({"evaluations": -1}, "workload.evaluations is -1"),
        ({"summariser": "vicuna"}, "vicuna"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        workload_factory(**change)
