from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.costs.model_facts import model_facts
from harness.workloads.ensemble import Ensemble

MODELS = ("vicuna-13b-v1.5", "chatglm3-6b", "dolly-v2-12b")


def workload_factory(**changes: Any) -> Ensemble:
    """Forty prompts to three models."""
    settings: dict[str, Any] = {
        "models": MODELS,
        "requests": 40,
        "max_output_tokens": 256,
        "output_scale": 1.0,
        "source": "profile",
        "profile": "mixinstruct_prompts",
        "hub_dataset": "",
        "hub_split": "",
        "starts_s": 0.0,
    }
    return Ensemble(**(settings | changes))


def by_model(values: NDArray[Any]) -> NDArray[Any]:
    """A row per prompt, a column per model."""
    return values.reshape(-1, len(MODELS))


def test_every_model_answers_the_same_prompts_at_once() -> None:
    load = workload_factory().build(3)
    prompts = by_model(load.prompt_tokens)
    assert prompts.shape == (40, 3)
    assert (prompts == prompts[:, :1]).all()
    assert len(np.unique(prompts)) > 5
    assert (by_model(load.service) == [0, 1, 2]).all()
    assert (by_model(load.app) == np.arange(40)[:, None]).all()
    assert (load.arrival_s == 0).all()
    assert tuple(service.id for service in load.services) == MODELS


@pytest.mark.parametrize("limit", [16, 256, 100_000])
def test_no_answer_exceeds_its_limit_or_the_context(limit: int) -> None:
    load = workload_factory(max_output_tokens=limit).build(0)
    context = np.array([model_facts(name).max_context_tokens for name in MODELS])
    room = context - by_model(load.prompt_tokens)
    assert (by_model(load.max_output_tokens) == np.minimum(limit, room)).all()
    assert (load.output_tokens <= load.max_output_tokens).all()
    assert (load.output_tokens >= 1).all()


def test_a_limit_does_not_change_what_would_have_been_said() -> None:
    """Runs with other limits are paired: the shorter answers are the longer ones, cut."""
    short, long = (
        workload_factory(max_output_tokens=64).build(5),
        workload_factory(max_output_tokens=512).build(5),
    )
    assert (short.output_tokens == np.minimum(long.output_tokens, 64)).all()


def test_the_scale_stretches_every_answer() -> None:
    once, twice = (
        workload_factory(max_output_tokens=100_000, output_scale=scale).build(5)
        for scale in (1.0, 2.0)
    )
    assert (
        twice.output_tokens == np.minimum(2 * once.output_tokens, twice.max_output_tokens)
    ).all()
    tiny = workload_factory(output_scale=1e-9).build(5)
    assert (tiny.output_tokens == 1).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"requests": 0}, "workload.requests is 0, it must be positive"),
        ({"models": ("mpt-7b-chat",) * 2}, "workload.models must name each model once"),
        ({"models": ("vicuna-14b",)}, "No model is called 'vicuna-14b'; closest: vicuna-13b-v1.5"),
    ],
)
def test_impossible_wishes_are_one_sentence(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        workload_factory(**changes)


def test_a_prompt_that_leaves_no_room_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text('{"prompt_tokens": 2048}\n')
    with pytest.raises(ValueError, match="a prompt of 2048 tokens fills the context of dolly"):
        workload_factory(requests=1, source=str(path)).build(0)


def test_the_files_behind_it_are_known_before_it_is_built(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt_tokens": 20}\n')
    wanted = workload_factory(requests=1, source=str(path))
    answers = {name for name in wanted.files if name.startswith("harness/profiles/lengths/")}
    assert len(answers) == len(wanted.models)
    assert set(wanted.files) - answers == {str(path), "harness/profiles/tokens_per_word.json"}
    assert wanted.files.items() <= wanted.build(0).datasets.items()
