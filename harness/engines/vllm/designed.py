"""Batches designed to tell what an iteration costs, and what is kept of each when it is timed."""

from dataclasses import dataclass

import numpy as np

COLUMNS = (
    *("prompts", "prompt_tokens", "attended", "decodes", "context_tokens", "longest_tokens"),
    *("received", "received_s", "prepare_s", "forward_s", "other_s"),
)
"""Of an iteration: what it computed, how many requests were taken in before it, and seconds.

It takes them in, prepares, computes, and accounts: these seconds add up to those of the loop.
"""

# Requests that run together, median tokens of their prompts, tokens of a batch, iterations between
# two arrivals: all at once at a budget that takes several prompts and at one that cuts them into
# chunks, and one after the other, so that a prompt meets the decodes of the others.
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128)
PROMPTS = (16, 80, 240)
ARRIVALS = ((2048, 0), (160, 0), (2048, 2))
SPREAD = 0.7  # sigma of the logarithm of prompt lengths: unequal ones cost more
LONGEST = 700
ANSWER_TOKENS = 12
SHORT_REQUESTS, SHORT_PROMPT = (1, 8, 32), 80
"""Of the runs that say how fast a machine is at the moment."""


@dataclass(frozen=True, slots=True)
class Designed:
    """Requests that run together: prompts in tokens, the budget of a batch, iterations per arrival.

    With a `gap` of 0 all are there at once.
    """

    prompts: tuple[int, ...]
    budget: int
    gap: int


def design(most_tokens: int, most_requests: int, most_batch_tokens: int) -> list[Designed]:
    """Every run of the design that fits so many tokens of KV, requests and tokens of a batch."""
    rng = np.random.default_rng(0)
    runs = []
    for budget, gap in ARRIVALS:
        for requests in REQUESTS:
            for median in PROMPTS:
                drawn = median * np.exp(SPREAD * rng.standard_normal(requests))
                prompts = tuple(np.rint(drawn).astype(int).clip(1, LONGEST).tolist())
                tokens = sum(prompts) + 2 * ANSWER_TOKENS * requests
                if requests <= most_requests and tokens <= most_tokens:
                    runs.append(Designed(prompts, min(budget, most_batch_tokens), gap))
    return runs


def is_short(run: Designed) -> bool:
    """Whether a run is one of the few that say how fast a machine is at the moment."""
    typical = float(np.exp(np.mean(np.log(run.prompts))))
    nearest = min(PROMPTS, key=lambda median: abs(np.log(typical / median)))
    return len(run.prompts) in SHORT_REQUESTS and nearest == SHORT_PROMPT
