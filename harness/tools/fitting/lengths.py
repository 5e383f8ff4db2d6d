"""Makes the stored tables of lengths, of tokens per word and of predictors of lengths."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq

from harness.tools.fitting.stored import Json, rounded

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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
BINS = 40  # of as many requests by true length
LATENCIES = 101
MEASURED_HERE = "proxy_"
"""How tables begin that `harness.tools.training` measures: no two runs of it give the same."""
PREDICTIONS_SOURCE = (
    "James-QiuHaoran/LLM-serving-with-proxy-models@4b86686 "
    "model-serving/prediction/final/predictions_warmup_multi_cls_1000K.csv"
)


def length_files(data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every length table."""
    measured = pd.read_parquet(data / "samullm" / "output_length_pmf.parquet")
    latest = {}
    for model, rows in measured.groupby("model"):
        record = int(rows["record"].max())
        last = rows[rows["record"] == record].sort_values("output_tokens", kind="stable")
        share = last["probability"].to_numpy(np.float64)
        latest[str(model)] = last["output_tokens"].to_numpy(np.int64), share / share.sum()
        kind = "measured on No Robots prompts"
        yield f"{model}.json", table(*latest[str(model)], kind=kind, record=record, source=SOURCE)
    kind = f"pooled over {', '.join(ENSEMBLE)}, not measured"
    tokens, share = (np.concatenate([latest[m][part] for m in ENSEMBLE]) for part in (0, 1))
    yield f"{POOLED}.json", table(*_merged(tokens, share / len(ENSEMBLE)), kind=kind, source=SOURCE)
    for name, like in LIKENESS.items():
        kind = f"those of {like} over {SHRUNK}, for a model with random weights"
        tokens, share = latest[like]
        yield f"{name}.json", table(*_merged(-(-tokens // SHRUNK), share), kind=kind, source=SOURCE)
    yield f"{PROMPTS}.json", _prompts(data)
    chats = pd.read_csv(data / "sharegpt" / "lengths.csv.gz")
    chats = chats[chats["turn"] == chats["turn"].min()].query(
        f"input_tokens <= {MOST_CHAT} and input_tokens + output_tokens <= {2 * MOST_CHAT}"
    )
    kind = (
        f"measured first messages of ShareGPT conversations, those of at most {MOST_CHAT} tokens "
        f"and {2 * MOST_CHAT} with their answer, as vLLM's benchmark keeps them"
    )
    yield f"{CHAT_PROMPTS}.json", counted(chats["input_tokens"], kind, CHAT_SOURCE)
    books = pd.read_csv(data / "booookscore" / "final_summaries.csv.gz")
    books = books.query("model == 'mixtral' and chunk_tokens == 2048 and method == 'inc'")
    kind = "measured final summaries of 100 books, chunks of 2048 tokens, limit 900, incremental"
    yield f"{SUMMARIES}.json", counted(books["summary_tokens"], kind, SUMMARY_SOURCE)
    answers = pd.read_parquet(data / "lmsys_vicuna13b" / "predictions.parquet")["output_tokens"]
    kind = "measured answers of vicuna-13b in LMSYS-Chat-1M, those of 2 to 511 tokens"
    yield f"{ANSWERS}.json", counted(answers, kind, PREDICTIONS_SOURCE)


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
    found = {"tokens_per_word": ratio, "error_median": error, "count": len(words)}
    return rounded(found)  # type: ignore[no-any-return]


def counted(lengths: "pd.Series[int]", kind: str, source: str) -> Json:
    """The table of measured lengths."""
    tokens, count = np.unique(lengths.to_numpy(np.int64), return_counts=True)
    return table(tokens.astype(np.int64), count / count.sum(), kind=kind, source=source)


def table(
    tokens: Ints, share: Floats, *, kind: str, source: str, record: int | None = None
) -> Json:
    """A length table: tokens, and the share of lengths that do not exceed them.

    `mean` and `cap` are those of the distribution given, not of the thinned table.
    """
    at, cumulative = thinned(tokens, np.cumsum(share))
    content = {
        "kind": kind,
        "record": record,
        "source": source,
        "mean_tokens": tokens @ share,
        "cap_tokens": tokens[-1],
        "tokens": at,
        "cumulative": cumulative,
    }
    return rounded(content)  # type: ignore[no-any-return]


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


def _merged(tokens: Ints, share: Floats) -> tuple[Ints, Floats]:
    """A distribution with every length once."""
    distinct, position = np.unique(tokens, return_inverse=True)
    return distinct, np.bincount(position, weights=share).astype(np.float64)


def _prompts(data: Path) -> Json:
    """Prompt lengths of the range and mean of MixInstruct in arXiv 2503.16893 sec. 5.1."""
    measured = pd.read_parquet(data / "alpaca" / "prompts.parquet")["prompt_tokens"]
    inside = measured[measured.between(*PROMPT_RANGE)].to_numpy(np.int64)
    tokens, count = np.unique(inside, return_counts=True)

    def share(rate: float) -> Floats:
        weight = count * np.exp(rate * (tokens - tokens[0]))
        return np.asarray(weight / weight.sum())

    rate = brentq(lambda rate: share(rate) @ tokens - PROMPT_MEAN, -0.1, 0.1, xtol=1e-15)
    kind = (
        f"Alpaca prompts of {PROMPT_RANGE[0]} to {PROMPT_RANGE[1]} tokens (mean "
        f"{inside.mean():.2f}), each length's share multiplied by exp({rate:.6f} tokens) and "
        f"normalised, which makes the mean {PROMPT_MEAN:g}; MixInstruct itself not measured"
    )
    return table(tokens, share(rate), kind=kind, source=PROMPT_SOURCE)


def predictor_files(data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every table."""
    measured = pd.read_parquet(data / "lmsys_vicuna13b" / "predictions.parquet")
    columns = (measured[name] for name in ("output_tokens", "pred_class5", "predictor_s_class5"))
    kind = "measured classes of a BERT predictor, answers of vicuna-13b of 2 to 511 tokens"
    yield "lmsys_vicuna13b_class5.json", class_table(*columns, kind=kind, source=PREDICTIONS_SOURCE)


def class_table(
    length: "pd.Series[int]",
    predicted: "pd.Series[int]",
    seconds: "pd.Series[float]",
    *,
    kind: str,
    source: str,
) -> Json:
    """Share of every predicted class by true length, its median true length, and the latency.

    Row i of `class_share` is for true lengths above `length_tokens[i - 1]` up to
    `length_tokens[i]`; longer ones go by the last. `latency_s` are quantiles at equal shares.
    """
    ends = np.unique(np.quantile(length, np.linspace(0, 1, BINS + 1)[1:], method="higher"))
    row = np.searchsorted(ends, length, side="left")
    counts = pd.crosstab(row, predicted).to_numpy(np.float64)
    content = {
        "kind": kind,
        "source": source,
        "count": len(length),
        "length_tokens": ends.astype(int),
        "class_share": rounded(counts / counts.sum(axis=1, keepdims=True), digits=5),
        "class_tokens": length.groupby(predicted).median().astype(int),
        "latency_s": np.quantile(seconds, np.linspace(0, 1, LATENCIES)),
    }
    return rounded(content)  # type: ignore[no-any-return]
