"""Tables behind statements about measured data: do lengths depend on the prompt, is latency linear.

Derived from measured rows, so that figures and claims need no data set. Each file has `about`,
`source` and `rows`; what the columns mean is said below.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from harness.costs.gpu_facts import gpu_facts
from harness.costs.iteration import decode_run_seconds, expand, iteration_seconds
from harness.costs.model import PARTS as PARTS_OF_COSTS
from harness.costs.model_facts import model_facts
from harness.costs.roofline import read_calibration, roofline_profile
from harness.tools.fitting.lengths import PREDICTIONS_SOURCE
from harness.tools.fitting.stored import Json, rounded

Floats = NDArray[np.float64]

REGIONS = 4  # prompt lengths are cut into so many regions of as many requests
CLASS_ENDS = (42, 141, 294, 503)  # of the classes of the published predictor, in tokens
POINTS = 61  # at which a distribution is kept
ANSWERS_OF = "vicuna-13b-v1.5"
LATENCY_OF, LATENCY_TP = "Llama-2-7b-chat-hf", 1
PARTS = {"forward_s": "tflop", "prepare_s": "padded_tokens", "sample_s": "context_tokens"}
"""Component of an iteration, and what it is said to be linear in at a fixed number of requests."""
QUERY_LATENCY = "query_latency_v100.json"
LATENCY_GPU = "V100-16G"
LATENCY_TOKENS = 512
SHORT_PROMPT_TOKENS = 16  # our choice; a prompt of 128 changes an answer's time by less than 1%
LATENCY_MODELS = (
    *("opt-1.3b", "opt-2.7b", "gpt2-large", "gpt2-xl", "codegen-350M-mono", "codegen-2B-mono"),
    *("bloom-1b1", "bloom-3b", "switch-base-16", "switch-base-32"),
)


def shape_files(data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every table."""
    yield "lengths_by_prompt.json", lengths_by_prompt(data)
    yield "linear_latency.json", linear_latency(data)
    yield "predictions_lmsys.json", predictions(data)


def lengths_by_prompt(data: Path) -> Json:
    """Output lengths of one model by region of the prompt's length and by category.

    `mean_over_all` is the mean of a group over that of all, `distance` the largest difference
    (Kolmogorov, Smirnov) between the distribution of a group and that of all others of its kind,
    `p_adjusted` the probability of at least that if they were the same, times the number of groups
    of the kind (Bonferroni), at most 1.
    """
    lengths = pd.read_parquet(data / "alpaca_eval" / "lengths.parquet")
    prompts = pd.read_parquet(data / "alpaca_eval" / "prompts.parquet")
    answers = lengths[lengths["model"] == ANSWERS_OF].merge(prompts, on="prompt_id")
    regions = pd.qcut(answers["prompt_tokens"], REGIONS)
    names = regions.map(lambda cut: f"{int(cut.left) + 1} to {int(cut.right)} tokens").astype(str)
    answers = answers.assign(region=names)
    rows = [row for kind in ("region", "category") for row in _groups(answers, kind)]
    return {
        "about": f"output lengths of {ANSWERS_OF} on the prompts of AlpacaEval",
        "source": "tatsu-lab/alpaca_eval@cd543a1 results/vicuna-13b-v1.5/model_outputs.json",
        "rows": rows,
    }


def predictions(data: Path) -> Json:
    """How often a published predictor names the right class of five, and how long it takes.

    `macro_f1` is the mean over classes, `weighted_f1` by their shares; `mean_ms` and `max_ms` are
    of one request.
    """
    measured = pd.read_parquet(data / "lmsys_vicuna13b" / "predictions.parquet")
    truth = np.digitize(measured["output_tokens"], CLASS_ENDS)
    counts = pd.crosstab(truth, measured["pred_class5"]).to_numpy()
    right, true, named = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    f1 = 2 * right / (true + named)
    milliseconds = 1e3 * measured["predictor_s_class5"]
    row = {
        "predictor": "five classes",
        "accuracy": right.sum() / len(truth),
        "macro_f1": f1.mean(),
        "weighted_f1": f1 @ true / len(truth),
        "mean_ms": milliseconds.mean(),
        "max_ms": milliseconds.max(),
    }
    return {
        "about": f"{len(measured):,} requests to vicuna-13b whose answers have 2 to 511 tokens",
        "source": PREDICTIONS_SOURCE,
        "rows": [rounded(row, digits=4)],
    }


def _groups(answers: pd.DataFrame, kind: str) -> list[Json]:
    names = answers.sort_values("prompt_tokens", kind="stable")[kind].unique()
    tokens, rows = answers["output_tokens"].astype(float), []
    for name in names:
        inside, others = tokens[answers[kind] == name], tokens[answers[kind] != name]
        found = ks_2samp(inside, others)
        rows.append(
            {
                "kind": kind,
                "group": name,
                "count": len(inside),
                "mean_over_all": inside.mean() / tokens.mean(),
                "distance": found.statistic,
                "p_adjusted": min(1.0, found.pvalue * len(names)),
                "tokens": np.quantile(inside, np.linspace(0.0, 1.0, POINTS)),
            }
        )
    return rounded(rows)  # type: ignore[no-any-return]


def linear_latency(data: Path) -> Json:
    """Lines through the components of an iteration at each number of requests.

    `explained` is the share of the variance that the line explains, over `count` points, each the
    fastest of its repetitions; of a flat line it says nothing. `residual` does: the root of the
    mean squared distance from the line, over the mean. `low` and `high` are the ends of the
    measured x in its own unit. Medians are over all numbers of requests, of which powers of two
    are kept.
    """
    measured = pd.read_parquet(data / "samullm" / "iteration_latency.parquet")
    mine = measured[(measured["model"] == LATENCY_OF) & (measured["tp"] == LATENCY_TP)]
    mine = mine.assign(padded_tokens=mine["n_seqs"] * mine["max_len"])
    rows = []
    for phase, (part, x) in itertools.product(("prefill", "decode"), PARTS.items()):
        of_phase = mine[mine["is_prefill"] == (phase == "prefill")]
        least = of_phase.groupby(["n_seqs", x])[part].min().reset_index(x)
        lines = {
            count: line(points[x].to_numpy(float), points[part].to_numpy(float))
            for count in least.index.unique().tolist()
            if len(points := least.loc[[count]]) > 2
        }
        medians = pd.DataFrame(lines.values())[["explained", "residual"]].median()
        rows += [
            {"phase": phase, "part": part, "requests": count}
            | rounded(medians.add_suffix("_median").to_dict())
            | found
            for count, found in lines.items()
            if count.bit_count() == 1
        ]
    return {
        "about": f"iterations of {LATENCY_OF}, vLLM 0.3.0 on one A100-80G",
        "source": "puddingfjz/vllm@de1677d benchmarks/Cost_Model_per_iter",
        "rows": rows,
    }


def line(x: Floats, seconds: Floats) -> Json:
    """The line through some points, and how well it goes through them."""
    slope, base_s = np.polyfit(x, seconds, 1)
    rest = ((seconds - base_s - slope * x) ** 2).sum()
    total = ((seconds - seconds.mean()) ** 2).sum()
    found = {
        "count": len(x),
        "low": x.min(),
        "high": x.max(),
        "base_s": base_s,
        "per_x_s": slope,
        "explained": 1.0 - rest / total if total > 0 else 1.0,
        "residual": np.sqrt(rest / len(x)) / seconds.mean(),
    }
    return rounded(found)  # type: ignore[no-any-return]


def query_latency(calibrated: Path) -> Json:
    """Latency of one request by model, by the calibration in the folder `calibrated`.

    `prompt_ms` is one forward pass over a prompt, `generate_ms` an answer of as many tokens to a
    short prompt, whose pass brings the answer's first token; each alone on the GPU at fp16.
    """
    calibration, gpu, rows = read_calibration(calibrated), gpu_facts(LATENCY_GPU), []
    for model in LATENCY_MODELS:
        table = expand(roofline_profile(model_facts(model), gpu, 1, calibration), PARTS_OF_COSTS)
        prompt_s, first_s = (
            iteration_seconds(table, 1, tokens, tokens, float(tokens**2), 0, 0, 0)
            for tokens in (LATENCY_TOKENS, SHORT_PROMPT_TOKENS)
        )
        context = SHORT_PROMPT_TOKENS + 1
        decode_s = decode_run_seconds(table, 1, context, context, LATENCY_TOKENS - 1)
        generate_ms = (first_s + decode_s) * 1e3
        row = {"model": model, "tokens": LATENCY_TOKENS, "prompt_ms": prompt_s * 1e3}
        rows.append(rounded(row | {"generate_ms": generate_ms}))
    return {
        "kind": "by the roofline",
        "about": f"one request of {LATENCY_TOKENS} tokens alone on one {LATENCY_GPU}, fp16",
        "source": f"{gpu.source}; {calibration.source}",
        "rows": rows,
    }
