"""Tables behind statements about measured data: do lengths depend on the prompt, is latency linear.

Derived from measured rows, so that figures and claims need no data set. Each file has `about`,
`source` and `rows`; what the columns mean is said below.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import ks_2samp

from harness.fitting.predictors import SOURCE

Floats = NDArray[np.float64]
Json = dict[str, Any]

REGIONS = 4  # prompt lengths are cut into so many regions of as many requests
CLASS_ENDS = (42, 141, 294, 503)  # of the classes of the published predictor, in tokens
POINTS = 61  # at which a distribution is kept
ANSWERS_OF = "vicuna-13b-v1.5"
LATENCY_OF, LATENCY_TP = "Llama-2-7b-chat-hf", 1
PARTS = {"forward_s": "tflop", "prepare_s": "padded_tokens", "sample_s": "context_tokens"}
"""Component of an iteration, and what it is said to be linear in at a fixed number of requests."""


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
    named = measured["pred_class5"].to_numpy()
    both = np.array([((truth == c) & (named == c)).sum() for c in range(len(CLASS_ENDS) + 1)])
    either = np.array([(truth == c).sum() + (named == c).sum() for c in range(len(CLASS_ENDS) + 1)])
    share = np.bincount(truth, minlength=len(CLASS_ENDS) + 1) / len(truth)
    milliseconds = 1e3 * measured["predictor_s_class5"]
    row = {
        "predictor": "five classes",
        "accuracy": float(f"{(truth == named).mean():.4g}"),
        "macro_f1": float(f"{(2 * both / either).mean():.4g}"),
        "weighted_f1": float(f"{(share * 2 * both / either).sum():.4g}"),
        "mean_ms": float(f"{milliseconds.mean():.4g}"),
        "max_ms": float(f"{milliseconds.max():.4g}"),
    }
    return {
        "about": f"{len(measured):,} requests to vicuna-13b whose answers have 2 to 511 tokens",
        "source": SOURCE,
        "rows": [row],
    }


def _groups(answers: pd.DataFrame, kind: str) -> list[Json]:
    names = list(dict.fromkeys(answers.sort_values("prompt_tokens", kind="stable")[kind]))
    share = np.linspace(0.0, 1.0, POINTS)
    rows = []
    for name in names:
        inside = answers["output_tokens"][answers[kind] == name].to_numpy(np.float64)
        others = answers["output_tokens"][answers[kind] != name].to_numpy(np.float64)
        found = ks_2samp(inside, others)
        rows.append(
            {
                "kind": kind,
                "group": name,
                "count": len(inside),
                "mean_over_all": _short(inside.mean() / answers["output_tokens"].mean()),
                "distance": _short(found.statistic),
                "p_adjusted": _short(min(1.0, float(found.pvalue) * len(names))),
                "tokens": [_short(value) for value in np.quantile(inside, share)],
            }
        )
    return rows


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
    for phase, part in itertools.product(("prefill", "decode"), PARTS):
        lines = _lines(mine[mine["is_prefill"] == (phase == "prefill")], part)
        medians = {
            f"{name}_median": _short(float(np.median([line[name] for line in lines.values()])))
            for name in ("explained", "residual")
        }
        rows += [
            {"phase": phase, "part": part, "requests": count} | medians | line
            for count, line in lines.items()
            if count.bit_count() == 1
        ]
    return {
        "about": f"iterations of {LATENCY_OF}, vLLM 0.3.0 on one A100-80G",
        "source": "puddingfjz/vllm@de1677d benchmarks/Cost_Model_per_iter",
        "rows": rows,
    }


def _lines(measured: pd.DataFrame, part: str) -> dict[int, Json]:
    """The line of a component for every number of requests with more than two points."""
    lines = {}
    for requests in sorted(set(measured["n_seqs"].tolist())):
        points = measured[measured["n_seqs"] == requests]
        least = points.groupby(PARTS[part])[part].min()
        if len(least) > 2:
            lines[requests] = _line(least.index.to_numpy(np.float64), least.to_numpy(np.float64))
    return lines


def _line(x: Floats, seconds: Floats) -> Json:
    slope, base_s = np.polyfit(x, seconds, 1)
    rest = ((seconds - base_s - slope * x) ** 2).sum()
    total = ((seconds - seconds.mean()) ** 2).sum()
    return {
        "count": len(x),
        "low": _short(x.min()),
        "high": _short(x.max()),
        "base_s": _short(base_s),
        "per_x_s": _short(slope),
        "explained": _short(1.0 - rest / total) if total > 0 else 1.0,
        "residual": _short(np.sqrt(rest / len(x)) / seconds.mean()),
    }


def _short(value: float) -> float:
    return float(f"{value:.6g}")
