"""What SamuLLM's figures show, as figures of one run (its folder).

Paper      Fang et al., arXiv 2503.16893, figures 3, 7 to 13 and 15
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from harness.claims.derived.columns import table_of
from harness.runs.record import config_of, summary_of

ENSEMBLED_S = 750.0  # section 5.4: about when every plan of figure 13 has ended the ensembling
ENSEMBLED_STEP_S = 10.0  # of its last digit that says anything
_MIXED_EXTRA = {
    "samullm": (68.0, 68.0, 0.046),
    "max_heuristic": (23.0, 23.0, 0.017),
    "min_heuristic": (205.0, 205.0, 0.095),
}
PRINTED_EXTRA: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "ensembling": {
        "samullm": (22.0, 69.0, 0.105),
        "max_heuristic": (18.0, 41.0, 1.0),
        "min_heuristic": (31.0, 62.0, 1.0),
    },
    "routing": dict.fromkeys(("samullm", "max_heuristic", "min_heuristic"), (15.0, 15.0, 0.04)),
    "chain_summary": dict.fromkeys(
        ("samullm", "max_heuristic", "min_heuristic"), (27.8, 27.8, 0.036)
    ),
    "mixed": _MIXED_EXTRA,
    "ablation": _MIXED_EXTRA,  # the same application, section 5.5
}
"""Sections 5.1 to 5.4: seconds of planning, the least (the most where it alone is) and the most,
and the largest share of the end-to-end running time, 1 where none is printed."""

PART_OF = {("summary",): "chain_summary", ("ensemble",): "ensembling"}
"""What a part of the mixed application that runs alone is, section 5.4."""

FEWEST, MOST = 1000, 10_000
"""Requests of the ensembling, section 5.1."""

SUMMARISER = "vicuna-13b-v1.5"
SUMMARY = f"{SUMMARISER}~summary"  # as a part of the mixed application
EVALUATOR = "Llama-2-70b-chat-hf"
ROUTED = (
    *("Llama-2-70b-chat-hf", "Mixtral-8x7B-Instruct-v0.1", "WizardLM-13B-V1.2"),
    *("CodeLlama-34b-Instruct-hf", "Mistral-7B-Instruct-v0.2"),
)
"""The models of table 1, in its order."""


def end_to_end_printed_s(folder: Path) -> float:
    """Inference, and planning that takes the seconds that the paper prints for its own planners.

    Between the least and the most of the ensembling they grow with its requests, and they are no
    larger a share than is printed.
    """
    config, inference_s = config_of(folder), float(summary_of(folder)["inference_s"])
    workload = config["workload"]
    application = PART_OF.get(tuple(workload.get("only", ())), folder.parent.name)
    least_s, most_s, most_share = PRINTED_EXTRA[application][config["system"]["name"]]
    extra_s = least_s
    if least_s < most_s:
        requests = workload.get("parts", {"ensemble": workload})["ensemble"]["requests"]
        extra_s += (requests - FEWEST) / (MOST - FEWEST) * (most_s - least_s)
    if most_share < 1:
        extra_s = min(extra_s, most_share / (1 - most_share) * inference_s)
    return inference_s + extra_s


def idle_or_loading_s(folder: Path) -> float:
    """Section 5.3: seconds in which GPUs compute nothing, those in which they load included."""
    summary = summary_of(folder)
    return float(summary["gpu_idle_s"]) + float(summary["gpu_loading_s"])


def summarising_gpus(folder: Path) -> float:
    """Section 5.3's example: GPUs on which the summary model ever computes."""
    busy = _gpu(folder, "busy")
    return float(busy["gpu"][busy["service"] == SUMMARISER].nunique())


def evaluator_gpus_beside(folder: Path) -> float:
    """Section 5.3's example: GPUs on which the evaluator computes before the last summary."""
    busy = _gpu(folder, "busy")
    beside = (busy["service"] == EVALUATOR) & (busy["start_s"] < _last_summary_s(busy))
    return float(busy["gpu"][beside].nunique())


def summarising_s(folder: Path) -> float:
    """Section 5.3's example: seconds from the start until the last summary, loading included."""
    return _last_summary_s(_gpu(folder, "busy"))


def after_summaries_s(folder: Path) -> float:
    """Section 5.3's example: seconds from the last summary to the end."""
    busy = _gpu(folder, "busy")
    return float(busy["end_s"].max()) - _last_summary_s(busy)


def _last_summary_s(busy: pd.DataFrame) -> float:
    """When the summary model ends its last iteration."""
    return float(busy["end_s"][busy["service"] == SUMMARISER].max())


def loads_again(folder: Path, service: str) -> float:
    """Figure 9c: 1 where a service is loaded more than once; groups loaded together are one."""
    _, loads = _of_service(folder, service)
    return float(loads["start_s"].nunique() > 1)


def gpu_seconds(folder: Path, service: str) -> float:
    """Figure 9b: seconds from the first to the last iteration under each plan, by its GPUs.

    A GPU whose replica has done before the others is still one of the plan's.
    """
    busy, loads = _of_service(folder, service)
    begun_s = np.sort(loads["start_s"].unique())
    plans = busy.groupby(np.searchsorted(begun_s, busy["start_s"], side="right"))
    spans_s = plans["end_s"].max() - plans["start_s"].min()
    return float((spans_s * plans["gpu"].nunique()).sum())


first_gpu_s, second_gpu_s = (partial(gpu_seconds, service=name) for name in ROUTED[:2])
first_again, second_again, third_again, fourth_again, fifth_again = (
    partial(loads_again, service=name) for name in ROUTED
)


def chunks_of(folder: Path) -> tuple[int, ...]:
    """Figure 10: chunks of every document, in the order of the documents."""
    requests = _read(folder / "requests.parquet", ["service", "app"])
    mine = requests[requests["service"].astype(str) == SUMMARISER]
    return tuple(mine.groupby("app").size().tolist())


def chunks_median(folder: Path) -> float:
    """Figure 10: median chunks of a document."""
    return float(np.median(chunks_of(folder)))


def chunks_longest(folder: Path) -> float:
    """Figure 10: chunks of the longest document."""
    return float(max(chunks_of(folder)))


def summarised_share(folder: Path) -> float:
    """Figure 13: share of the chain summary's answers given by 750 s, under every plan alike.

    "All the models in the LLM ensembling finish" by then, "but Ours additionally completes more":
    who has not done the ensembling has completed nothing besides.
    """
    return float((_besides(folder)["finished_s"] <= ENSEMBLED_S).mean())


def summarised_tokens_share(folder: Path) -> float:
    """Figure 13: the same of the tokens that its answers have."""
    summary = _besides(folder)
    tokens = summary["output_tokens"]
    return float(tokens[summary["finished_s"] <= ENSEMBLED_S].sum() / tokens.sum())


def summaries_share(folder: Path) -> float:
    """Figure 13: the same of the answers of the model that summarises."""
    summary = _besides(folder)
    summaries = summary[summary["service"].astype(str) != EVALUATOR]
    return float((summaries["finished_s"] <= ENSEMBLED_S).mean())


def _besides(folder: Path) -> pd.DataFrame:
    """Requests of the chain summary; none is answered where the ensembling is not done by 750 s."""
    summary, ensemble = _applications(folder)
    return summary if _is_done(ensemble) else summary.assign(finished_s=np.inf)


def summarised_by_own_share(folder: Path) -> float:
    """Figure 13: the same when its plan's own ensembling is done, whenever that is."""
    summary, ensemble = _applications(folder)
    return float((summary["finished_s"] <= ensemble["finished_s"].max()).mean())


def ensembling_is_done(folder: Path) -> float:
    """Figure 13: 1 where the last answer of the ensembling is there "in about the first 750s"."""
    _, ensemble = _applications(folder)
    return float(_is_done(ensemble))


def _is_done(ensemble: pd.DataFrame) -> bool:
    """Whether the last of these answers is there by 750 s, as far as that is printed."""
    return bool(ensemble["finished_s"].max() < ENSEMBLED_S + ENSEMBLED_STEP_S / 2)


def _applications(folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Requests of the chain summary, and of the ensembling beside it."""
    names = ["service", "finished_s", "output_tokens"]
    requests = _read(folder / "requests.parquet", names)
    codes, services = pd.factorize(requests["service"])
    ours = [name == EVALUATOR or name.startswith(SUMMARY) for name in services]
    is_summary = np.array(ours)[codes]
    return requests[is_summary], requests[~is_summary]


def summariser_gpus_at_end(folder: Path) -> float:
    """Figure 15b: GPUs that the summary model has been given when its last answer comes."""
    busy, loads = _of_service(folder, SUMMARY)
    last = str(busy.sort_values("end_s", kind="stable")["group"].iloc[-1])
    begun_s = loads["start_s"][loads["group"] == last].max()
    return float(loads["gpu"][loads["start_s"] == begun_s].nunique())


def summariser_gpus_kept(folder: Path) -> float:
    """Figure 15b: fewest GPUs that the summary model has from its first to its last iteration.

    Those of the groups that were loaded last, at any time at which it computes.
    """
    busy, loads = _of_service(folder, SUMMARY)
    begun_s = np.sort(loads["start_s"].unique())
    last_s = begun_s[begun_s <= busy["start_s"].max()]
    return float(min(loads["gpu"][loads["start_s"] == at_s].nunique() for at_s in last_s))


def summariser_loads_after_s(folder: Path) -> float:
    """Section 5.5: seconds from the first load of any model to the first of the summary model."""
    _, mine = _of_service(folder, SUMMARY)
    return float(mine["start_s"].min() - _gpu(folder, "loading")["start_s"].min())


def running_requests(folder: Path) -> tuple[int, ...]:
    """Figure 3: requests in the batch of every iteration."""
    steps = _read(folder / "iterations.parquet")
    steps = steps.loc[steps.index.repeat(steps["iterations"])]
    return tuple((steps["prefill_requests"] + steps["decode_requests"]).tolist())


def iterations_s(folder: Path) -> float:
    """Figure 3: seconds of all iterations together."""
    steps = _read(folder / "iterations.parquet")
    steps = steps.loc[steps.index.repeat(steps["iterations"])]
    return float((steps["duration_s"] / steps["iterations"]).sum())


def computing_s(folder: Path) -> float:
    """Figure 3: inference seconds without loading."""
    busy = _gpu(folder, "busy")
    return float(busy["end_s"].max() - busy["start_s"].min())


def computing_error(folder: Path) -> float:
    """Section 2: relative error of the planned inference seconds of one GPU without loading.

    NaN where nothing was planned.
    """
    loaded_s = float(_gpu(folder, "busy")["start_s"].min())
    planned_s = summary_of(folder)["planned_inference_s"]
    if planned_s is None:
        return float("nan")
    return abs((float(planned_s) - loaded_s) / computing_s(folder) - 1.0)


@lru_cache(maxsize=4096)
def _gpu(folder: Path, use: str) -> pd.DataFrame:
    """Intervals of one use, with the service of each group (its name before the @).

    Several figures are worked out from it, each for thousands of runs in turn.
    """
    spans = _read(folder / "gpu.parquet")
    spans = spans[spans["use"] == use]
    codes, groups = pd.factorize(spans["group"])
    names = np.array([str(group) for group in groups], object)
    services = np.array([name.partition("@")[0] for name in names], object)
    return pd.DataFrame(
        {name: spans[name].to_numpy() for name in ("gpu", "start_s", "end_s")}
        | {"group": names[codes], "service": services[codes]}
    )


def _of_service(folder: Path, service: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """When a service computes and when it loads."""
    busy, loads = _gpu(folder, "busy"), _gpu(folder, "loading")
    return busy[busy["service"] == service], loads[loads["service"] == service]


def _read(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    table: pd.DataFrame = table_of(path, columns).to_pandas()
    return table
