"""Requests as somebody recorded them: your own load, or a published trace as it is."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from harness.config import inputs
from harness.config.ranges_of_units import MOST_SECONDS
from harness.costs.model_facts import ModelFacts, model_facts
from harness.costs.model_names import is_config
from harness.workloads.arrivals import Arrivals, ClosedLoop, think_s_of
from harness.workloads.prompts import WORDS
from harness.workloads.settings import require_positive, require_start
from harness.workloads.trace_columns import (
    ARRIVAL,
    HASHES,
    KEPT,
    NOTES,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    SESSION,
    SHARED,
)
from harness.workloads.trace_file import (
    IS_CALENDAR,
    LEFT_OUT,
    NO_OUTPUT,
    TIMES,
    declared_prefixes,
    read_trace,
)
from harness.workloads.trace_load import TraceLoad, arrivals_said, busiest_window
from harness.workloads.trace_sessions import accumulated, in_sessions, whole_sessions
from harness.workloads.trace_values import in_digits
from harness.workloads.workload import Floats, Ints, Workload, services_of

KvBlocksOf = Callable[[str], tuple[int, int]]
_NO_INTS = np.zeros(0, np.int64)
BUSIEST = "busiest"
_CHOICES = {
    "too_long": ("refuse", "cut", "drop"),
    "no_output": NO_OUTPUT,
    "requests_from": ("first", BUSIEST),
}


@dataclass(frozen=True, slots=True)
class _Taken:
    """The requests that are served: their rows, models and limits, and what was left out.

    `begin_s` is what the run's clock counts from, on that of the file.
    """

    rows: pd.DataFrame
    called: Sequence[str]
    limit: Ints
    begin_s: float
    left_out: int
    notes: tuple[str, ...]


class Trace:
    """The requests of a file, the same for every seed where `arrivals` is None.

    `trace_formats` says of which columns, or `columns` does (`format_by` there). `arrivals` draws
    times in place of the file's, or where it has none; of sessions those of their first turns.

    A request goes to the `model`, or where that is None to the service its row names: a model's
    name, or a key of `services`, whose value is one. What a policy may know of an answer's length
    is `max_output_tokens`, the same for all, or where that is None whatever the context leaves
    beside the prompt. A `deadline_s` is on the clock of the arrivals.

    Of the file come the requests whose arrival lies in `window`, [from, to) in seconds of its clock
    (None: all), at `rate_scale` times its rate, which leaves delays of sessions as they are. The
    run's time counts from the window's beginning; without one from 0 of the file's clock, with
    `from_first` (the clock of the window, too) and of times since 1970 from the first request. A
    deadline stays as far from its arrival.

    `too_long` says what becomes of prompts and answers that exceed context or limit: refuse, cut (a
    prompt keeps its last tokens, an answer its first) or drop the request. Of a context counts what
    the KV of a group has room for, `kv_room`: blocks by model, and tokens of a block. `no_output`
    says the same of requests without an answer, which may be refused or dropped.

    Of what is left come `requests` (None: all), sessions whole: the first, or with `requests_from`
    busiest consecutive ones with the busiest minute, from the first of which time counts.
    """

    def __init__(
        self,
        *,
        file: str,
        columns: Mapping[str, str | int] | None,
        arrivals: Arrivals | None,
        model: str | None,
        services: Mapping[str, str],
        requests: int | None,
        window: Sequence[float] | None,
        rate_scale: float,
        max_output_tokens: int | None,
        too_long: str,
        no_output: str,
        from_first: bool,
        requests_from: str,
        starts_s: float,
        kv_room: KvBlocksOf | None = None,
    ) -> None:
        self._starts_s, self._kv_room = require_start(starts_s), kv_room
        numbers = {"requests": requests, "max_output_tokens": max_output_tokens}
        given = {name: value for name, value in numbers.items() if value is not None}
        require_positive("workload", rate_scale=rate_scale, **given)
        _refuse_unknown(too_long=too_long, no_output=no_output, requests_from=requests_from)
        self._path = _file(file)
        self._window, self._scale = _window(window), rate_scale
        self._requests, self._limit, self._too_long = requests, max_output_tokens, too_long
        self._no_output, self._from_first = no_output, from_first
        self._is_busiest = requests_from == BUSIEST
        self._model, self._services, self._columns = model, dict(services), columns
        self._arrivals = arrivals
        self._refuse_together(has_window=window is not None)
        drawn = {} if arrivals is None else arrivals.files
        self.files: Mapping[str, str] = {**inputs.digests([WORDS, self._path]), **drawn}
        # What cannot be served is refused before anything runs.
        self._taken = self._take()
        self._refuse_clocks(self._taken.rows)
        self.models = tuple(dict.fromkeys(self._taken.called))
        self._arrivals_s()

    def _refuse_together(self, *, has_window: bool) -> None:
        """Raise ValueError for settings that mean nothing together."""
        if self._is_busiest and self._requests is None:
            raise ValueError("workload.requests_from=busiest needs workload.requests, their number")
        if self._arrivals is None:
            return
        for is_set, name in (
            (has_window, "window"),
            (self._from_first, "from_first"),
            (self._is_busiest, "requests_from"),
        ):
            if is_set:
                raise ValueError(f"workload.{name} is of the file's times; arrivals replace them")

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
        return bool({HASHES, SHARED, SESSION} & set(self._taken.rows))

    def load(self, seed: int = 0) -> TraceLoad:
        """The load in numbers, of the requests that are served; times may be drawn by the seed."""
        rows = self._taken.rows
        arrival_s = self._come_s(seed) * self._scale
        shared = rows[KEPT] if SESSION in rows else declared_prefixes(rows)[1]
        return TraceLoad(
            requests=len(rows),
            left_out=self._taken.left_out,
            sessions=rows[SESSION].nunique() if SESSION in rows else None,
            span_s=float(np.ptp(arrival_s)),
            prompt_tokens=int(rows[PROMPT_TOKENS].sum()),
            shared_tokens=int(shared.sum()),
            output_tokens=int(rows[OUTPUT_TOKENS].sum()),
        )

    def build(self, seed: int) -> Workload:
        """The same workload for every seed, but for `arrivals` that are drawn."""
        rows, called = self._taken.rows, self._taken.called
        asked = [model_facts(name) for name in dict.fromkeys(called)]
        number = {facts.name: place for place, facts in enumerate(asked)}
        slack_s = _column(rows, "deadline_s") - rows[ARRIVAL].to_numpy()
        arrival_s = self._come_s(seed)
        tenant = rows["tenant"].astype(str) if "tenant" in rows else pd.Series("", rows.index)
        prefix, prefix_tokens = declared_prefixes(rows)
        apps = rows["app"] if "app" in rows else pd.Series(np.arange(len(rows)))
        load = Workload(
            services=services_of(asked),
            service=np.array([number[name] for name in called], np.int64),
            arrival_s=arrival_s,
            prompt_tokens=rows[PROMPT_TOKENS].to_numpy(np.int64),
            output_tokens=rows[OUTPUT_TOKENS].to_numpy(np.int64),
            max_output_tokens=self._taken.limit,
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
            notes=self._notes(),
            think_s=think_s_of(self._arrivals),
        )
        load = in_sessions(load, rows, seed) if SESSION in rows else load
        return load.later(self._starts_s)

    def _come_s(self, seed: int) -> Floats:
        """Arrivals, drawn or of the file; a session's turns have that of the first."""
        if self._arrivals is None:
            return self._arrivals_s()
        rows, rng = self._taken.rows, np.random.default_rng([seed, 7])
        if SESSION not in rows:
            return self._arrivals.draw(len(rows), rng) / self._scale
        session = pd.factorize(rows[SESSION])[0]
        drawn_s: Floats = self._arrivals.draw(int(session.max()) + 1, rng)[session] / self._scale
        return drawn_s

    def _notes(self) -> tuple[str, ...]:
        """What the reader of results should know of the requests."""
        name, rows = self._path.name, self._taken.rows
        said = [*rows.attrs[NOTES]]
        if self._arrivals is None:
            own = ~rows[SESSION].duplicated() if SESSION in rows else slice(None)
            arrival_s, begin_s = rows[ARRIVAL][own].to_numpy(np.float64), self._taken.begin_s
            unit, turns = rows.attrs[TIMES], SESSION in rows
            said += arrivals_said(unit, arrival_s, len(rows), begin_s, in_sessions=turns)
        else:
            what = "sessions" if SESSION in rows else "requests"
            said.append(f"{what} come by {type(self._arrivals).__name__}")
        if self._scale != 1:
            said.append(f"served at {in_digits(float(self._scale))} times its rate")
        said += self._taken.notes
        if not self.shares_prefixes:
            said.append("does not say which prompts begin alike: no reuse was assumed")
        return tuple(f"{name}: {note}" for note in said)

    def _take(self) -> _Taken:
        """The requests that are served, after what is left out."""
        rows, begin_s = self._inside()
        there, left_out = len(rows), rows.attrs[LEFT_OUT]
        notes: list[str] = []
        if self._too_long == "drop":
            rows, notes = self._without_long(rows)
            left_out += there - len(rows)
        rows, more = self._so_many(rows, there)
        if self._is_busiest:
            begin_s = float(rows[ARRIVAL].iloc[0])
        called = self._called(rows)
        fitted, limit = self._fitted(rows, called)
        return _Taken(fitted, called, limit, begin_s, left_out, (*notes, *more))

    def _inside(self) -> tuple[pd.DataFrame, float]:
        """Rows of the file in the window, and the second of its clock that the run begins at."""
        rows = read_trace(self._path, self._columns, self._no_output)
        if self._arrivals is None and rows.attrs[TIMES] is None:
            raise ValueError(
                f"{self._path} does not say when its requests come: say "
                "workload/arrivals=gamma workload.arrivals.rate_per_s=RATE (or "
                "workload/arrivals=at_once)"
            )
        if isinstance(self._arrivals, ClosedLoop) and SESSION in rows:
            raise ValueError(
                f"{self._path} has sessions, whose turns wait for certain answers: leave out "
                "workload/arrivals=closed_loop"
            )
        rows = accumulated(rows) if SESSION in rows else rows
        first_s, last_s = float(rows[ARRIVAL].min()), float(rows[ARRIVAL].max())
        is_whole = self._window == (0.0, np.inf)
        from_first = self._from_first or (rows.attrs[IS_CALENDAR] and is_whole)
        origin_s = first_s if from_first else 0.0
        begin_s, end_s = (origin_s + end for end in self._window)
        inside = rows[(rows[ARRIVAL] >= begin_s) & (rows[ARRIVAL] < end_s)]
        if inside.empty:
            at = " to ".join(in_digits(time_s - origin_s) for time_s in (first_s, last_s))
            raise ValueError(
                f"workload.window=[{', '.join(map(in_digits, self._window))}] has no request of "
                f"{self._path}, which has them at {at} s"
            )
        return inside, begin_s

    def _so_many(self, rows: pd.DataFrame, there: int) -> tuple[pd.DataFrame, list[str]]:
        """The `requests` of these rows, sessions whole, and notes of which they are."""
        count = self._requests
        if count is None:
            return rows, []
        if len(rows) < count:
            left = f" after {there - len(rows)} too long ones are left out" * (len(rows) < there)
            raise ValueError(
                f"{self._path} has {len(rows)} requests{left}, workload.requests={count} were "
                "asked for"
            )
        first, last = 0, count
        if self._is_busiest:
            first, last = busiest_window(rows[ARRIVAL].to_numpy(np.float64), count)
        notes = []
        if SESSION in rows:
            first, last = whole_sessions(rows[SESSION], first, last)
            if first >= last:
                raise ValueError(
                    f"{self._path}: no whole session is among workload.requests={count} requests"
                )
            if last - first < count:
                notes.append(f"{last - first} requests are whole sessions, of {count} asked for")
        if self._is_busiest:
            which = f"requests {first + 1:,} to {last:,} of {len(rows):,}"
            notes.append(f"{which}, which contain the busiest minute")
        return rows.iloc[first:last], notes

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

    def _arrivals_s(self) -> Floats:
        """When they come, in seconds of the run. Raises ValueError for what none waits for."""
        rows = self._taken.rows
        arrival_s: Floats = (rows[ARRIVAL].to_numpy() - self._taken.begin_s) / self._scale
        if arrival_s[-1] > MOST_SECONDS:
            row = int(np.argmax(arrival_s > MOST_SECONDS))
            at_s, into_s = (in_digits(float(it[row])) for it in (rows[ARRIVAL].array, arrival_s))
            raise ValueError(
                f"{self._path} row {rows.index[row]}: {ARRIVAL} {at_s} is {into_s} s into the run, "
                f"it must be at most {MOST_SECONDS:,.0f}: workload.from_first=true counts from the "
                "first request"
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

    def _why(self, model: str, tokens: int, *, is_one: bool = True) -> str:
        """The limit that a request of so many tokens exceeds, of one with what it takes."""
        facts = model_facts(model)
        blocks, block_tokens = (0, 1) if self._kv_room is None else self._kv_room(model)
        if not blocks or tokens <= blocks * block_tokens + 1 or tokens > facts.max_context_tokens:
            limited = "" if self._limit is None else f", of which answers have {self._limit}"
            return f"the context of {facts.max_context_tokens}{limited}"
        if not is_one:
            return f"the KV of a group, {blocks} blocks of {block_tokens} tokens"
        there = f"{-(-(tokens - 1) // block_tokens)} blocks of {block_tokens} tokens"
        return f"the KV of a group, of which they take {there}, there are {blocks}"

    def _fits(self, rows: pd.DataFrame, called: Sequence[str]) -> tuple[Ints, Ints, Ints]:
        """Room for each prompt, what is left of it, and the limit of its answer."""
        prompt = rows[PROMPT_TOKENS].to_numpy(np.int64)
        context = self._context_tokens(called)
        room = context - (1 if self._limit is None else self._limit)
        if (room < 1).any():
            raise ValueError(
                f"workload.max_output_tokens={self._limit} leaves no prompt in a context of "
                f"{int(context.min())} tokens"
            )
        short = np.minimum(prompt, room)
        free = context - short
        return room, short, free if self._limit is None else np.full(len(rows), self._limit)

    def _without_long(self, rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
        """Rows that context and limit hold, sessions whole, and a note of the others."""
        called = self._called(rows)
        room, _, limit = self._fits(rows, called)
        prompt, output = (rows[name].to_numpy(np.int64) for name in (PROMPT_TOKENS, OUTPUT_TOKENS))
        long = (prompt > room) | (output > limit)
        if not long.any():
            return rows, []
        both = (prompt + output).tolist()
        why = Counter(
            self._why(called[place], both[place], is_one=False) for place in np.flatnonzero(long)
        )
        reasons = "; ".join(f"{count} exceed {limit}" for limit, count in why.items())
        if SESSION in rows:
            long = rows[SESSION].isin(rows[SESSION][long]).to_numpy()
            reasons += "; sessions are left out whole"
        if long.all():
            raise ValueError(
                f"no request of {self._path} fits the context and the limit: {reasons}"
            )
        left = rows.index[long]
        first = ", ".join(map(str, left[:5])) + (", ..." if len(left) > 5 else "")
        said = f"{len(left)} of {len(rows)} requests are too long and left out, rows {first}: "
        return rows[~long], [said + reasons]

    def _fitted(self, rows: pd.DataFrame, called: Sequence[str]) -> tuple[pd.DataFrame, Ints]:
        """Rows whose lengths a context and the limit hold, and their limits."""
        room, short, limit = self._fits(rows, called)
        prompt, output = (rows[name].to_numpy(np.int64) for name in (PROMPT_TOKENS, OUTPUT_TOKENS))
        long = (prompt > room) | (output > limit)
        if long.any() and (self._too_long == "refuse" or SESSION in rows):
            place = int(np.argmax(long))
            tokens = int(prompt[place] + output[place])
            only = "" if SESSION in rows else "cut shortens such requests, "
            raise ValueError(
                f"{self._path} row {rows.index[place]}: {prompt[place]} prompt and {output[place]} "
                f"output tokens exceed {self._why(called[place], tokens)}; "
                f"workload.too_long={only}drop leaves them out"
            )
        fitted = rows.assign(**{PROMPT_TOKENS: short, OUTPUT_TOKENS: np.minimum(output, limit)})
        # Of a prompt that is cut the beginning is gone.
        is_cut = prompt > room
        if HASHES in rows:
            fitted[HASHES] = [
                [] if cut else ids for cut, ids in zip(is_cut, fitted[HASHES], strict=True)
            ]
        if SHARED in rows:
            fitted[SHARED] = fitted[SHARED].where(~is_cut, 0)
        return fitted, limit


def _refuse_unknown(**chosen: str) -> None:
    """Raise ValueError for a word that a setting cannot have."""
    for name, value in chosen.items():
        if value not in _CHOICES[name]:
            allowed = ", ".join(_CHOICES[name])
            raise ValueError(f"workload.{name}={value} is not one of {allowed}")


def _file(given: str) -> Path:
    """The file, wherever a worker process is. Raises ValueError for what is none."""
    path = Path(given).resolve()
    if path.is_dir():
        raise ValueError(f"workload.file={given} is a folder; give one file of it")
    if not path.is_file():
        raise ValueError(f"workload.file={given} is no file")
    return path


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
