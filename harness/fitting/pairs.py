"""Makes the stored tables of pairs: lengths of prompts, and of answers by length of the prompt."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.fitting.lengths import CHAT_SOURCE, thinned

Ints = NDArray[np.int64]
Json = dict[str, Any]

BINS = 8  # of as many prompts each, by their length
POINTS = 40  # equal steps of the share at which the answers of a bin are kept
PROMPT_POINTS = 100
LAST_ROUND = 6  # with all that follow
ARENA_SOURCE = (
    "artifact of arXiv 2401.00588 @192c2e2, fair_bench/real_trace.pkl: a log of Chatbot Arena"
)


def pair_files(data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every table."""
    arena = pd.read_csv(data / "lmsys_arena" / "trace.csv.gz")
    kind = "1,500 requests to Chatbot Arena: prompt and answer"
    yield "lmsys_arena.json", _content(kind, ARENA_SOURCE, {"all": part(arena)})
    turns = pd.read_csv(data / "sharegpt" / "lengths.csv.gz")
    rounds = turns["turn"].clip(upper=LAST_ROUND)
    kind = (
        "ShareGPT conversations by round: history with the new prompt, and the answer; round "
        f"{LAST_ROUND} with all that follow; conversations cut at 8K tokens, answers at 1,024"
    )
    parts = {str(number): part(rows) for number, rows in turns.groupby(rounds)}
    yield "sharegpt_rounds.json", _content(kind, CHAT_SOURCE, parts)


def _content(kind: str, source: str, parts: Json) -> Json:
    return {"kind": kind, "source": source, "parts": parts}


def part(rows: pd.DataFrame) -> Json:
    """Prompts of the rows, and answers by bin; a bin ends at a length, so they differ a little."""
    prompts = rows["input_tokens"].to_numpy(np.int64)
    outputs = rows["output_tokens"].to_numpy(np.int64)
    ends = np.unique(np.quantile(prompts, np.linspace(0, 1, BINS + 1)[1:], method="higher"))
    place = np.searchsorted(ends, prompts, side="left")
    return {
        "count": len(rows),
        "prompts": table(prompts, PROMPT_POINTS),
        "outputs": [
            {"up_to_prompt_tokens": int(end)} | table(outputs[place == number], POINTS)
            for number, end in enumerate(ends)
        ],
    }


def table(lengths: Ints, points: int) -> Json:
    """Some of the lengths with the share that does not exceed them; the mean is of all."""
    tokens, count = np.unique(lengths, return_counts=True)
    at, cumulative = thinned(tokens, np.cumsum(count / count.sum()), points=points)
    return {
        "mean_tokens": float(f"{lengths.mean():.6g}"),
        "tokens": [int(value) for value in at],
        "cumulative": [float(f"{value:.6g}") for value in cumulative],
    }
