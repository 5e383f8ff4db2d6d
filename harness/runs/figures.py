"""Figures of a run: named functions of what it has stored, outside what the run is named by.

A figure is a function of a `View` with the decorator `figure`, which says its unit, whether less or
more is better, and which tables it needs; several that share their work are keys of one function's
mapping, with `figures_from`. Nothing else is edited for a new one, and no run again: `summary_of`
computes figures from the tables of a run, and a run's folder keeps them until this program changes
(`harness.runs.record`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from harness.config.names import unknown_name
from harness.engines.backends import UNUSED, WARM
from harness.engines.token_gaps import BINS
from harness.runs.cells import Run
from harness.runs.fairness import fairness_figures, tenant_service
from harness.runs.gpu_time import gpu_figures
from harness.runs.latencies import (
    GAP,
    columns_of,
    gap_figures,
    met_objectives,
    objective_figures,
    request_figures,
)
from harness.runs.stats import LEVEL
from harness.runs.trace_intervals import KEY, Served, trace_intervals

LESS, MORE = "less", "more"
"""Which of two values of a figure is the better one."""
CLASSES = ("service", "tenant", "kind")
"""Columns of requests by which figures are told apart."""
MOST_NAMES = 100  # in such a column; more would make a summary longer than the table it sums up
DRAW = "config.hardware.cost_draw"
"""Column of `read_summaries`: which draw of its costs a run has, 0 for those of its profile."""
NESTED = ("by.", "decisions.", "counts.")
"""How figures of classes begin, and what policies count: by.tenant.NAME.jct_s_mean, counts.NAME."""


class FigureError(ValueError):
    """A figure's function has failed."""


class View:
    """What figures read of a run: its tables and facts, and what many figures are made of.

    Requests that come before the end of the warm-up are served and not counted. `horizon_s` is when
    the run ended. Raises ValueError where no request is counted.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.facts, self.requests = run, run.facts, run.tables["requests"]
        cut_off_s, arrival_s = run.facts["cut_off_s"], self.requests["arrival_s"]
        self.horizon_s = inference_s(self.requests, cut_off_s)
        warm_up_s = run.config.get("warm_up_s") or 0.0
        self.begin_s = float(arrival_s.min()) + float(str(warm_up_s))
        if not ((arrival_s >= self.begin_s) & (arrival_s < np.inf)).any():
            raise ValueError(f"warm_up_s={warm_up_s} leaves no request to count")
        self.counts_all = not warm_up_s
        self._found: dict[Any, Mapping[str, float]] = {}

    def table(self, name: str) -> pd.DataFrame | None:
        """A table of the run; None where it has none of this name."""
        return self.run.tables.get(name)

    def found(self, function: "Callable[[View], Mapping[str, float]]") -> Mapping[str, float]:
        """What a function gives of this view, computed once."""
        if function not in self._found:
            self._found[function] = function(self)
        return self._found[function]

    @cached_property
    def met(self) -> "pd.Series[bool] | None":
        """Whether each counted request met the objectives of the configuration; None for none."""
        slo = self.run.config.get("slo")
        solo_s = self.requests["solo_s"].to_numpy(float) if "solo_s" in self.requests else None
        limits = slo if isinstance(slo, Mapping) else {}
        met = met_objectives(self.requests, limits, horizon_s=self.horizon_s, solo_s=solo_s)
        return None if met is None else met[self.counted]

    @cached_property
    def counted(self) -> "pd.Series[bool]":
        """Which requests are counted."""
        return ~(self.requests["arrival_s"] < self.begin_s)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The counted requests."""
        return self.requests[self.counted]

    def served(self) -> Served:
        """What blocks of a trace are drawn from."""
        rows = self.rows if self.met is None else self.rows.assign(met=self.met)
        return Served.of(rows, begin_s=self.begin_s, horizon_s=self.horizon_s)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a run.

    `better` is LESS or MORE, empty where neither is better. `needs` are tables of a run beside its
    requests, without which a figure is NaN. `header` is its name in a printed table.
    """

    name: str
    unit: str
    better: str
    of: Callable[[View], float]
    needs: tuple[str, ...] = ()
    header: str = ""


FIGURES: dict[str, Figure] = {}
"""Every figure of a run's summary by name, but those of its classes, decisions and counts."""
COUNTED = ("requests", "tokens", "bytes", "iterations", "gaps")  # units of whole numbers


def figure(
    *, unit: str, better: str = "", needs: Sequence[str] = (), header: str = ""
) -> Callable[[Callable[[View], float]], Callable[[View], float]]:
    """Add a function to the figures, by its name. Raises ValueError for a name that is there."""

    def add(function: Callable[[View], float]) -> Callable[[View], float]:
        _add(Figure(function.__name__, unit, better, function, tuple(needs), header))
        return function

    return add


def figures_from(
    function: Callable[[View], Mapping[str, float]],
    *told: tuple[str, ...],
    needs: Sequence[str] = (),
) -> None:
    """Add the figures of one function: each its name, unit, what is better, and its header."""
    for name, unit, better, *header in told:
        _add(Figure(name, unit, better, partial(_one_of, function, name), tuple(needs), *header))


def _one_of(function: Callable[[View], Mapping[str, float]], name: str, view: View) -> float:
    return view.found(function)[name]


def _add(one: Figure) -> None:
    if one.name in FIGURES:
        raise ValueError(f"there are two figures {one.name}")
    FIGURES[one.name] = one


def header_of(name: str) -> str:
    """What heads a figure's column; any other column stands under its own name."""
    found = FIGURES.get(name)
    return found.header if found and found.header else name.replace("_", " ")


def unit_of(name: str) -> str:
    """The unit of a figure; empty where its name is none of a run's figures."""
    return FIGURES[name].unit if name in FIGURES else ""


def is_more_better(name: str) -> bool:
    """Whether the larger of two values of a figure is the better one."""
    return name in FIGURES and FIGURES[name].better == MORE


def span_of(name: str) -> tuple[str, str]:
    """Columns with the ends of a figure's interval, where costs were drawn."""
    return f"uncertainty.{name}.low", f"uncertainty.{name}.high"


def over_draws(rows: pd.DataFrame) -> pd.DataFrame:
    """Runs on the costs of their profile, with what runs on other draws of its error say of each.

    `rows` are those of `read_summaries`. Columns `span_of` a figure have the middle 95% over the
    runs that differ in their draw of costs alone, the extremes where draws are few. As they are
    where no costs were drawn.
    """
    if DRAW not in rows or not (rows[DRAW] > 0).any():
        return rows
    keys = [name for name in rows if str(name).startswith("config.") and name != DRAW]
    places = rows[keys].map(str).agg("\0".join, axis=1)
    own, drawn = rows[rows[DRAW] == 0], rows[rows[DRAW] > 0]
    numbers = drawn[[name for name in FIGURES if name in rows]].astype(float)
    groups = numbers.groupby(places[drawn.index])
    tail = (1 - LEVEL) / 2
    ends = [groups.quantile(tail, "lower"), groups.quantile(1 - tail, "higher")]
    for end, told in zip(ends, (0, 1), strict=True):
        named = end.rename(columns={name: span_of(str(name))[told] for name in end})
        of_own = named.dropna(axis=1, how="all").reindex(places[own.index]).set_axis(own.index)
        own = pd.concat([own, of_own], axis=1)
    return own


def check_shown(shows: Sequence[str], *, drawn: bool) -> None:
    """Raise ValueError for a figure that no run has; where costs are `drawn` it has intervals."""
    ends = [end for name in FIGURES for end in span_of(name)]
    known = dict.fromkeys((*FIGURES, *(ends if drawn else ())))
    if unknown := [name for name in shows if name not in known and not name.startswith(NESTED)]:
        raise ValueError(unknown_name("figure of a run", unknown[0], known))


def figures_of(run: Run, names: Sequence[str] | None = None) -> dict[str, float]:
    """All figures of a run, or those named. ValueError for an unknown name, and FigureError."""
    for name in names or ():
        if name not in FIGURES:
            raise ValueError(unknown_name("figure of a run", name, FIGURES))
    view = View(run)
    return {name: _value(FIGURES[name], view) for name in names or FIGURES}


def _value(one: Figure, view: View) -> float:
    if any(view.table(name) is None for name in one.needs):
        return np.nan
    try:
        return one.of(view)
    except Exception as error:  # of any kind: a figure is anybody's function
        raise FigureError(
            f"the figure {one.name} fails: {type(error).__name__}: {error}"
        ) from error


def summary_of(run: Run) -> dict[str, Any]:
    """Every figure of a run, by class and in blocks too, and what was counted. FigureError."""
    view = View(run)
    found: dict[str, Any] = {name: _value(one, view) for name, one in FIGURES.items()}
    if run.facts["is_replay"]:
        found[KEY] = trace_intervals(view.served(), found)
    by = {"by": by_class(view), "decisions": run.facts["decisions"], "counts": run.facts["counts"]}
    return {**found, **by}


def _known(value: float | None) -> float:
    """A fact as a number: what a file of facts has as null is NaN."""
    return np.nan if value is None else value


# The seconds of a run -----------------------------------------------------------------------------


def inference_s(requests: pd.DataFrame, cut_off_s: float | None) -> float:
    """When the last request finished; where the run was cut off, it took that long at least."""
    return float(requests["finished_s"].max()) if cut_off_s is None else cut_off_s


def _whole(view: View) -> dict[str, float]:
    """Inference time (last finish), extra time (wall-clock seconds of planning), and their sum."""
    extra_s = float(view.facts["decisions"].get("place", {}).get("s_sum", 0.0))
    ends_s, planned_s = view.horizon_s, _known(view.facts["planned_s"])
    loads_s = view.facts["loads_s"] or [np.nan]
    return {
        "inference_s": ends_s,
        "extra_s": extra_s,
        "end_to_end_s": ends_s + extra_s,
        "planned_inference_s": planned_s,
        "planned_error": abs(planned_s / ends_s - 1.0),
        "load_s_min": min(loads_s),
        "load_s_max": max(loads_s),
    }


figures_from(
    _whole,
    ("inference_s", "s", LESS, "inference s"),
    ("extra_s", "s", LESS, "extra s"),
    ("end_to_end_s", "s", LESS, "end to end s"),
    ("planned_inference_s", "s", ""),
    ("planned_error", "share", LESS),
    ("load_s_min", "s", LESS),
    ("load_s_max", "s", LESS),
)


def _scheduling(view: View) -> dict[str, float]:
    """Wall-clock seconds of deciding and filling batches, per iteration and as a share of the run.

    The share is of the seconds of each group until the horizon, in which the decisions are if they
    were charged. NaN where decisions were not timed: fewer seconds are then logged for policies
    that are asked less often.
    """
    iterations = view.facts["timed_iterations"]
    spent_s = float(view.facts["decisions"].get("schedule", {}).get("s_sum", 0.0))
    all_s = view.facts["groups"] * view.horizon_s
    return {
        "scheduling_s_per_iteration": spent_s / iterations if iterations else np.nan,
        "scheduling_share": spent_s / all_s if iterations and all_s > 0 else np.nan,
    }


figures_from(
    _scheduling,
    ("scheduling_s_per_iteration", "s", LESS),
    ("scheduling_share", "share", LESS),
)


# GPUs ---------------------------------------------------------------------------------------------


def _gpus(view: View) -> dict[str, float]:
    gpus = view.facts["gpus"]
    return gpu_figures(view.run.tables["gpu"], gpus=gpus, horizon_s=view.horizon_s)


figures_from(
    _gpus,
    ("load_s", "s", LESS),
    ("gpu_busy_s", "s", LESS),
    ("gpu_loading_s", "s", LESS, "GPU loading s"),
    ("gpu_idle_s", "s", LESS, "GPU idle s"),
    ("gpus_used", "GPUs", ""),
)


@figure(unit="share", needs=["iterations"])
def kv_utilization(view: View) -> float:
    """Share of the KV memory that requests hold, over the seconds of iterations and all groups.

    Rows of the log are runs of equal iterations that grow by a token for each decoding request. NaN
    where no log was kept.
    """
    log = view.run.tables["iterations"]
    columns = ("held_tokens", "decode_requests", "iterations", "duration_s")
    held, decodes, count, seconds = (log[name].to_numpy(np.float64) for name in columns)
    room = log["group"].map(view.facts["kv_tokens"]).to_numpy(np.float64)
    whole = float((room * seconds).sum())
    return float(((held + decodes * (count - 1) / 2) * seconds).sum()) / whole if whole else np.nan


@figure(unit="share")
def outside_profile_share(view: View) -> float:
    """Share of the busy GPU seconds beyond what the cost profile measured, NaN where not known."""
    return _known(view.facts["outside_profile_share"])


# Requests -----------------------------------------------------------------------------------------


def _requests(view: View) -> dict[str, float]:
    return request_figures(view.rows, begin_s=view.begin_s, horizon_s=view.horizon_s)


def _gaps(view: View) -> dict[str, float]:
    """Of all gaps between tokens; NaN where some requests are not counted."""
    gaps = np.zeros(BINS, np.int64)
    for place, count in view.facts["gaps"].items():
        gaps[int(place)] = count
    found = gap_figures(gaps, longest_s=float(view.requests[GAP].max()))
    return found if view.counts_all else dict.fromkeys(found, np.nan)


_LATENCIES = ("jct_s", "ttft_s", "tpot_s", "normalized_s")
figures_from(
    _requests,
    ("requests", "requests", ""),
    ("unfinished", "requests", LESS),
    ("waiting_s_max", "s", LESS, "longest wait s"),
    ("output_tokens", "tokens", ""),
    ("preemptions", "requests", LESS),
    ("swaps", "requests", LESS),
    ("swapped_bytes", "bytes", LESS),
    ("swap_s", "s", LESS),
    ("cached_tokens", "tokens", MORE),
    ("prefix_hit_ratio", "share", MORE),
    ("jct_s_mean", "s", LESS, "mean JCT s"),
    ("jct_s_p99", "s", LESS, "P99 JCT s"),
    ("ttft_s_mean", "s", LESS, "mean TTFT s"),
    ("ttft_s_p99", "s", LESS, "P99 TTFT s"),
    ("tpot_s_mean", "s", LESS, "mean TPOT s"),
    ("tpot_s_p99", "s", LESS, "P99 TPOT s"),
    ("normalized_s_mean", "s", LESS),
    ("normalized_s_p99", "s", LESS),
    *((f"{name}_{what}", "s", LESS) for name in _LATENCIES for what in ("p50", "p90", "p95")),
    *((f"{name}_count", "requests", "") for name in _LATENCIES),
    ("itl_s_mean", "s", LESS),
    ("itl_s_max", "s", LESS, "longest gap s"),
    ("requests_per_s", "requests/s", MORE, "requests /s"),
    ("output_tokens_per_s", "tokens/s", MORE, "output tokens /s"),
    ("tokens_per_s", "tokens/s", MORE),
)
figures_from(
    _gaps,
    ("itl_s_p50", "s", LESS),
    ("itl_s_p90", "s", LESS),
    ("itl_s_p95", "s", LESS),
    ("itl_s_p99", "s", LESS, "P99 gap s"),
    ("itl_s_count", "gaps", ""),
)


def _objectives(view: View) -> dict[str, float]:
    return objective_figures(view.met, span_s=view.horizon_s - view.begin_s)


def _fairness(view: View) -> dict[str, float]:
    return fairness_figures(view.requests, horizon_s=view.horizon_s)


figures_from(
    _objectives,
    ("slo_attainment", "share", MORE, "SLO attainment"),
    ("goodput_per_s", "requests/s", MORE, "goodput /s"),
)
figures_from(
    _fairness,
    ("service_difference_max", "tokens", LESS),
    ("fairness_jain", "index", MORE),
)


# Applications and classes -------------------------------------------------------------------------


def application_figures(apps: pd.DataFrame, *, horizon_s: float) -> dict[str, float]:
    """Counts, application completion times (ACT), and the share of deadlines that are met.

    An application that has not finished by the horizon enters at its age there, a lower bound; one
    that would have come later is only unfinished. NaN where none has a deadline.
    """
    arrived_s, finished_s, deadline_s = (
        apps[name].to_numpy(np.float64) for name in ("arrived_s", "finished_s", "deadline_s")
    )
    act_s = np.where(np.isnan(finished_s), horizon_s, finished_s) - arrived_s
    act_s = act_s[arrived_s <= horizon_s]
    due = ~np.isnan(deadline_s)
    return {
        "applications": float(len(apps)),
        "applications_unfinished": float(np.isnan(finished_s).sum()),
        "act_s_mean": float(act_s.mean()) if len(act_s) else np.nan,
        "act_s_p95": float(np.quantile(act_s, 0.95)) if len(act_s) else np.nan,
        "deadlines_met": float((finished_s <= deadline_s)[due].mean()) if due.any() else np.nan,
    }


def _applications(view: View) -> dict[str, float]:
    return application_figures(view.run.tables["apps"], horizon_s=view.horizon_s)


def _backends(view: View) -> dict[str, float]:
    """Share of uses of backends that find them ready, and seconds per application.

    `backend_wait_s_mean` are the seconds that calls of an application wait for backends,
    `backend_idle_s_mean` those for which backends that were loaded ahead of need were ready and
    unused.
    """
    uses, count = view.run.tables["backends"], len(view.run.tables["apps"])
    found = uses.loc[uses["found"] != UNUSED, "found"]
    return {
        "backend_hits": float((found == WARM).mean()) if len(found) else np.nan,
        "backend_wait_s_mean": float(uses["waited_s"].sum()) / count if count else np.nan,
        "backend_idle_s_mean": float(uses["idle_s"].sum()) / count if count else np.nan,
    }


figures_from(
    _applications,
    ("applications", "applications", ""),
    ("applications_unfinished", "applications", LESS),
    ("act_s_mean", "s", LESS, "mean ACT s"),
    ("act_s_p95", "s", LESS, "P95 ACT s"),
    ("deadlines_met", "share", MORE),
    needs=["apps"],
)
figures_from(
    _backends,
    ("backend_hits", "share", MORE),
    ("backend_wait_s_mean", "s", LESS),
    ("backend_idle_s_mean", "s", LESS),
    needs=["apps", "backends"],
)


def by_class(view: View) -> dict[str, dict[str, dict[str, float]]]:
    """Figures of requests and applications by service, tenant and kind, where there are several.

    Throughput and goodput are over the same seconds for all classes.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    times = {"begin_s": view.begin_s, "horizon_s": view.horizon_s}
    numbers, span_s, met = columns_of(view.rows), view.horizon_s - view.begin_s, view.met
    for column in CLASSES:
        if column in view.rows and 2 <= view.rows[column].nunique() <= MOST_NAMES:
            found[column] = {
                str(name): request_figures({n: of[rows] for n, of in numbers.items()}, **times)
                | ({} if met is None else objective_figures(met.iloc[rows], span_s=span_s))
                for name, rows in view.rows.groupby(column, observed=True).indices.items()
            }
    apps = view.table("apps")
    if apps is not None and 2 <= apps["kind"].nunique() <= MOST_NAMES:
        for kind, rows in apps.groupby("kind", observed=True):
            own = application_figures(rows, horizon_s=view.horizon_s)
            found.setdefault("kind", {}).setdefault(str(kind), {}).update(own)
    for tenant, service in tenant_service(view.requests).items():
        found.setdefault("tenant", {}).setdefault(tenant, {}).update(service)
    return found
