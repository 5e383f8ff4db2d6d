from typing import Any

import numpy as np
import pytest

from harness.costs.iteration import expand, work_seconds
from harness.costs.model import PARTS
from harness.costs.profiles import profile_from
from harness.interface.entities import Work

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from harness.calibrate.stored import Sample, knots_of, profile  # noqa: E402
from harness.calibrate.sweep import Sweep  # noqa: E402


def seconds_of(sample: Sample) -> float:
    """Made-up costs of the kind that is fitted."""
    prompts = 0.0 if not sample.prompts else 1e-3 + 2e-4 * (sample.prompts - 1)
    decodes = 0.0 if not sample.decodes else 8e-5 * (sample.decodes - 1)
    return (
        2e-3
        + prompts
        + 3e-5 * sample.prompt_tokens
        + 5e-8 * sample.attended
        + decodes
        + 4e-7 * sample.context_tokens
    )


def samples(count: int = 400) -> list[Sample]:
    """Batches of prompts, of decodes and of both."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        prompts, decodes = (int(n) for n in rng.integers(0, [6, 129]))
        tokens = int(rng.integers(1, 400, prompts).sum())
        context = int(rng.integers(2, 700, decodes).sum())
        if prompts + decodes == 0:
            continue
        longest = 700 if decodes else 0
        made.append(Sample(prompts, tokens, 30.0 * tokens, decodes, context, longest, (0.0,) * 3))
    return made


class Swept(Sweep):
    """What a sweep leaves behind."""

    def __init__(self) -> None:
        self.load_s, self.kv_blocks, self.block_tokens = 3.0, 400, 32


def stored(slower: float = 1.0) -> dict[str, Any]:
    """A profile fitted to the made-up costs; every repetition but the first is slower."""
    every = samples()
    least = np.array([[[seconds_of(s), 0.0, 0.0]] for s in every]).transpose(1, 0, 2)
    repeated = np.concatenate([least, slower * least, slower * least])
    return profile("tiny", "CPU", every, repeated, Swept())


def test_a_fit_gives_back_the_costs_it_was_made_from() -> None:
    content = stored()
    entry = content["tensor_parallel"]["1"]
    assert max(entry["error"].values()) < 1e-6
    table = expand(profile_from(content, 1, entry), PARTS)
    for s in samples(60):
        work = Work(
            s.prompts,
            s.prompt_tokens,
            s.prompt_tokens,
            s.attended,
            s.decodes,
            s.context_tokens,
            s.longest_tokens,
        )
        assert work_seconds(table, work) == pytest.approx(seconds_of(s), rel=1e-3)


def test_what_the_machine_added_is_multiplied_in() -> None:
    """Two of three repetitions were 10% slower than the least."""
    base, slow = (stored(slower)["tensor_parallel"]["1"] for slower in (1.0, 1.1))
    ratio = slow["decode"]["forward"]["base_s"][0] / base["decode"]["forward"]["base_s"][0]
    assert ratio == pytest.approx(1.1, rel=1e-4)
    assert stored(1.1)["measured"]["slowdown"] == pytest.approx(1.1)


def test_knots_end_where_the_measurements_do() -> None:
    few = [s for s in samples() if s.decodes <= 40]
    assert knots_of(few) == (1, 2, 4, 8, 16, 32)
