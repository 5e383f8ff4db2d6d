"""Makes the stored length tables, and the ratio of tokens to words, from measured lengths."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Json = dict[str, Any]

POINTS = 400  # equal steps of the share at which a long table is kept
TAIL_POINTS = 7  # and halvings of its last step, down to about one in 50,000
SOURCE = "puddingfjz/vllm@de1677d benchmarks/collect_output_lengths/no_robot_copy"
PROMPT_SOURCE = (
    "gpt4life/alpagasus@95ad3e5 data/random/random_9k.json and "
    "tatsu-lab/stanford_alpaca@5e69c50 data/alpaca_5000.json"
)

# The models of arXiv 2503.16893 sec. 5.1 with measured output lengths; they stand for the ninth.
ENSEMBLE = (
    "vicuna-13b-v1.5",
    "oasst-sft-4-pythia-12b-epoch-3.5",
    "alpaca-13b",
    "baize-v2-13b",
    "koala-13B-HF",
    "dolly-v2-12b",
    "mpt-7b-chat",
    "chatglm3-6b",
)
POOLED = "stablelm-tuned-alpha-7b"
PROMPTS = "mixinstruct_prompts"
SUMMARIES = "Mixtral-8x7B-Instruct-v0.1_book_summaries"
SUMMARY_SOURCE = "lilakk/BooookScore@094bf69 summaries"
ANSWERS = "lmsys_vicuna13b"
ANSWERS_SOURCE = (
    "James-QiuHaoran/LLM-serving-with-proxy-models@4b86686 "
    "model-serving/prediction/final/predictions_warmup_multi_cls_1000K.csv"
)
MOST_CHAT = 1024  # tokens
CHAT_PROMPTS = "sharegpt_prompts"
CHAT_SOURCE = (
    "project-etalon/etalon@d5f18de "
    "data/processed_traces/sharegpt_8k_filtered_stats_llama2_tokenizer.csv"
)
# Models with random weights answer at any length: a measured model's, scaled down for a CPU.
LIKENESS = {"tiny": "chatglm3-6b", "small": "vicuna-13b-v1.5", "m100": "alpaca-13b"}
SHRUNK = 8
PROMPT_RANGE = (5, 127)  # arXiv 2503.16893 sec. 5.1
PROMPT_MEAN = 21.0
WORDS_KIND = (
    "Alpaca prompts: tokens over words between white space, both summed over all prompts; "
    "tokens of the vocabulary of Mistral-7B v0.1"
)


def length_files(data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every length table."""
    measured = pd.read_parquet(data / "samullm" / "output_length_pmf.parquet")
    latest = {}
    for model, rows in measured.groupby("model"):
        record = int(rows["record"].max())
        last = rows[rows["record"] == record].sort_values("output_tokens", kind="stable")
        tokens = last["output_tokens"].to_numpy(np.int64)
        share = last["probability"].to_numpy(np.float64)
        latest[str(model)] = tokens, share / share.sum()
        kind = "measured on No Robots prompts"
        yield f"{model}.json", table(*latest[str(model)], kind=kind, record=record, source=SOURCE)
    kind = f"pooled over {', '.join(ENSEMBLE)}, not measured"
    pooled = _pooled([latest[model] for model in ENSEMBLE])
    yield f"{POOLED}.json", table(*pooled, kind=kind, record=None, source=SOURCE)
    for name, like in LIKENESS.items():
        kind = f"those of {like} over {SHRUNK}, for a model with random weights"
        shrunk = _shrunk(*latest[like])
        yield f"{name}.json", table(*shrunk, kind=kind, record=None, source=SOURCE)
    yield f"{PROMPTS}.json", _prompts(data)
    yield f"{CHAT_PROMPTS}.json", _chat_prompts(data)
    yield f"{SUMMARIES}.json", _summaries(data)
    yield f"{ANSWERS}.json", _answers(data)


def _shrunk(tokens: Ints, share: Floats) -> tuple[Ints, Floats]:
    """Lengths a fraction as long, at least 1."""
    distinct, position = np.unique(-(-tokens // SHRUNK), return_inverse=True)
    return distinct, np.bincount(position, weights=share).astype(np.float64)


def _chat_prompts(data: Path) -> Json:
    """First messages of conversations."""
    measured = pd.read_csv(data / "sharegpt" / "lengths.csv.gz")
    first = measured[measured["turn"] == measured["turn"].min()]
    kept = first.query(
        f"input_tokens <= {MOST_CHAT} and input_tokens + output_tokens <= {2 * MOST_CHAT}"
    )
    tokens, count = np.unique(kept["input_tokens"].to_numpy(np.int64), return_counts=True)
    kind = (
        f"measured first messages of ShareGPT conversations, those of at most {MOST_CHAT} tokens "
        f"and {2 * MOST_CHAT} with their answer, as vLLM's benchmark keeps them"
    )
    return table(tokens, count / count.sum(), kind=kind, record=None, source=CHAT_SOURCE)


def _summaries(data: Path) -> Json:
    """Final summaries of books that one model updated chunk by chunk."""
    measured = pd.read_csv(data / "booookscore" / "final_summaries.csv.gz")
    kept = measured.query("model == 'mixtral' and chunk_tokens == 2048 and method == 'inc'")
    tokens, count = np.unique(kept["summary_tokens"].to_numpy(np.int64), return_counts=True)
    kind = "measured final summaries of 100 books, chunks of 2048 tokens, limit 900, incremental"
    return table(tokens, count / count.sum(), kind=kind, record=None, source=SUMMARY_SOURCE)


def _answers(data: Path) -> Json:
    """Answers of one model to its users."""
    measured = pd.read_parquet(data / "lmsys_vicuna13b" / "predictions.parquet")["output_tokens"]
    tokens, count = np.unique(measured.to_numpy(np.int64), return_counts=True)
    kind = "measured answers of vicuna-13b in LMSYS-Chat-1M, those of 2 to 511 tokens"
    return table(tokens, count / count.sum(), kind=kind, record=None, source=ANSWERS_SOURCE)


def words_file(data: Path) -> Json:
    """How many tokens a word of a prompt has, for datasets that have text and no token counts."""
    measured = pd.read_parquet(data / "alpaca" / "prompts.parquet")
    words = measured["prompt_words"].to_numpy(np.int64)
    tokens = measured["prompt_tokens"].to_numpy(np.int64)
    return tokens_per_word(words, tokens) | {"kind": WORDS_KIND, "source": PROMPT_SOURCE}


def tokens_per_word(words: Ints, tokens: Ints) -> Json:
    """Total of tokens over total of words, and the median relative error of a prompt counted so."""
    ratio = tokens.sum() / words.sum()
    error = np.median(np.abs(words * ratio / tokens - 1.0))
    return {
        "tokens_per_word": float(f"{ratio:.6g}"),
        "error_median": float(f"{error:.6g}"),
        "count": len(words),
    }


def table(tokens: Ints, share: Floats, *, kind: str, record: int | None, source: str) -> Json:
    """A length table: tokens, and the share of lengths that do not exceed them.

    `mean` and `cap` are those of the distribution given, not of the thinned table.
    """
    at, cumulative = thinned(tokens, np.cumsum(share))
    return {
        "kind": kind,
        "record": record,
        "source": source,
        "mean_tokens": float(f"{tokens @ share:.6g}"),
        "cap_tokens": int(tokens[-1]),
        "tokens": [int(value) for value in at],
        "cumulative": [float(f"{value:.6g}") for value in cumulative],
    }


def thinned(tokens: Ints, cumulative: Floats, *, points: int = POINTS) -> tuple[Ints, Floats]:
    """A distribution on fewer lengths, between which its share is interpolated.

    Kept are lengths at equal steps of the share, more of the longest, and both ends of each jump
    of more than a step, so that mass on one length (a cap) stays there.
    """
    lengths: Ints = np.arange(tokens[0] - 1, tokens[-1] + 1, dtype=np.int64)
    position = np.searchsorted(tokens, lengths, side="right")
    share = np.concatenate([[0.0], cumulative / cumulative[-1]])[position]
    tail = 1.0 - 0.5 ** np.arange(1, TAIL_POINTS + 1) / points
    wanted = np.concatenate([np.linspace(0.0, 1.0, points + 1), tail])
    keep = np.searchsorted(share, wanted, side="left")
    jumps = np.flatnonzero(np.diff(share) > 1.0 / points)
    chosen = np.unique(np.concatenate([[0], keep, jumps, jumps + 1, [len(lengths) - 1]]))
    # between lengths of equal share there is nothing to draw
    rises = np.concatenate([[True], np.diff(share[chosen]) > 0.0])
    last_of_flat = np.concatenate([rises[1:], [True]])
    chosen = chosen[rises | last_of_flat]
    return lengths[chosen], share[chosen]


def _pooled(distributions: list[tuple[Ints, Floats]]) -> tuple[Ints, Floats]:
    """The equal mixture of several distributions."""
    tokens = np.concatenate([found[0] for found in distributions])
    share = np.concatenate([found[1] for found in distributions]) / len(distributions)
    distinct, position = np.unique(tokens, return_inverse=True)
    return distinct.astype(np.int64), np.bincount(position, weights=share).astype(np.float64)


def _prompts(data: Path) -> Json:
    """Prompt lengths of the range and mean of MixInstruct in arXiv 2503.16893 sec. 5.1."""
    measured = pd.read_parquet(data / "alpaca" / "prompts.parquet")["prompt_tokens"]
    inside = measured[measured.between(*PROMPT_RANGE)].to_numpy(np.int64)
    tokens, count = np.unique(inside, return_counts=True)
    share, rate = tilted(tokens, count / count.sum(), PROMPT_MEAN)
    kind = (
        f"Alpaca prompts of {PROMPT_RANGE[0]} to {PROMPT_RANGE[1]} tokens (mean "
        f"{inside.mean():.2f}), each length's share multiplied by exp({rate:.6f} tokens) and "
        f"normalised, which makes the mean {PROMPT_MEAN:g}; MixInstruct itself not measured"
    )
    return table(tokens, share, kind=kind, record=None, source=PROMPT_SOURCE)


def tilted(tokens: Ints, share: Floats, mean: float) -> tuple[Floats, float]:
    """Shares multiplied by exp(rate x tokens), and the rate that gives the mean (bisection)."""
    low, high = -0.1, 0.1
    for _ in range(60):
        rate = (low + high) / 2.0
        weight = share * np.exp(rate * (tokens - tokens[0]))
        weight /= weight.sum()
        low, high = (rate, high) if weight @ tokens < mean else (low, rate)
    return weight, rate
