"""Requests as somebody recorded them: your own load, or a published trace as it is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from harness.config import inputs
from harness.config.ranges_of_units import MOST_SECONDS
from harness.costs.model_config import is_config
from harness.costs.model_facts import ModelFacts, model_facts
from harness.interface.apps import OUTSIDE, Apps
from harness.interface.entities import Service
from harness.interface.graph import Edges
from harness.workloads.arrivals import Arrivals, ClosedLoop, think_s_of
from harness.workloads.call_ids import with_apps
from harness.workloads.prefixes import prefixes_of_hashes
from harness.workloads.prompts import WORDS
from harness.workloads.settings import require_positive, require_start
from harness.workloads.trace_file import HAS_TIMES, HASH_TOKENS, read_trace
from harness.workloads.trace_formats import (
    ARRIVAL,
    DELAY,
    NOTES,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    SESSION,
    SHARED,
    SHARES,
)
from harness.workloads.workload import Floats, Ints, Workload, services_of

KvRoom = Callable[[str], tuple[int, int]]
_NO_INTS = np.zeros(0, np.int64)
_MOST_CONTEXT = 10**9  # of the service of pauses, which has none
TOO_LONG = ("refuse", "cut", "drop")


class Trace:
    """The requests of a file, the same for every seed where `arrivals` is None.

    `trace_formats` says of which columns, or `columns` does (`format_by` there). `arrivals` draws
    times in place of the file's, or where it has none.

    A request goes to the `model`, or where that is None to the service its row names: a model's
    name, or a key of `services`, whose value is one. What a policy may know of an answer's length
    is `max_output_tokens`, the same for all, or where that is None whatever the context leaves
    beside the prompt. A `deadline_s` is on the clock of the arrivals.

    Of the file, the `requests` first (None: all) whose arrival lies in `window`, [from, to) in
    seconds of its clock (None: from 0 on), come at `rate_scale` times its rate; from the window's
    beginning time counts anew, and a deadline stays as far from its arrival.

    `too_long` says what becomes of prompts and answers that exceed context or limit: refuse, cut (a
    prompt keeps its last tokens, an answer its first) or drop the request. Of a context counts what
    the KV of a group has room for, `kv_room`: blocks by model, and tokens of a block.
    """

    def __init__(
        self,
        *,
        file: str,
        columns: Mapping[str, str] | None,
        arrivals: Arrivals | None,
        model: str | None,
        services: Mapping[str, str],
        requests: int | None,
        window: Sequence[float] | None,
        rate_scale: float,
        max_output_tokens: int | None,
        too_long: str,
        starts_s: float,
        kv_room: KvRoom | None = None,
    ) -> None:
        self._starts_s, self._kv_room = require_start(starts_s), kv_room
        numbers = {"requests": requests, "max_output_tokens": max_output_tokens}
        given = {name: value for name, value in numbers.items() if value is not None}
        require_positive("workload", rate_scale=rate_scale, **given)
        if too_long not in TOO_LONG:
            raise ValueError(f"workload.too_long={too_long} is not one of {', '.join(TOO_LONG)}")
        # What is read must not depend on the folder that a worker process is in.
        self._path = Path(file).resolve()
        if not self._path.is_file():
            raise ValueError(f"workload.file={file} is no file")
        self._window, self._scale = _window(window), rate_scale
        self._requests, self._limit, self._too_long = requests, max_output_tokens, too_long
        self._model, self._services, self._columns = model, dict(services), columns
        self._arrivals = arrivals
        if arrivals is not None and window is not None:
            raise ValueError("workload.window is of the file's times; arrivals replace them")
        drawn = {} if arrivals is None else arrivals.files
        self.files: Mapping[str, str] = {**inputs.digests([WORDS, self._path]), **drawn}
        rows = self._rows()
        self._refuse_clocks(rows)
        called = self._called(rows)
        self.models = tuple(facts.name for facts in _asked(called))
        # What cannot be served is refused before anything runs.
        self._arrivals_s(self._fitted(rows, called)[0])

    def _refuse_clocks(self, rows: pd.DataFrame) -> None:
        """Raise ValueError for what means nothing in a closed loop, where answers set the times."""
        if not isinstance(self._arrivals, ClosedLoop):
            return
        if self._scale != 1:
            raise ValueError(
                f"workload.rate_scale={self._scale:g} has no meaning in a closed loop, whose rate "
                "is that of the answers"
            )
        if not np.isnan(_column(rows, "deadline_s")).all():
            raise ValueError(
                f"{self._path} has deadlines, which are times, and in a closed loop no request "
                "has one before it is sent"
            )

    @property
    def is_replay(self) -> bool:
        """Whether every seed has the same workload: nothing of it is drawn."""
        return self._arrivals is None

    @property
    def shares_prefixes(self) -> bool:
        """Whether the file says which prompts begin alike."""
        return bool({"hash_ids", SHARED, SESSION} & set(self._rows()))

    def build(self, seed: int) -> Workload:
        """The same workload for every seed, but for `arrivals` that are drawn."""
        rows = self._rows()
        named = self._called(rows)
        asked = _asked(named)
        number = {facts.name: place for place, facts in enumerate(asked)}
        called = np.array([number[name] for name in named], np.int64)
        rows, kept, limit = self._fitted(rows, named)
        slack_s = _column(rows, "deadline_s") - rows[ARRIVAL].to_numpy()
        arrival_s = self._come_s(rows, seed)
        tenant = rows["tenant"].astype(str) if "tenant" in rows else pd.Series("", rows.index)
        prefix, prefix_tokens = _prefixes(rows)
        apps = rows["app"] if "app" in rows else pd.Series(np.arange(len(rows)))
        load = Workload(
            services=services_of(asked),
            service=called[kept],
            arrival_s=arrival_s,
            prompt_tokens=rows[PROMPT_TOKENS].to_numpy(np.int64),
            output_tokens=rows[OUTPUT_TOKENS].to_numpy(np.int64),
            max_output_tokens=limit,
            # Numbered as they first come: a number says nothing of later requests.
            app=pd.factorize(apps)[0].astype(np.int64),
            deadline_s=arrival_s + slack_s,
            tenants=tuple(dict.fromkeys(tenant)),
            tenant=pd.factorize(tenant)[0].astype(np.int64),
            datasets=self.files,
            texts=tuple(rows["prompt"]) if "prompt" in rows else (),
            predicted_tokens=_column(rows, "predicted_tokens"),
            priority=rows["priority"].to_numpy(np.int64) if "priority" in rows else _NO_INTS,
            prefix=prefix,
            prefix_tokens=prefix_tokens,
            notes=self._notes(rows),
            think_s=think_s_of(self._arrivals),
        )
        if SESSION in rows:
            load = in_sessions(load, rows[SESSION], rows[DELAY].to_numpy(), seed)
        return load.later(self._starts_s)

    def _come_s(self, rows: pd.DataFrame, seed: int) -> Floats:
        """Arrivals, drawn or of the file."""
        if self._arrivals is None:
            return self._arrivals_s(rows)
        return self._arrivals.draw(len(rows), np.random.default_rng([seed, 7])) / self._scale

    def _notes(self, rows: pd.DataFrame) -> tuple[str, ...]:
        """What the reader of results should know of the requests."""
        name, asked = self._path.name, self._rows()
        left = asked.index.difference(rows.index)
        said = [f"{name}: {note}" for note in rows.attrs.get(NOTES, ())]
        if self._arrivals is not None:
            said.append(f"requests of {name} come by {type(self._arrivals).__name__}")
        if len(left):
            first = ", ".join(map(str, left[:5])) + (" ..." if len(left) > 5 else "")
            said.append(f"{name}: {len(left)} of {len(asked)} requests are too long, rows {first}")
        if not self.shares_prefixes:
            said.append(f"{name} does not say which prompts begin alike: no reuse was assumed")
        return tuple(said)

    def _rows(self) -> pd.DataFrame:
        """Those of the file that are asked for."""
        rows = read_trace(self._path, self._columns)
        if self._arrivals is None and not rows.attrs[HAS_TIMES]:
            raise ValueError(
                f"{self._path} does not say when its requests come: say "
                "workload/arrivals=gamma workload.arrivals.rate_per_s=RATE (or "
                "workload/arrivals=at_once)"
            )
        if self._arrivals is not None and SESSION in rows:
            raise ValueError(f"{self._path} has the times of its sessions: leave out arrivals")
        rows = accumulated(rows) if SESSION in rows else rows
        begin_s, end_s = self._window
        inside = rows[(rows[ARRIVAL] >= begin_s) & (rows[ARRIVAL] < end_s)]
        if inside.empty:
            first, last = rows[ARRIVAL].iloc[[0, -1]]
            raise ValueError(
                f"workload.window=[{begin_s:g}, {end_s:g}] has no request of {self._path}, "
                f"which has them at {first:g} to {last:g} s"
            )
        if self._requests is not None and len(inside) < self._requests:
            raise ValueError(
                f"{self._path} has {len(inside)} requests in the window, workload.requests="
                f"{self._requests} were asked for"
            )
        return inside if self._requests is None else inside.iloc[: self._requests]

    def _called(self, rows: pd.DataFrame) -> Sequence[str]:
        """The name of the model that each request goes to."""
        if self._model is not None:
            return [model_facts(self._model).name] * len(rows)
        if "service" not in rows:
            raise ValueError(
                f"{self._path} names no service: say workload.model=NAME, which serves all"
            )
        named = rows["service"].astype(str)
        facts = {name: self._facts(name, rows.index[named == name][0]) for name in named.unique()}
        return [facts[name].name for name in named]

    def _facts(self, service: str, row: int) -> ModelFacts:
        """Of the model behind a service that a row names."""
        name = self._services.get(service, service)
        try:
            return model_facts(name)
        except ValueError as error:
            if is_config(name):
                raise
            raise ValueError(
                f"{self._path} row {row}: service {service} is no model; say which serves it by "
                f"+workload.services={{{service}:NAME}}, or one for all by workload.model ({error})"
            ) from None

    def _arrivals_s(self, rows: pd.DataFrame) -> Floats:
        """When they come, in seconds of the run. Raises ValueError for what none waits for."""
        arrival_s: Floats = (rows[ARRIVAL].to_numpy() - self._window[0]) / self._scale
        if arrival_s[-1] > MOST_SECONDS:
            row = int(np.argmax(arrival_s > MOST_SECONDS))
            raise ValueError(
                f"{self._path} row {rows.index[row]}: {ARRIVAL} {rows[ARRIVAL].iloc[row]:g} is "
                f"{arrival_s[row]:g} s into the run, it must be at most {MOST_SECONDS:,.0f}: "
                "workload.window takes a part of the file, from whose beginning time counts anew"
            )
        return arrival_s

    def _context_tokens(self, called: Sequence[str]) -> Ints:
        """The context that each request may have, by the model that it goes to and its KV."""
        tokens = {}
        for name in dict.fromkeys(called):
            tokens[name] = model_facts(name).max_context_tokens
            blocks, block_tokens = (0, 0) if self._kv_room is None else self._kv_room(name)
            if blocks:
                # The last token of an answer has no KV.
                tokens[name] = min(tokens[name], blocks * block_tokens + 1)
        return np.array([tokens[name] for name in called], np.int64)

    def _why(self, model: str, tokens: int) -> str:
        """What a request of so many tokens exceeds."""
        facts = model_facts(model)
        blocks, block_tokens = (0, 1) if self._kv_room is None else self._kv_room(model)
        if not blocks or tokens <= blocks * block_tokens + 1 or tokens > facts.max_context_tokens:
            limited = "" if self._limit is None else f", of which answers have {self._limit}"
            return f"the context of {facts.max_context_tokens}{limited}"
        needed = -(-(tokens - 1) // block_tokens)
        there = f"{needed} blocks of {block_tokens} tokens, there are {blocks}"
        return f"the KV of a group, of which they take {there}"

    def _fitted(self, rows: pd.DataFrame, called: Sequence[str]) -> tuple[pd.DataFrame, Ints, Ints]:
        """Rows whose lengths a context and the limit hold, which they were, and their limits."""
        prompt = rows[PROMPT_TOKENS].to_numpy(np.int64)
        output = rows[OUTPUT_TOKENS].to_numpy(np.int64)
        context = self._context_tokens(called)
        room = context - (1 if self._limit is None else self._limit)
        if (room < 1).any():
            raise ValueError(
                f"workload.max_output_tokens={self._limit} leaves no prompt in a context of "
                f"{int(context.min())} tokens"
            )
        short = np.minimum(prompt, room)
        limit = context - short if self._limit is None else np.full(len(rows), self._limit)
        long = (prompt > room) | (output > limit)
        if long.any() and self._too_long == "refuse":
            place = int(np.argmax(long))
            why = self._why(called[place], int(prompt[place] + output[place]))
            raise ValueError(
                f"{self._path} row {rows.index[place]}: {prompt[place]} prompt and {output[place]} "
                f"output tokens exceed {why}; "
                "workload.too_long=cut shortens such requests, drop leaves them out"
            )
        if SESSION in rows and long.any():
            long = self._whole_sessions(rows, long)
        kept = np.flatnonzero(~long) if self._too_long == "drop" else np.arange(len(rows))
        if not len(kept):
            raise ValueError(f"no request of {self._path} fits the context and the limit")
        fitted = rows.assign(
            **{PROMPT_TOKENS: short, OUTPUT_TOKENS: np.minimum(output, limit)}
        ).iloc[kept]
        # Of a prompt that is cut the beginning is gone.
        is_cut = (prompt > room)[kept]
        if "hash_ids" in rows:
            fitted["hash_ids"] = [
                [] if cut else ids for cut, ids in zip(is_cut, fitted["hash_ids"], strict=True)
            ]
        if SHARED in rows:
            fitted[SHARED] = fitted[SHARED].where(~is_cut, 0)
        return fitted, kept, limit[kept]

    def _whole_sessions(self, rows: pd.DataFrame, long: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """All turns of the sessions of these. Raises ValueError where turns are to be cut."""
        if self._too_long == "cut":
            raise ValueError(
                f"workload.too_long=cut cannot shorten the turns of a session ({self._path}); "
                "drop leaves out sessions with a turn that is too long"
            )
        found: NDArray[np.bool_] = rows[SESSION].isin(rows[SESSION][long]).to_numpy()
        return found


def _prefixes(rows: pd.DataFrame) -> tuple[Ints, Ints]:
    """What prompts have in common, where the file says so; else no columns."""
    if "hash_ids" in rows:
        prompts, blocks = rows[PROMPT_TOKENS].to_numpy(np.int64), rows["hash_ids"].tolist()
        return prefixes_of_hashes(blocks, rows.attrs[HASH_TOKENS], prompts)
    if SHARED not in rows:
        return _NO_INTS, _NO_INTS
    place = pd.Series(np.arange(len(rows)), rows.index)
    first = place.groupby(rows[SHARES]).transform("first")
    is_later = ((rows[SHARES] != "") & (first < place)).to_numpy()
    shared = rows[SHARED].clip(upper=rows[PROMPT_TOKENS]).to_numpy(np.int64)
    tokens = np.minimum(shared, shared[first])
    return np.where(is_later, first, -1), np.where(is_later, tokens, 0)


def _asked(called: Sequence[str]) -> list[ModelFacts]:
    """Facts of every model that is asked, as they are first."""
    return [model_facts(name) for name in dict.fromkeys(called)]


def _window(given: Sequence[float] | None) -> tuple[float, float]:
    if given is None:
        return 0.0, np.inf
    if len(given) != 2 or not 0 <= given[0] < given[1]:
        raise ValueError(f"workload.window={list(given)} must be two seconds, from and to")
    return float(given[0]), float(given[1])


def _column(rows: pd.DataFrame, name: str) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Its numbers, NaN where there is none."""
    if name not in rows:
        return np.full(len(rows), np.nan)
    return rows[name].to_numpy(np.float64)


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

    The rows of a `session` stand together, in order. A turn's prompt begins with the whole context
    of the turn before it. A delay is a call outside any LLM.
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
    # A later turn begins with the whole context of the one before it.
    prefix, tokens = np.full(int(place[-1]) + 1, -1), np.zeros(int(place[-1]) + 1, np.int64)
    prefix[place[later]] = before
    tokens[place[later]] = (load.prompt_tokens + load.output_tokens)[later - 1]
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
