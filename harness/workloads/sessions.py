"""Turns of recorded sessions as graphs of calls: each comes some time after the answer before."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from harness.interface.apps import OUTSIDE, Apps
from harness.interface.entities import Service
from harness.interface.graph import Edges
from harness.workloads.call_ids import with_apps
from harness.workloads.trace_formats import OUTPUT_TOKENS, PROMPT_TOKENS
from harness.workloads.trace_kinds import SESSION
from harness.workloads.workload import Floats, Ints, Workload

_MOST_CONTEXT = 10**9
"""Of the service of pauses, which has none."""


def accumulated(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows by session, with whole prompts: the turns and answers before, then what is new."""
    order = np.argsort(pd.factorize(rows[SESSION])[0], kind="stable")
    attrs, rows = rows.attrs, rows.iloc[order]
    turns = rows[PROMPT_TOKENS] + rows[OUTPUT_TOKENS]
    before = turns.groupby(rows[SESSION]).cumsum() - turns
    found = rows.assign(**{PROMPT_TOKENS: rows[PROMPT_TOKENS] + before})
    found.attrs = attrs
    return found


def in_sessions(load: Workload, session: "pd.Series[str]", delay_s: Floats, seed: int) -> Workload:
    """The workload as sessions: a turn waits for the answer before it, then for its delay.

    `session` names that of each row of the workload; those of one stand together, in order. A
    turn's prompt begins with the whole context of the turn before it. A delay is a call outside any
    LLM.
    """
    app = pd.factorize(session)[0].astype(np.int64)
    is_later = np.diff(app, prepend=-1) == 0
    has_pause = is_later & (delay_s > 0)
    pauses = np.flatnonzero(has_pause)
    # Where each turn stands when pauses stand ahead of the turns that wait for them.
    place = np.arange(len(load)) + np.cumsum(has_pause)
    later = np.flatnonzero(is_later)
    before = place[later - 1]
    waits_for = np.where(has_pause[later], place[later] - 1, before)
    edges = Edges(
        np.concatenate([place[pauses - 1], waits_for]),
        np.concatenate([place[pauses] - 1, place[later]]),
        np.zeros(len(pauses) + len(later), np.bool_),
    )
    whole = replace(
        _with_pauses(load, app, pauses),
        edges=edges,
        **_prefixes(load, place, later),
    )
    apps = Apps(
        kinds=("session",),
        kind=np.zeros(int(app.max()) + 1, np.int64),
        units=("turn", "pause"),
        unit=np.insert(np.zeros(len(load), np.int64), pauses, 1),
        instance=np.arange(len(whole)),
        external_s=np.insert(np.full(len(load), np.nan), pauses, delay_s[pauses]),
    )
    return with_apps(whole, apps, seed)


def _prefixes(load: Workload, place: Ints, later: Ints) -> dict[str, Any]:
    """A later turn begins with the whole context of the one before it."""
    total = int(place[-1]) + 1
    prefix, tokens = np.full(total, -1), np.zeros(total, np.int64)
    prefix[place[later]] = place[later - 1]
    tokens[place[later]] = (load.prompt_tokens + load.output_tokens)[later - 1]
    return {"prefix": prefix, "prefix_tokens": tokens}


def _with_pauses(load: Workload, app: Ints, pauses: Ints) -> Workload:
    """The workload with a call outside any LLM ahead of each of these rows."""
    prompt_tokens = np.insert(load.prompt_tokens, pauses, 1)
    return replace(
        load,
        services=(*load.services, Service(OUTSIDE, 0, _MOST_CONTEXT)),
        service=np.insert(load.service, pauses, len(load.services)),
        arrival_s=np.insert(load.arrival_s, pauses, load.arrival_s[pauses]),
        deadline_s=np.insert(load.deadline_s, pauses, load.deadline_s[pauses]),
        tenant=np.insert(load.tenant, pauses, load.tenant[pauses]),
        prompt_tokens=prompt_tokens,
        own_tokens=prompt_tokens,
        output_tokens=np.insert(load.output_tokens, pauses, 1),
        max_output_tokens=np.insert(load.max_output_tokens, pauses, 1),
        app=np.insert(app, pauses, app[pauses]),
        predicted_tokens=np.insert(load.predicted_tokens, pauses, np.nan),
    )
