"""Makes the stored tables of arrivals from measured ones: rates by window, functions, clients.

Counts of windows vary even where the rate does not. What is stored are rates: the part of the
counts' variance that a Poisson count would have by itself is taken out, so that Poisson arrivals
at these rates have the measured variance-to-mean ratio (`index_of_dispersion`) again.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq

from harness.tools.fitting.stored import Json, rounded

Floats = NDArray[np.float64]

LLM_WINDOW_S = 10
MINUTE_S = 60
LOAD_KEPT = 0.95  # of the load of a service, carried by the clients that are kept
SERVICES = ("m-small", "m-mid", "m-large", "deepseek-r1")
LLM_SOURCE = "Azure/AzurePublicDataset@b469a11 data/AzureLLMInferenceTrace_{name}.csv, CC BY 4.0"
MOONCAKE_SOURCE = (
    "kvcache-ai/Mooncake@3b5a594 FAST25-release/traces/conversation_trace.jsonl, Apache-2.0; "
    "time stamps, which are multiples of 3 s, moved within them"
)
MOONCAKE_TICK_S = 3.0
FUNCTIONS_SOURCE = (
    "Azure Functions 2019 (arXiv 2003.03423, CC BY 4.0), 1000 functions over 60 minutes as in "
    "IntelliSys-Lab/Freyr-sim simulations/serverless/azurefunctions-dataset2019/"
    "exp_sim_invocation_traces_0.csv"
)
POPULARITY_SOURCE = (
    "Azure/AzurePublicDataset@b469a11 analysis/AzureFunctionsDataset2019_figs/fig5b-1.png, curve "
    "of the released functions, read to 0.01 (CC BY 4.0); number of functions: arXiv 2205.07696, "
    "section 3.4.1; measured: Shahrad et al., USENIX ATC 2020 (arXiv 2003.03423), section 3.3"
)
SHARES_OF_FIRST = [
    *([1, 0.137], [2, 0.230], [3, 0.302], [4, 0.334], [6, 0.367], [8, 0.394], [10, 0.424]),
    *([20, 0.532], [50, 0.653], [100, 0.739], [189, 0.817], [379, 0.884], [661, 0.924]),
    *([873, 0.941], [1753, 0.971], [4042, 0.988], [7056, 0.995], [10717, 0.998], [74347, 1.0]),
]
CLIENTS_SOURCE = "alibaba/ServeGen@f891d11 data/*/{name}/chunk-*-trace.csv (arXiv 2505.09999)"


def arrival_files(data: Path) -> Iterator[tuple[str, Json]]:
    """File name and content of every table."""
    for name, content in _tables(data):
        yield f"{name}.json", rounded(content)


def _tables(data: Path) -> Iterator[tuple[str, Json]]:
    for name in ("conv", "code"):
        trace_s = pd.read_csv(data / "azure_llm_2023" / f"{name}.csv.gz")["arrival_s"].to_numpy()
        yield f"azure_llm_2023_{name}", windows_table(trace_s, LLM_SOURCE.format(name=name))
    # rounded down to ticks: uniform within each
    tick_s = pd.read_csv(data / "mooncake" / "conversation.csv.gz")["arrival_s"].to_numpy()
    arrival_s = np.sort(tick_s + MOONCAKE_TICK_S * np.random.default_rng(0).random(len(tick_s)))
    yield "mooncake_conversation", windows_table(arrival_s, MOONCAKE_SOURCE)
    counts = function_counts(data)
    yield "azure_functions_2019", functions_table(counts)
    yield "azure_functions_2019_popularity", popularity_table()
    clients = pd.read_parquet(data / "servegen" / "clients.parquet")
    for name in SERVICES:
        windows = pd.read_parquet(data / "servegen" / f"{name}_arrivals.parquet")
        of_service, source = clients[clients["model"] == name], CLIENTS_SOURCE.format(name=name)
        yield f"servegen_{name}", clients_table(of_service, windows, source)


def windows_table(arrival_s: Floats, source: str) -> Json:
    """Relative rate of every window of a trace, and what the trace measures.

    `cv_of_gaps` is the coefficient of variation of the gaps between arrivals.
    """
    gaps_s = np.diff(arrival_s)
    counts = _counts(arrival_s, LLM_WINDOW_S)
    return {
        "kind": f"rate of every {LLM_WINDOW_S} s of a trace over its mean, Poisson noise removed",
        "source": source,
        "window_s": LLM_WINDOW_S,
        "measured": {
            "rate_per_s": len(gaps_s) / (arrival_s[-1] - arrival_s[0]),
            "cv_of_gaps": gaps_s.std() / gaps_s.mean(),
            "index_of_dispersion_10_s": dispersion(counts),
            "index_of_dispersion_60_s": dispersion(_counts(arrival_s, MINUTE_S)),
        },
        "relative_rate": relative_rates(counts),
    }


def _counts(arrival_s: Floats, window_s: int) -> Floats:
    """Arrivals in every whole window."""
    windows = int(arrival_s[-1] // window_s)
    inside = (arrival_s[arrival_s < windows * window_s] // window_s).astype(np.int64)
    return np.bincount(inside, minlength=windows).astype(np.float64)


def dispersion(counts: Floats) -> float:
    """Variance over mean; 1 for Poisson counts."""
    return float(counts.var() / counts.mean())


def relative_rates(counts: Floats) -> Floats:
    """Rates of windows over their mean, with the variance of the counts beyond Poisson.

    A window without arrivals keeps the rate 0: where all are pulled to the mean alike, a pause of
    minutes would fill up.
    """
    relative = counts / counts.mean()
    some = relative > 0.0
    beyond = max(0.0, relative.var() - 1.0 / counts.mean())
    inside = relative[some]
    # variance = share * (mean^2 + pull^2 * variance inside) - 1, to be `beyond`
    left = (beyond + 1.0) / some.mean() - inside.mean() ** 2
    pull = math.sqrt(max(0.0, left) / inside.var()) if inside.var() > 0.0 else 0.0
    rates = np.zeros(len(relative))
    rates[some] = np.maximum(0.0, inside.mean() + pull * (inside - inside.mean()))
    return np.asarray(rates / rates.mean())


def function_counts(data: Path) -> Floats:
    """Invocations of every function that users trigger, a row each, by minute; no timers."""
    rows = pd.read_parquet(data / "azure_functions_2019" / "sample_1000fn_60min.parquet")
    used = rows[rows["trigger"] != "timer"]
    return used.pivot_table(
        index="function", columns="minute", values="invocations", fill_value=0, aggfunc="sum"
    ).to_numpy(np.float64)


def popularity_table() -> Json:
    """What share of all calls the most popular functions have together."""
    return {
        "kind": "share of all calls of the n most popular functions, as pairs of n and share",
        "source": POPULARITY_SOURCE,
        "measured": {"share_of_calls_of_18.6%_of_applications": 0.996},
        "shares_of_first": SHARES_OF_FIRST,
    }


def functions_table(counts: Floats) -> Json:
    """Total rate by minute, and rate and variation of every function that users trigger.

    `function_rate` is per minute; `function_variation` the squared
    coefficient of variation of a function's rate from minute to minute beyond `shared_rate`, the
    relative rate of a minute that the covariance of the functions says they have in common.
    """
    total, mean, own = counts.sum(axis=0), counts.mean(axis=1), counts.var(axis=1)
    common = (total.var() - own.sum()) / (mean.sum() ** 2 - (mean**2).sum())
    relative = total / total.mean()
    shared = 1.0 + math.sqrt(common / relative.var()) * (relative - 1.0)
    variation = np.maximum(0.0, ((own - mean) / mean**2 - common) / (1.0 + common))
    order = np.argsort(-mean, kind="stable")
    return {
        "kind": "rate of every minute over the mean, Poisson noise removed, and of every function",
        "source": FUNCTIONS_SOURCE,
        "window_s": MINUTE_S,
        "measured": {
            "rate_per_s": total.mean() / MINUTE_S,
            "cv_of_minutes": total.std() / total.mean(),
            "index_of_dispersion_60_s": dispersion(total),
            "median_cv_of_a_function": float(np.median(np.sqrt(own) / mean)),
        },
        "relative_rate": relative_rates(total),
        "shared_rate": shared,
        "function_rate": mean[order],
        "function_variation": variation[order],
    }


def clients_table(clients: pd.DataFrame, windows: pd.DataFrame, source: str) -> Json:
    """The busiest clients of a service, up to `LOAD_KEPT` of its load.

    `clients` has the mean rate and coefficient of variation of each inside windows, `windows` what
    was fitted to them; a client's family is the one that fits most of its load, or most of all
    clients' where its own windows are not there. `shape` is the family's parameter with that
    coefficient.
    """
    fitted = windows.groupby(["client", "family"])["rate"].sum().unstack(fill_value=0)
    ranked = clients.sort_values("mean_rate", ascending=False, kind="stable")
    rate, cv = ranked["mean_rate"], ranked["mean_cv"]
    kept = ranked[rate.cumsum() - rate < LOAD_KEPT * rate.sum()]
    share = kept["mean_rate"] / kept["mean_rate"].sum()
    usual, own = fitted.sum().idxmax(), fitted.idxmax(axis=1).to_dict()
    families = [str(own.get(client, usual)).lower() for client in kept["client"]]
    return {
        "kind": f"share of the load, and gaps, of the clients that carry {LOAD_KEPT:.0%} of it",
        "source": source,
        "measured": {
            "cv_weighted_by_rate": (rate * cv).sum() / rate.sum(),
            "clients": len(ranked),
            "load_kept": kept["mean_rate"].sum() / rate.sum(),
        },
        "clients": [
            {
                "share": part,
                "cv": cv,
                "family": family,
                "shape": 1.0 / cv**2 if family == "gamma" else weibull_shape(cv),
            }
            for part, cv, family in zip(share, kept["mean_cv"], families, strict=True)
        ],
    }


def weibull_shape(cv: float) -> float:
    """Shape of the Weibull distribution with a coefficient of variation."""

    def excess(shape: float) -> float:
        square = math.lgamma(1.0 + 2.0 / shape) - 2.0 * math.lgamma(1.0 + 1.0 / shape)
        return math.exp(square) - 1.0 - cv**2

    return float(brentq(excess, 0.05, 50.0, xtol=1e-14))
