"""A model to count operations of by hand, and loads of it."""

from collections.abc import Sequence

import numpy as np

from harness.costs.model_facts import ModelFacts
from harness.planning.plans import Load, ready_load

TINY = ModelFacts(
    name="tiny",
    layers=2,
    hidden_size=4,
    attention_heads=2,
    kv_heads=2,
    head_dim=2,
    intermediate_size=8,
    gated_mlp=False,
    vocab_size=10,
    max_context_tokens=4096,
    parameters=1000,
    source="made up",
)


def load_of(
    prompts: Sequence[int], outputs: Sequence[int], generated: Sequence[int] | None = None
) -> Load:
    """Requests that are ready, with nothing `generated` if that is left out."""
    before = [0] * len(prompts) if generated is None else generated
    return ready_load(*(np.array(each, np.int64) for each in (prompts, before, outputs)))
