"""What keeps a deployment from more load: KV, a limit, compute, bursts, or a request by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.capacity.objectives import Objective
from harness.config.engine_limits import LIMITS, stated_limits
from harness.runs.cells import Run
from harness.runs.figures import View
from harness.runs.gpu_time import gpu_figures
from harness.runs.trace_intervals import Floats

FULL = 0.95
"""Share of KV, or of a limit, from which it is full."""
OFTEN = 0.2
"""Share of the seconds in which something is full that binds."""
PREEMPTED = 0.01
"""Share of the requests that are preempted where KV binds."""
PARTS, CALM = 20, 0.75
"""Parts of the requests, by arrival, and the share of them that keep the objectives where bursts
bind: where compute does, about half of them fail at the least load that does."""
OWN = 0.8
"""Share of a limit that a request takes alone where nothing else binds."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a run was short of, as shares: of its requests, or of the seconds of its iterations.

    `preempted` requests were. KV was full for `kv_full` of the seconds, and at most `kv_most` of
    it held; as many requests as may ran (`most_requests` a group) for `requests_full` while others
    waited; `busy` is the share of the GPUs' seconds, from the first arrival to the last, in which
    they computed (to the last answer where all come at once).
    """

    preempted: float
    kv_full: float
    kv_most: float
    requests_full: float
    most_requests: int
    busy: float


def pressure_of(run: Run) -> Pressure:
    """Of a run with a table of iterations."""
    view, log = View(run), run.tables["iterations"]
    columns = ("duration_s", "free_tokens", "prefill_requests", "decode_requests")
    seconds, free, prefills, decodes = (log[name].to_numpy(np.float64) for name in columns)
    held = 1 - free / log["group"].map(run.facts["kv_tokens"]).to_numpy(np.float64)
    waits = (log["waiting_requests"] + log["paused_requests"]).to_numpy() > 0
    most = _most_requests(run)
    arrival_s, gpus = view.requests["arrival_s"], view.facts["gpus"]
    first_s, last_s = (
        float(it) for it in arrival_s[arrival_s <= view.horizon_s].agg(["min", "max"])
    )
    end_s = last_s if last_s > first_s else view.horizon_s
    busy_s = gpu_figures(run.tables["gpu"], gpus=gpus, horizon_s=end_s)["gpu_busy_s"]

    def share(is_so: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> float:
        return float(seconds[is_so].sum() / seconds.sum())

    return Pressure(
        preempted=float((view.rows["preemptions"] > 0).mean()),
        kv_full=share(held >= FULL),
        kv_most=float(held.max()),
        requests_full=share((prefills + decodes >= most) & waits),
        most_requests=most,
        busy=min(1.0, busy_s / (gpus * (end_s - first_s))),
    )


def _most_requests(run: Run) -> int:
    """Requests that may run at once: the engine's limit, or the policy's."""
    limit = LIMITS[0]
    stated = [it for _, name, it in stated_limits(run.config["policy"], "policy") if name == limit]
    return min([int(run.config["engine"][limit]), *stated])


def parts_kept(objectives: Sequence[Objective], seconds: Mapping[str, Floats]) -> float:
    """Share of the parts of the requests, by arrival, in which all objectives are kept.

    `seconds` are those of `seconds_of`.
    """
    count = len(next(iter(seconds.values())))
    parts = [it for it in np.array_split(np.arange(count), PARTS) if len(it)]
    kept = [
        all(one.is_kept(float(one.value_s(seconds[one.metric][part]))) for one in objectives)
        for part in parts
    ]
    return float(np.mean(kept))


def binding(
    objectives: Sequence[Objective],
    failing_s: Sequence[float],
    alone_s: Sequence[float],
    found: Pressure,
    calm: float,
) -> str:
    """What binds, with its numbers, where the values of the objectives are `failing_s`.

    `alone_s` are their values where requests hardly meet, `calm` what `parts_kept` says.
    """
    each = zip(objectives, failing_s, alone_s, strict=True)
    lost = [(one, own_s) for one, value_s, own_s in each if not one.is_kept(value_s)]
    for one, own_s in lost:
        if own_s >= OWN * one.limit_s:
            what = "the tail of prompts" if one.metric == "ttft" else "the seconds of a request"
            return f"{what}: alone on idle GPUs {one.name} is {own_s:.3g} s already"
    beside = f"GPUs are busy {found.busy:.0%} of the seconds"
    kv = (
        f"{found.preempted:.0%} of the requests are preempted, KV is {FULL:.0%} full or more in "
        f"{found.kv_full:.0%} of the seconds and at most {found.kv_most:.0%} full"
    )
    full = (
        f"{found.most_requests:,} requests, as many as may, run at once in "
        f"{found.requests_full:.0%} of the seconds"
    )
    if found.preempted >= PREEMPTED or found.kv_full >= OFTEN:
        return f"KV: {kv} ({full}, {beside})"
    if found.requests_full >= OFTEN:
        return f"the limit of requests at once: {full} while others wait ({kv}, {beside})"
    own = " and ".join(f"{one.name} {own_s:.3g} s" for one, own_s in lost)
    parts = f"{calm:.0%} of {PARTS} parts of the requests, by arrival, keep the objectives"
    what = "bursts" if calm >= CALM else "compute"
    return f"{what}: {parts}; alone on idle GPUs a request has {own} ({beside}, {kv}; {full})"
