"""Figures of applications: completion times and deadlines, of all and by kind."""

import numpy as np
import pandas as pd

from harness.engines.backends import UNUSED, WARM
from harness.runs.metrics import MOST_NAMES


def application_figures(apps: pd.DataFrame | None, *, horizon_s: float) -> dict[str, float]:
    """Counts, application completion times (ACT), and the share of deadlines that are met.

    An application that has not finished by the horizon enters at its age there, a lower bound; one
    that would have come later is only unfinished. NaN where a workload has no applications, and a
    share of deadlines where none has one.
    """
    if apps is None:
        names = ("applications", "applications_unfinished", "act_s_mean", "act_s_p95")
        return dict.fromkeys((*names, "deadlines_met"), np.nan)
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


def figures_by_kind(apps: pd.DataFrame | None, *, horizon_s: float) -> dict[str, dict[str, float]]:
    """The same by kind of application, where there are several."""
    if apps is None or not 2 <= apps["kind"].nunique() <= MOST_NAMES:
        return {}
    return {
        str(kind): application_figures(rows, horizon_s=horizon_s)
        for kind, rows in apps.groupby("kind", observed=True)
    }


def backend_figures(uses: pd.DataFrame | None, apps: pd.DataFrame | None) -> dict[str, float]:
    """Share of uses of backends that find them ready, and seconds per application.

    `backend_wait_s_mean` are the seconds that calls of an application wait for backends,
    `backend_idle_s_mean` those for which backends that were loaded ahead of need were ready and
    unused. NaN where a workload has no backends.
    """
    names = ("backend_hits", "backend_wait_s_mean", "backend_idle_s_mean")
    if uses is None or apps is None or not len(apps):
        return dict.fromkeys(names, np.nan)
    found = uses.loc[uses["found"] != UNUSED, "found"]
    return {
        "backend_hits": float((found == WARM).mean()) if len(found) else np.nan,
        "backend_wait_s_mean": float(uses["waited_s"].sum()) / len(apps),
        "backend_idle_s_mean": float(uses["idle_s"].sum()) / len(apps),
    }
