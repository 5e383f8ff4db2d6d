"""Effects of EcoServe's claims: its settings, policies by data set, ceilings, sustained rates.

A setting is a data set and a model, which a scenario is of: `ecoserve_alpaca_llama33b`. Cells of
several scenarios have a column `scenario`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from harness.claims.effects import (
    ALL,
    Cells,
    Effect,
    EffectKind,
    Measure,
    absolute,
    equal,
    figures,
    joined,
    ratio,
    select,
    share_of_seeds,
    share_ratio,
)
from harness.runs.ceiling import most_per_s
from harness.runs.stats import Floats
from systems.ecoserve.measures import throughput_per_s, within_limit

DATA = {"alpaca": "Alpaca", "sharegpt": "ShareGPT", "bookcorpus": "BookCorpus"}
TABLES = {"alpaca": "alpaca_scaled", "sharegpt": "sharegpt_turns_scaled"} | {
    "bookcorpus": "bookcorpus"
}
"""Length tables below harness/profiles/pairs."""
PAPER_RATES = {"alpaca": 36.0, "sharegpt": 28.0, "bookcorpus": 1.2}
"""Requests per second, table 2."""
MODELS = {"": "OPT-13B", "_llama33b": "Llama-33B", "_opt175b": "OPT-175B"}
"""Ends of scenario names, and the model of each."""
VARIANTS = ("ecoserve_d", "ecoserve_sd", "ecoserve_sdo", "ecoserve_full")
LETTERS = ("D", "SD", "SDO", "full")
FULL = "ecoserve_full"
BLIND = ("vllm", "vllm_swap", "orca", "orca_16", "fastgen", "fastserve", "fastserve_promoting")
VLLM = "vllm_swap"
"""Section 2.1: "vLLM with the KVC swapping strategy"."""
NAMES = {VLLM: "vLLM", "fastgen": "FastGen", "multires": "MultiRes", "orca": "ORCA"} | {
    "synccoupled": "SyncCoupled",
    "syncfastgen": "SyncFastGen",
    "ecoserve_sd": "SyncDecoupled",
    "srtf_max": "SRTF",
    "fastserve": "FastServe",
}
JCT, TBT, KV = "jct_s_mean", "itl_s_mean", "kv_utilization"
LOAD = "load"
NORMALIZED, TTFT, TPOT = "normalized_s_mean", "ttft_s_mean", "tpot_s_mean"
LATENCY_TIMES = 2.0
"""Times vLLM's normalized latency at the lowest load: where sustained rates are read. Chosen."""
LIGHT_LOAD = 0.3
"""At which vLLM's seconds of a prompt and of a token make the SLO. Chosen."""
KINDS: Mapping[str, Measure] = {"jct": JCT, "tbt": TBT, "throughput": throughput_per_s}
DataAndModel = tuple[str, str]
"""Data set, end of the scenario's name for the model."""
SERVED_HERE: tuple[DataAndModel, ...] = (("alpaca", ""),)
"""Settings whose rate of table 2 vLLM serves here: *Load over capacity*."""
SHORT_OF_KV = ("sharegpt", "bookcorpus")
"""Data sets on which requests of OPT-13B wait for KV at that rate."""
ALL_SETTINGS: tuple[DataAndModel, ...] = tuple((data, model) for data in DATA for model in MODELS)
OVERLOADED: tuple[DataAndModel, ...] = tuple(it for it in ALL_SETTINGS if it not in SERVED_HERE)
"""Settings whose rate is more than vLLM serves."""


def runs(prefix: str, models: Sequence[str] = ("",)) -> tuple[str, ...]:
    """Names of scenarios, one per data set and model."""
    return tuple(f"ecoserve_{prefix}{data}{model}" for model in models for data in DATA)


def runs_of(settings: Sequence[DataAndModel], *prefixes: str) -> tuple[str, ...]:
    """Names of scenarios of settings, with each of these beginnings."""
    return tuple(
        f"ecoserve_{prefix}{data}{model}" for prefix in prefixes for data, model in settings
    )


SERVED, SERVED_ALL = runs(""), runs("", tuple(MODELS))
RATES_ALL = runs("rates_", tuple(MODELS))
CAPACITIES = tuple(f"ecoserve_capacity{model}" for model in MODELS)


def named(policy: str, data: str, predictor: str) -> str:
    """The file of a policy with the paper's constants for a data set; ShareGPT's are the base."""
    if policy not in VARIANTS:
        return policy
    known = "_known" if predictor == "oracle" else ""
    return f"{policy}{known}" if data == "sharegpt" else f"{policy}{known}_{data}"


def at(policy: str, data: str, predictor: str = "own") -> dict[str, Any]:
    """A policy on a data set; `own` stands for the predictor of figure 5a on it."""
    by = f"ecoserve_{data}" if predictor == "own" else predictor
    return {
        "policy": named(policy, data, predictor),
        "predictor": "none" if policy in BLIND else by,
    }


def on(cells: Cells, data: str, prefix: str = "", model: str = "") -> Cells:
    """The cells of a data set and model; of one scenario alone all."""
    return _of_scenario(cells, f"ecoserve_{prefix}{data}{model}")


def in_backlog(cells: Cells, data: str, model: str) -> Cells:
    """The cells in which vLLM serves a backlog of a data set."""
    own = _of_scenario(cells, f"ecoserve_capacity{model}")
    return select(own, {"table": TABLES[data]})


def _of_scenario(cells: Cells, name: str) -> Cells:
    return select(cells, {"scenario": name}) if "scenario" in cells else cells


def orca_of(policy: str, model: str) -> str:
    """ORCA has 16 requests a batch for OPT-175B (section 4)."""
    return "orca_16" if policy == "orca" and model == "_opt175b" else policy


def seconds_of(cells: Cells, data: str, model: str = "") -> tuple[float, float]:
    """Seconds of a prompt and of a token of vLLM at a light load, of which the SLO is made."""
    own = {**at(VLLM, data), LOAD: LIGHT_LOAD}
    light = on(cells, data, "rates_", model)
    prompt_s, token_s = (float(figures(light, it, own).to_numpy().mean()) for it in (TTFT, TPOT))
    return prompt_s, token_s


def averaged(kind: EffectKind, samples: Sequence[pd.DataFrame]) -> Effect:
    """One effect from samples of several settings: the geometric mean, of values the mean."""
    frame = pd.concat(samples, axis=1, join="inner")
    if kind is EffectKind.ABSOLUTE:
        return Effect(kind, frame.mean(axis=1).to_frame(ALL))
    return Effect(kind, np.exp(frame.map(np.log).mean(axis=1)).to_frame(ALL))


def against(
    cells: Cells,
    figure: Measure,
    of: str,
    over: str,
    settings: Sequence[DataAndModel],
    kind: EffectKind = EffectKind.RATIO,
    predictor: str = "own",
) -> Effect:
    """A policy's figure over another's, the geometric mean over settings; of a range by setting."""
    parts = {
        f"{DATA[data]}, {MODELS[model]}": ratio(
            on(cells, data, model=model),
            figure,
            of=at(orca_of(of, model), data, predictor),
            over=at(orca_of(over, model), data, predictor),
        ).samples[ALL]
        for data, model in settings
    }
    by_setting = pd.concat(parts, axis=1, join="inner")
    return Effect(kind, by_setting) if kind is EffectKind.RANGE else averaged(kind, [by_setting])


def attained(cells: Cells, of: str, over: str, settings: Sequence[DataAndModel]) -> Effect:
    """The mean share within the SLO of a policy over that of another."""
    of_met, over_met = (
        joined(
            *(
                absolute(
                    on(cells, data, model=model),
                    partial(within_limit, seconds=seconds_of(cells, data, model)),
                    at(orca_of(policy, model), data),
                )
                for data, model in settings
            )
        )
        for policy in (of, over)
    )
    return share_ratio(of_met, over_met)


def most_over(
    cells: Cells, over: str, settings: Sequence[DataAndModel], predictor: str = "own"
) -> Effect:
    """The ceiling of throughput over a policy's, where it is highest: the same requests."""
    parts = [
        ratio_of_figures(
            on(cells, data, model=model), most_per_s, at(orca_of(over, model), data, predictor)
        )
        for data, model in settings
    ]
    highest = pd.concat(parts, axis=1, join="inner").max(axis=1)
    return Effect(EffectKind.ABSOLUTE, highest.to_frame(ALL))


def ratio_of_figures(cells: Cells, figure: Measure, of: Mapping[str, Any]) -> pd.DataFrame:
    """A figure over the throughput of the same cells."""
    return figures(cells, figure, of) / figures(cells, throughput_per_s, of)


def value(cells: Cells, figure: Measure, policy: str, data: Sequence[str] = tuple(DATA)) -> Effect:
    """A policy's own figure with known lengths, averaged over data sets."""
    parts = [absolute(on(cells, one), figure, at(policy, one, "oracle")).samples for one in data]
    return averaged(EffectKind.ABSOLUTE, parts)


def worse(cells: Cells, of: str) -> Effect:
    """Whether a policy has more mean JCT than vLLM on every data set."""
    parts = [
        share_of_seeds(
            on(cells, data),
            lambda a, b: bool(a > b),
            (JCT, at(of, data, "oracle")),
            (JCT, at(VLLM, data, "oracle")),
        ).samples
        for data in DATA
    ]
    return Effect(EffectKind.FACT, pd.concat(parts, axis=1, join="inner").all(axis=1).to_frame(ALL))


def grouped(cells: Cells, figure: Measure, data: str) -> Effect:
    """A figure of SyncCoupled's length groups on a data set."""
    return absolute(cells, figure, {"policy": "synccoupled", "table": TABLES[data]})


def best(cells: Cells, figure: Measure, at: Mapping[str, str], axis: str) -> "pd.Series[float]":
    """By seed, the value of an axis at which a figure is least."""
    found = figures(cells, figure, at, [axis])
    return found.idxmin(axis=1).astype(float)


def spread(cells: Cells, policy: str, axis: str, data: str) -> Effect:
    """The largest mean JCT over the values of an axis over the least, less 1."""
    own = select(cells, {"table": TABLES[data]})
    found = figures(own, JCT, at(policy, data), [axis])
    return Effect(EffectKind.ABSOLUTE, (found.max(axis=1) / found.min(axis=1) - 1).to_frame(ALL))


def best_value(cells: Cells, policy: str, axis: str, data: str) -> Effect:
    """The value with the least mean JCT, by seed."""
    own = select(cells, {"table": TABLES[data]})
    return Effect(EffectKind.ABSOLUTE, best(own, JCT, at(policy, data), axis).to_frame(ALL))


def attained_by_scale(cells: Cells) -> Effect:
    """The mean share within the SLO at scale 2.5 over that at 0.5."""
    ends = [
        joined(
            *(
                absolute(
                    select(on(cells, "slo"), {"table": TABLES[data]}),
                    partial(within_limit, seconds=seconds_of(cells, data), scale=scale),
                    at(FULL, data) | {"scale": scale},
                )
                for data in DATA
            )
        )
        for scale in (2.5, 0.5)
    ]
    return share_ratio(*ends)


def unchanged_by_scale(cells: Cells, figure: Measure) -> Effect:
    """A figure at SLO scale 2.5 over that at 0.5, by data set."""
    parts = [
        equal(
            select(cells, {"table": TABLES[data]}),
            figure,
            of=at(FULL, data) | {"scale": 2.5},
            over=at(FULL, data) | {"scale": 0.5},
        )
        for data in DATA
    ]
    return joined(*parts)


def gained(cells: Cells, stem: str, of: str, kind: EffectKind) -> Effect:
    """What a variant gains over vLLM: throughput where all are overloaded, the rest elsewhere."""
    if stem == "ssr":
        return attained(cells, of, VLLM, SERVED_HERE)
    settings = OVERLOADED if stem == "throughput" else SERVED_HERE
    return against(cells, KINDS[stem], of, VLLM, settings, kind)


def over_eight(cells: Cells) -> Effect:
    """EcoServe's throughput on ShareGPT over that of vLLM that runs eight requests at a time."""
    of = figures(on(cells, "sharegpt"), throughput_per_s, at(FULL, "sharegpt"))
    over = figures(_of_scenario(cells, "ecoserve_eight"), throughput_per_s, {"policy": VLLM})
    return Effect(EffectKind.RATIO, (of / over).dropna())


def mean_tbt(cells: Cells) -> Effect:
    """EcoServe's mean time between tokens, over all settings."""
    parts = [
        absolute(on(cells, data, model=model), TBT, at(FULL, data)).samples
        for model in MODELS
        for data in DATA
    ]
    return averaged(EffectKind.ABSOLUTE, parts)


def ceiling_in_backlog(cells: Cells, data: str, model: str) -> Effect:
    """The most that any scheduler could serve over what vLLM serves of a backlog."""
    own = in_backlog(cells, data, model)
    return Effect(EffectKind.RATIO, ratio_of_figures(own, most_per_s, {"policy": VLLM}))


def load_of(cells: Cells, data: str, model: str) -> Effect:
    """The rate of table 2 over what vLLM serves of a backlog."""
    served = figures(in_backlog(cells, data, model), throughput_per_s, {"policy": VLLM})
    return Effect(EffectKind.ABSOLUTE, PAPER_RATES[data] / served)


# Rates at equal normalized latency.


def sustained(cells: Cells, at: Mapping[str, str], base: Mapping[str, str]) -> "pd.Series[float]":
    """By seed, the load at which a policy's normalized latency reaches the common limit.

    Read from the grid of loads by interpolating logarithms. The limit is `LATENCY_TIMES` the
    latency of `base` at the lowest load. A policy beyond it at the lowest load counts with that
    load, one below it at the highest with the highest: bounds, not crossings.
    """
    own, others = (figures(cells, NORMALIZED, one, [LOAD]) for one in (at, base))
    limits_s = LATENCY_TIMES * others[others.columns.min()]
    own = own[own.index.isin(limits_s.index)]
    loads = own.columns.to_numpy(float)
    crossed = [
        _crossing(loads, row, float(limits_s[seed]))
        for seed, row in zip(own.index, own.to_numpy(float), strict=True)
    ]
    return pd.Series(crossed, index=own.index, dtype=float)


def _crossing(loads: Floats, latency_s: Floats, limit_s: float) -> float:
    order = np.argsort(loads)
    logs, loads = np.log(latency_s[order] / limit_s), loads[order]
    above = np.flatnonzero(logs > 0)
    i = int(above[0]) if len(above) else len(logs)
    if i in (0, len(logs)):
        return float(loads[min(i, len(logs) - 1)])
    span = np.log(loads[i - 1 : i + 1])
    return float(np.exp(np.interp(0.0, logs[i - 1 : i + 1], span)))


def sustained_by(
    cells: Cells, policy: str, predictor: str, data: str, model: str
) -> "pd.Series[float]":
    """By seed, the load that a policy sustains on a data set."""
    own = on(cells, data, "rates_", model)
    return sustained(own, at(orca_of(policy, model), data, predictor), at(VLLM, data))


def rates_gained(
    cells: Cells, of: tuple[str, str], over: tuple[str, str], settings: Sequence[DataAndModel]
) -> pd.DataFrame:
    """By setting, the sustained rate of a policy with a predictor over that of another."""
    parts = {
        f"{DATA[data]}, {MODELS[model]}": sustained_by(cells, *of, data, model)
        / sustained_by(cells, *over, data, model)
        for data, model in settings
    }
    return pd.concat(parts, axis=1, join="inner")


def over_models(cells: Cells, over: str, data: str) -> Effect:
    """EcoServe's sustained rate over another policy's on a data set, by model."""
    settings = tuple((data, model) for model in MODELS)
    return Effect(EffectKind.RANGE, rates_gained(cells, (FULL, "own"), (over, "none"), settings))


def most_over_models(cells: Cells, over: str, data: str) -> Effect:
    """The ceiling of that: what any scheduler could serve over the rate that a policy sustains."""
    parts = {}
    for model in MODELS:
        backlog = in_backlog(cells, data, model)
        most = float(ratio_of_figures(backlog, most_per_s, {"policy": VLLM}).to_numpy().mean())
        parts[model] = most / sustained_by(cells, over, "none", data, model)
    return Effect(
        EffectKind.ABSOLUTE, pd.concat(parts, axis=1, join="inner").max(axis=1).to_frame(ALL)
    )


def oracle_gain(cells: Cells, model: str) -> Effect:
    """The rate with known lengths over that with predicted ones, averaged over data sets."""
    settings = tuple((data, model) for data in DATA)
    found = rates_gained(cells, (FULL, "oracle"), (FULL, "own"), settings)
    return averaged(EffectKind.RATIO, [found])
