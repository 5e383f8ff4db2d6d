"""What keeps a deployment from more load: KV, seats, compute, bursts, or a request by itself."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.capacity.objectives import Objective
from harness.config.engine_limits import LIMITS, stated_limits
from harness.runs.cells import Run
from harness.runs.figures import View
from harness.runs.gpu_time import gpu_figures

FULL = 0.95
"""Share of KV, or of a limit, from which it is full."""
OFTEN = 0.2
"""Share of the seconds in which something is full that binds."""
PREEMPTED = 0.01
"""Share of the requests that are preempted where KV binds."""
BUSY = 0.8
"""Share of the GPUs' seconds in which they compute where compute binds; with less requests that
come together wait for each other while GPUs are idle at other times."""
OWN = 0.8
"""Share of a limit that a request takes alone where nothing else binds."""


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a run was short of, as shares: of its requests, or of the seconds of its iterations.

    `preempted` requests were. KV was full for `kv_full` of the seconds, and at most `kv_most` of
    it held; all seats were taken for `seats_full` while requests waited; `busy` is the share of
    the GPUs' seconds, from the first arrival to the last, in which they computed (to the last
    answer where all come at once).
    """

    preempted: float
    kv_full: float
    kv_most: float
    seats_full: float
    seats: int
    busy: float


def pressure_of(run: Run) -> Pressure:
    """Of a run with a table of iterations."""
    view, log = View(run), run.tables["iterations"]
    columns = ("duration_s", "free_tokens", "prefill_requests", "decode_requests")
    seconds, free, prefills, decodes = (log[name].to_numpy(np.float64) for name in columns)
    held = 1 - free / log["group"].map(run.facts["kv_tokens"]).to_numpy(np.float64)
    waits = (log["waiting_requests"] + log["paused_requests"]).to_numpy() > 0
    seats = _seats(run)
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
        seats_full=share((prefills + decodes >= seats) & waits),
        seats=seats,
        busy=min(1.0, busy_s / (gpus * (end_s - first_s))),
    )


def _seats(run: Run) -> int:
    """Requests that may run at once: the engine's limit, or the policy's."""
    limit = LIMITS[0]
    stated = [it for _, name, it in stated_limits(run.config["policy"], "policy") if name == limit]
    return min([int(run.config["engine"][limit]), *stated])


def binding(
    objectives: Sequence[Objective],
    failing_s: Sequence[float],
    alone_s: Sequence[float],
    found: Pressure,
) -> str:
    """What binds, with its numbers, where the values of the objectives are `failing_s`.

    `alone_s` are their values where requests hardly meet.
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
    seats = f"all {found.seats:,} seats are taken in {found.seats_full:.0%} of the seconds"
    if found.preempted >= PREEMPTED or found.kv_full >= OFTEN:
        return f"KV: {kv} ({seats}, {beside})"
    if found.seats_full >= OFTEN:
        return f"the limit of requests at once: {seats} while others wait ({kv}, {beside})"
    if found.busy >= BUSY:
        return f"compute: {beside} ({kv}; {seats})"
    own = " and ".join(f"{one.name} {own_s:.3g} s" for one, own_s in lost)
    return f"bursts: {beside}, and alone on idle GPUs a request has {own} ({kv}; {seats})"
