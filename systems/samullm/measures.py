"""What SamuLLM's figures show of one run and no summary holds.

Paper      Fang et al., arXiv 2503.16893, figures 3, 9 to 11, 13 and 15
"""

import json
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd

from harness.config.paths import PROFILES
from harness.runs.cells import Run

ENSEMBLED_S = 750.0  # section 5.4: about when every plan of figure 13 has ended the ensembling
ENSEMBLED_STEP_S = 10.0  # of the last digit of "about 750 s"

SUMMARISER = "vicuna-13b-v1.5"
SUMMARY = f"{SUMMARISER}~summary"  # as a part of the mixed application
EVALUATOR = "Llama-2-70b-chat-hf"  # of chain summary, and model 1 of table 1


def derived_table(name: str) -> dict[str, Any]:
    """One that `harness.tools.fitting.shapes` has derived from measured rows."""
    content: dict[str, Any] = json.loads((PROFILES / "derived" / name).read_text(encoding="utf-8"))
    return content


def computing_s(run: Run) -> float:
    """Sections 2 and 5.1: inference seconds without loading."""
    busy = _gpu(run, "busy")
    return float(busy["end_s"].max() - busy["start_s"].min())


def computing_error(run: Run) -> float:
    """Section 2: relative error of the planned inference seconds of one GPU without loading."""
    loaded_s = float(_gpu(run, "busy")["start_s"].min())
    planned_s = float(run.facts["planned_s"])
    return abs((planned_s - loaded_s) / computing_s(run) - 1.0)


def running_requests(run: Run) -> tuple[int, ...]:
    """Figure 3: requests in the batch of every iteration."""
    steps = _iterations(run)
    return tuple((steps["prefill_requests"] + steps["decode_requests"]).tolist())


def iterations_s(run: Run) -> float:
    """Figure 3: seconds of all iterations together."""
    steps = _iterations(run)
    return float((steps["duration_s"] / steps["iterations"]).sum())


def plan_changes(run: Run) -> float:
    """Figure 9c: loads beyond the first of each model; groups loaded together are one."""
    loads = _gpu(run, "loading").drop_duplicates(["service", "start_s"])
    return float(len(loads) - loads["service"].nunique())


def gpu_seconds(run: Run, service: str) -> float:
    """Figure 9b: seconds from the first to the last iteration under each plan, by its GPUs.

    A GPU whose replica has done before the others is still one of the plan's.
    """
    busy, loads = _of_service(run, service)
    begun_s = np.sort(loads["start_s"].unique())
    plans = busy.groupby(np.searchsorted(begun_s, busy["start_s"], side="right"))
    spans_s = plans["end_s"].max() - plans["start_s"].min()
    return float((spans_s * plans["gpu"].nunique()).sum())


model_1_gpu_s = partial(gpu_seconds, service=EVALUATOR)


def chunks_of(run: Run) -> tuple[int, ...]:
    """Figure 10: chunks of every document, in the order of the documents."""
    requests = run.columns("requests", "service", "app")
    mine = requests[requests["service"].astype(str) == SUMMARISER]
    return tuple(mine.groupby("app").size().tolist())


def summarising_gpus(run: Run) -> float:
    """Section 5.3's example: GPUs on which the summary model ever computes."""
    busy = _gpu(run, "busy")
    return float(busy["gpu"][busy["service"] == SUMMARISER].nunique())


def evaluator_gpus_beside(run: Run) -> float:
    """Section 5.3's example: GPUs on which the evaluator computes before the last summary."""
    busy = _gpu(run, "busy")
    beside = (busy["service"] == EVALUATOR) & (busy["start_s"] < summarising_s(run))
    return float(busy["gpu"][beside].nunique())


def summarising_s(run: Run) -> float:
    """Section 5.3's example: seconds from the start until the last summary, loading included."""
    busy = _gpu(run, "busy")
    return float(busy["end_s"][busy["service"] == SUMMARISER].max())


def after_summaries_s(run: Run) -> float:
    """Section 5.3's example: seconds from the last summary to the end."""
    return float(_gpu(run, "busy")["end_s"].max()) - summarising_s(run)


def summarised_share(run: Run) -> float:
    """Figure 13: share of the chain summary's answers given by 750 s.

    "All the models in the LLM ensembling finish" by then, "but Ours additionally completes more":
    where the ensembling is not done by then, nothing is completed besides.
    """
    summary, ensemble = _applications(run)
    return float((summary["finished_s"] <= ENSEMBLED_S).mean()) * _is_done(ensemble)


def ensembling_is_done(run: Run) -> float:
    """Figure 13: 1 where the last answer of the ensembling is there "in about the first 750s"."""
    _, ensemble = _applications(run)
    return float(_is_done(ensemble))


def _is_done(ensemble: pd.DataFrame) -> bool:
    """Whether the last of these answers is there by 750 s, as far as that is printed."""
    return bool(ensemble["finished_s"].max() < ENSEMBLED_S + ENSEMBLED_STEP_S / 2)


def _applications(run: Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Requests of the chain summary, and of the ensembling beside it."""
    requests = run.columns("requests", "service", "finished_s")
    codes, services = pd.factorize(requests["service"])
    ours = [name == EVALUATOR or name.startswith(SUMMARY) for name in services]
    is_summary = np.array(ours)[codes]
    return requests[is_summary], requests[~is_summary]


def summariser_gpus_at_end(run: Run) -> float:
    """Section 5.5: GPUs that the summary model has been given when its last answer comes."""
    busy, loads = _of_service(run, SUMMARY)
    last = str(busy.sort_values("end_s", kind="stable")["group"].iloc[-1])
    begun_s = loads["start_s"][loads["group"] == last].max()
    return float(loads["gpu"][loads["start_s"] == begun_s].nunique())


def summariser_gpus_kept(run: Run) -> float:
    """Figure 15b: fewest GPUs that the summary model has from its first to its last iteration."""
    busy, loads = _of_service(run, SUMMARY)
    begun_s = np.sort(loads["start_s"].unique())
    last_s = begun_s[begun_s <= busy["start_s"].max()]
    return float(min(loads["gpu"][loads["start_s"] == at_s].nunique() for at_s in last_s))


def summariser_loads_after_s(run: Run) -> float:
    """Section 5.5: seconds from the first load of any model to the first of the summary model."""
    _, mine = _of_service(run, SUMMARY)
    return float(mine["start_s"].min() - _gpu(run, "loading")["start_s"].min())


@lru_cache(maxsize=4096)
def _gpu(run: Run, use: str) -> pd.DataFrame:
    """Intervals of one use, with the service of each group (its name before the @).

    Several figures are computed from it, each for hundreds of runs in turn.
    """
    spans = run.columns("gpu", "gpu", "group", "use", "start_s", "end_s")
    spans = spans[spans["use"] == use]
    codes, groups = pd.factorize(spans["group"])
    names = np.array([str(group) for group in groups], object)
    services = np.array([name.partition("@")[0] for name in names], object)
    return pd.DataFrame(
        {name: spans[name].to_numpy() for name in ("gpu", "start_s", "end_s")}
        | {"group": names[codes], "service": services[codes]}
    )


def _of_service(run: Run, service: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """When a service computes and when it loads."""
    busy, loads = _gpu(run, "busy"), _gpu(run, "loading")
    return busy[busy["service"] == service], loads[loads["service"] == service]


def _iterations(run: Run) -> pd.DataFrame:
    """A row per iteration; iterations that ran together are one row of the file."""
    steps = run.tables["iterations"]
    return steps.loc[steps.index.repeat(steps["iterations"])]
