"""Sessions of a trace: turns that wait for the answer before them, and then for a delay."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from harness.interface.apps import OUTSIDE, Apps
from harness.interface.entities import Service
from harness.interface.graph import Edges
from harness.workloads.call_ids import with_apps
from harness.workloads.trace_columns import (
    ARRIVAL,
    DELAY,
    KEPT,
    NOTES,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    SESSION,
)
from harness.workloads.workload import Ints, Workload

_MOST_CONTEXT = 10**9  # of the service of pauses, which has none


def turns(
    path: Path, found: Mapping[str, "pd.Series[Any]"], named: Mapping[str, str]
) -> dict[str, "pd.Series[Any]"]:
    """Columns of sessions with the time of the first turn for all of its turns.

    A row without a session is one of its own; a later turn needs a delay, and may have no other
    time than the first. Raises ValueError with the row where that is not so.
    """
    given = found[SESSION]
    rows = pd.Series([f"row {row}" for row in given.index], given.index)
    session = given.astype(object).where(given.notna(), rows).astype(str)
    is_first = ~session.duplicated()
    out = {**found, SESSION: session}
    time = named.get(ARRIVAL, ARRIVAL)
    delay = found.get(DELAY, pd.Series(np.nan, given.index))
    column = named.get(DELAY, DELAY)
    rules = [(~is_first & delay.isna(), f"a later turn of a session has no {column}")]
    if ARRIVAL in found:
        times = found[ARRIVAL]
        begins = times.groupby(session).transform("first")
        rules += [
            (is_first & times.isna(), f"the first turn of a session has no {time}"),
            (~is_first & times.notna() & (times != begins), f"a later turn has another {time}"),
        ]
        out[ARRIVAL] = begins
    for bad, why in rules:
        if bad.any():
            raise ValueError(f"{path} row {given.index[int(np.argmax(bad.to_numpy()))]}: {why}")
    out[DELAY] = delay.where(~is_first, 0)
    return out


def accumulated(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows by session, with whole prompts: the context kept of the turns before, then the new.

    `KEPT` becomes the tokens that a prompt has in common with the context of the turn before.
    """
    order = np.argsort(pd.factorize(rows[SESSION])[0], kind="stable")
    attrs, rows = rows.attrs, rows.iloc[order]
    by_session = rows[SESSION].to_numpy()
    if KEPT in rows:
        prompt = rows[PROMPT_TOKENS] + rows[KEPT]
        context = (prompt + rows[OUTPUT_TOKENS]).groupby(by_session).shift(1, fill_value=0)
        more = int((rows[KEPT] > context).sum())
        kept = rows[KEPT].clip(upper=context)
        said = "a turn's prompt begins with so much of its session's context as the file says"
        said += f"; {more} turns keep more than there was: the rest is read as new" if more else ""
    else:
        both = rows[PROMPT_TOKENS] + rows[OUTPUT_TOKENS]
        kept = both.groupby(by_session).cumsum() - both
        prompt = rows[PROMPT_TOKENS] + kept
        said = "a turn's prompt has all turns and answers of its session before it"
    found = rows.assign(**{PROMPT_TOKENS: prompt, KEPT: kept})
    found.attrs = {**attrs, NOTES: (*attrs.get(NOTES, ()), said)}
    return found


def whole_sessions(session: "pd.Series[str]", first: int, last: int) -> tuple[int, int]:
    """The rows [first, last) without sessions of which they do not have all turns.

    The turns of a session stand together. Where there is no whole one, `first` is not below `last`.
    """
    begins = np.append(np.flatnonzero(~session.duplicated()), len(session))
    end = begins[np.searchsorted(begins, last, side="right") - 1]
    return int(begins[np.searchsorted(begins, first)]), int(end)


def in_sessions(load: Workload, rows: pd.DataFrame, seed: int) -> Workload:
    """The workload as sessions: a turn waits for the answer before it, then for its delay.

    The `rows` of a session stand together, in order. A turn's prompt begins with what is kept of
    the context of the turn before it. A delay is a call outside any LLM.
    """
    delay_s = rows[DELAY].to_numpy(np.float64)
    app = pd.factorize(rows[SESSION])[0].astype(np.int64)
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
    prefix, tokens = np.full(int(place[-1]) + 1, -1), np.zeros(int(place[-1]) + 1, np.int64)
    prefix[place[later]] = before
    tokens[place[later]] = rows[KEPT].to_numpy(np.int64)[later]
    paused = _with_pauses(load, app, pauses)
    whole = replace(paused, edges=edges, prefix=prefix, prefix_tokens=tokens)
    apps = Apps(
        kinds=("session",),
        kind=np.zeros(int(app.max()) + 1, np.int64),
        units=("turn", "pause"),
        unit=np.insert(np.zeros(len(load), np.int64), pauses, 1),
        instance=np.arange(len(whole)),
        external_s=np.insert(np.full(len(load), np.nan), pauses, delay_s[pauses]),
    )
    return with_apps(whole, apps, seed)


def _with_pauses(load: Workload, app: Ints, pauses: Ints) -> Workload:
    """The workload with a call outside any LLM ahead of each of these rows."""
    prompt_tokens = np.insert(load.prompt_tokens, pauses, 1)
    has_priority, has_text = bool(len(load.priority)), bool(len(load.texts))
    texts = np.insert(np.array(load.texts, object), pauses, "") if has_text else ()
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
        priority=np.insert(load.priority, pauses, load.priority[pauses])
        if has_priority
        else load.priority,
        texts=tuple(texts),
    )
