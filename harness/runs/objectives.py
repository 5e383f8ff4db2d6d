"""Service-level objectives: which requests met theirs.

An objective is a limit of seconds, the same for all, a deadline that a request came with, or a
multiple of what the request takes alone on the fewest GPUs that hold its model, so that it is the
same under every system. All that are given must be met. They are computed after the fact: a
deadline made from a request's solo time would tell a policy its true length.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.runs.metrics import GAP, latencies


def met_objectives(
    requests: pd.DataFrame,
    slo: Mapping[str, float | None],
    *,
    horizon_s: float,
    solo_s: "NDArray[np.float64] | None" = None,
) -> "pd.Series[bool] | None":
    """Whether each request met all objectives; None where there are none.

    `slo` has limits `ttft_s`, `tpot_s`, `itl_s` (of the longest gap between two tokens), `jct_s`
    and the `scale` of `solo_s`, each may be None. A
    request without a time per output token has none that is too long; an unfinished one has not
    met anything. Deadlines count where requests have them.
    """
    limits = {
        "ttft_s": slo.get("ttft_s"),
        "tpot_s": slo.get("tpot_s"),
        "jct_s": slo.get("jct_s"),
    }
    scale, itl_s = slo.get("scale"), slo.get("itl_s")
    has_deadlines = "deadline_s" in requests and requests["deadline_s"].notna().any()
    if not has_deadlines and all(limit is None for limit in (scale, itl_s, *limits.values())):
        return None
    each = latencies(requests, horizon_s=horizon_s)
    rules = [~(each[name] > limit) for name, limit in limits.items() if limit is not None]
    if itl_s is not None:
        rules.append(~(requests[GAP] > itl_s))
    if scale is not None and solo_s is not None:
        rules.append(each["jct_s"] <= scale * solo_s)
    if has_deadlines:
        rules.append(~(requests["finished_s"] > requests["deadline_s"]))
    if not rules:
        return None
    met = each["finished"]
    for rule in rules:
        met = met & rule
    return met
