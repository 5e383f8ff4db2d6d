"""Makes the stored tables of pairs: lengths of prompts, and of answers by length of the prompt."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.tools.fitting.lengths import CHAT_SOURCE, PROMPT_SOURCE, thinned
from harness.tools.fitting.stored import Json, rounded

Ints = NDArray[np.int64]
TokenRanges = tuple[tuple[int, int], tuple[int, int]]

BINS = 8  # of as many prompts each, by their length
POINTS = 40  # equal steps of the share at which the answers of a bin are kept
PROMPT_POINTS = 100
LAST_ROUND = 6  # with all that follow
MOST_CONTEXT = 2048  # tokens of OPT and LLaMA
# Shortest and longest prompt and answer, arXiv 2411.06364 table 2.
ALPACA_RANGES = ((9, 2470), (13, 292))
TURN_RANGES = ((16, 3200), (19, 991))
BOOK_RANGES = ((18, 461_000), (32, 1041))
# Means of prompts and answers, the same table.
ALPACA_MEANS = (19.31, 58.41)
TURN_MEANS = (161.31, 337.99)
BOOK_MEANS = (1952.11, 681.2)
BOOK_SIGMA = 1.0  # of the logarithm of a prompt before it is cut; not published, chosen
BOOK_BETA = 4.0  # sum of both parameters of the answers' beta distribution; chosen
BOOK_COUNT = 10_000
TOKENS_PER_WORD = 1.4  # of English; LongBench gives words. Estimated
SUMMARY_MODEL = "Llama-2-7b-chat"
SUMMARY_SOURCE = (
    "zai-org/LongBench, lengths and predictions of Llama-2-7b-chat (arXiv 2308.14508, MIT)"
)
TRACES = {
    "lmsys_arena": (
        "lmsys_arena/trace.csv.gz",
        "1,500 requests to Chatbot Arena: prompt and answer",
        "artifact of arXiv 2401.00588 @192c2e2, fair_bench/real_trace.pkl: a log of Chatbot Arena",
    ),
    "azure_llm_conv": (
        "azure_llm_2023/conv.csv.gz",
        "19,366 requests to Azure's LLM service for conversations, 2023",
        "Azure/AzurePublicDataset @b469a11, AzureLLMInferenceTrace_conv.csv (CC BY 4.0)",
    ),
    "azure_llm_code": (
        "azure_llm_2023/code.csv.gz",
        "8,819 requests to Azure's LLM service for code, 2023",
        "Azure/AzurePublicDataset @b469a11, AzureLLMInferenceTrace_code.csv (CC BY 4.0)",
    ),
    "mooncake_conversation": (
        "mooncake/conversation.csv.gz",
        "12,031 requests of Kimi's conversations, 2024",
        "kvcache-ai/Mooncake @3b5a594, FAST25-release/traces/conversation_trace.jsonl (Apache-2.0)",
    ),
}
"""By table: the file, what it has, and its source."""


def pair_files(data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every table."""
    turns = pd.read_csv(data / "sharegpt" / "lengths.csv.gz")
    rounds = turns["turn"].clip(upper=LAST_ROUND)
    kind = (
        "ShareGPT conversations by round: history with the new prompt, and the answer; round "
        f"{LAST_ROUND} with all that follow; conversations cut at 8K tokens, answers at 1,024"
    )
    parts = {str(number): part(rows) for number, rows in turns.groupby(rounds)}
    yield "sharegpt_rounds.json", {"kind": kind, "source": CHAT_SOURCE, "parts": parts}
    for name, kind, source, rows in _tables(data, turns):
        yield f"{name}.json", {"kind": kind, "source": source, "parts": {"all": part(rows)}}


def _tables(data: Path, turns: pd.DataFrame) -> Iterator[tuple[str, str, str, pd.DataFrame]]:
    """Name, kind, source and pairs of every table of one part."""
    for name, (path, kind, source) in TRACES.items():
        yield name, kind, source, pd.read_csv(data / path)
    names = {"prompt_tokens": "input_tokens", "response_tokens": "output_tokens"}
    alpaca = pd.read_parquet(data / "alpaca" / "prompts.parquet").rename(columns=names)
    kind, alpaca = f"Alpaca, {_cut(ALPACA_RANGES)}", _within(alpaca, ALPACA_RANGES)
    yield "alpaca", kind, PROMPT_SOURCE, alpaca
    scaled = _scaled(alpaca, ALPACA_MEANS, ALPACA_RANGES)
    yield "alpaca_scaled", f"{kind}; {_to(ALPACA_MEANS)}", PROMPT_SOURCE, scaled
    turns = turns.assign(input_tokens=turns["new_input_tokens"])
    kind = f"ShareGPT turns without their history, {_cut(TURN_RANGES)}"
    turns = _within(turns, TURN_RANGES)
    yield "sharegpt_turns", kind, CHAT_SOURCE, turns
    scaled = _scaled(turns, TURN_MEANS, TURN_RANGES)
    yield "sharegpt_turns_scaled", f"{kind}; {_to(TURN_MEANS)}", CHAT_SOURCE, scaled
    tasks = pd.read_parquet(data / "longbench" / "lengths.parquet").query("language == 'en'")
    words, answers = tasks["input_units"], tasks["out_llama2_7b_chat"].clip(lower=1)
    tasks = tasks.assign(input_tokens=(words * TOKENS_PER_WORD).round(), output_tokens=answers)
    kind = (
        f"LongBench tasks in English: words of a prompt times {TOKENS_PER_WORD}, and the answer of "
        f"{SUMMARY_MODEL}"
    )
    yield "longbench", kind, SUMMARY_SOURCE, tasks
    kind = (
        "BookCorpus made up from published statistics, not measured: prompts lognormal of mean "
        f"{BOOK_MEANS[0]} and sigma {BOOK_SIGMA:g}, in chunks of {MOST_CONTEXT} tokens; answers "
        f"beta of mean {BOOK_MEANS[1]}, independent of prompts; {_cut(BOOK_RANGES)}"
    )
    yield "bookcorpus", kind, "arXiv 2411.06364 table 2", _books()


def _cut(ranges: TokenRanges) -> str:
    (shortest_prompt, _), (shortest, longest) = ranges
    return (
        f"answers of {shortest} to {longest} tokens, prompts of at least {shortest_prompt} tokens "
        f"cut at {_most_prompt(ranges)}, so that both fit a context of {MOST_CONTEXT}"
    )


def _to(means: tuple[float, float]) -> str:
    prompt, answer = means
    return (
        f"then scaled to prompts of mean {prompt} and answers of mean {answer}, "
        "arXiv 2411.06364 table 2"
    )


def _scaled(rows: pd.DataFrame, means: tuple[float, float], ranges: TokenRanges) -> pd.DataFrame:
    """Prompts and answers times one factor each, cut at the shortest and longest again."""
    for column, mean, (shortest, longest) in zip(
        ("input_tokens", "output_tokens"), means, ranges, strict=True
    ):
        most = _most_prompt(ranges) if column == "input_tokens" else longest
        tokens = (rows[column] * mean / rows[column].mean()).round().astype(np.int64)
        rows = rows.assign(**{column: tokens.clip(shortest, most)})
    return rows


def _most_prompt(ranges: TokenRanges) -> int:
    return min(ranges[0][1], MOST_CONTEXT - ranges[1][1])


def _within(rows: pd.DataFrame, ranges: TokenRanges) -> pd.DataFrame:
    """The rows within the published ranges, prompts cut so that any answer fits the context."""
    kept = rows["input_tokens"].between(*ranges[0]) & rows["output_tokens"].between(*ranges[1])
    return rows[kept].assign(input_tokens=rows["input_tokens"].clip(upper=_most_prompt(ranges)))


def _books() -> pd.DataFrame:
    """Prompts and answers of the published means and ranges."""
    rng = np.random.default_rng(0)
    mean_prompt, mean_answer = BOOK_MEANS
    shortest, longest = BOOK_RANGES[1]
    whole = mean_prompt * np.exp(BOOK_SIGMA * rng.standard_normal(BOOK_COUNT) - BOOK_SIGMA**2 / 2)
    # A chunk is full but for the last of its book.
    chunks = [
        np.r_[np.full(int(size) // MOST_CONTEXT, MOST_CONTEXT), int(size) % MOST_CONTEXT]
        for size in whole
    ]
    prompts = np.concatenate(chunks)
    share = (mean_answer - shortest) / (longest - shortest)
    drawn = rng.beta(BOOK_BETA * share, BOOK_BETA * (1 - share), len(prompts))
    answers = np.rint(shortest + (longest - shortest) * drawn).astype(np.int64)
    rows = pd.DataFrame({"input_tokens": prompts, "output_tokens": answers})
    return _within(rows, BOOK_RANGES)


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
    found = {"mean_tokens": lengths.mean(), "tokens": at, "cumulative": cumulative}
    return rounded(found)  # type: ignore[no-any-return]
