"""Requests per model as asked for, lengths within the published bounds and about their means."""

from typing import Any

import numpy as np
import pytest

from harness.workloads.routing import Routing

ABOUT: dict[str, Any] = {
    "requests": {"Mistral-7B-Instruct-v0.2": 2657, "WizardLM-13B-V1.2": 2068},
    "max_output_tokens": 4096,
    "answers": "published",
    "prompt_tokens": {"least": 9, "mean": 310, "most": 577, "concentration": 2.0},
    "answer_tokens": {"least": 3, "mean": 199, "most": 1585, "sigma": 1.0},
    "output_scale": 1.0,
    "starts_s": 0.0,
}


def test_counts_and_published_lengths() -> None:
    load = Routing(**ABOUT).build(0)
    assert [s.id for s in load.services] == list(ABOUT["requests"])
    assert np.bincount(load.service).tolist() == list(ABOUT["requests"].values())
    for values, about in (
        (load.prompt_tokens, ABOUT["prompt_tokens"]),
        (load.output_tokens, ABOUT["answer_tokens"]),
    ):
        assert about["least"] <= values.min()
        assert values.max() <= about["most"]
        standard_error = values.std() / np.sqrt(len(values))
        assert abs(values.mean() - about["mean"]) < 4 * standard_error
    assert (load.max_output_tokens == np.minimum(4096, _context(load) - load.prompt_tokens)).all()


def test_own_lengths_differ_by_model_and_scale() -> None:
    load = Routing(**ABOUT | {"answers": "own"}).build(0)
    means = [load.output_tokens[load.service == i].mean() for i in (0, 1)]
    assert abs(means[0] - means[1]) > 20
    half = Routing(**ABOUT | {"answers": "own", "output_scale": 0.5}).build(0)
    assert half.output_tokens.mean() < 0.6 * load.output_tokens.mean()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"requests": {"Mistral-7B-Instruct-v0.2": 0}}, "must give each model at least 1"),
        ({"requests": {"unknown": 1}}, "No model is called 'unknown'"),
        ({"answers": "guessed"}, "answers=guessed is not one of own, published"),
        ({"prompt_tokens": {"least": 9}}, "prompt_tokens has"),
        ({"answer_tokens": {"least": 3, "mean": 2, "most": 9, "sigma": 1.0}}, "no distribution"),
        (
            {"prompt_tokens": {"least": 9, "mean": 4200, "most": 4300, "concentration": 2.0}},
            "fills the context",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Routing(**ABOUT | changes).build(0)


def _context(load: Any) -> Any:
    return np.array([s.max_context_tokens for s in load.services])[load.service]
