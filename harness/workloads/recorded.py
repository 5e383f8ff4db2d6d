"""Requests as somebody recorded them: your own load, or a published trace as it is."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from harness import inputs
from harness.costs.model_config import is_config
from harness.costs.model_facts import ModelFacts, model_facts
from harness.interface.entities import Service, ServiceId
from harness.ranges_of_units import MOST_SECONDS
from harness.workloads.prefixes import prefixes_of_hashes
from harness.workloads.prompts import WORDS
from harness.workloads.settings import require_positive, require_start
from harness.workloads.trace_file import (
    ARRIVAL,
    HASH_TOKENS,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    read_trace,
)
from harness.workloads.workload import Floats, Ints, Workload

TOO_LONG = ("refuse", "cut", "drop")


class Trace:
    """The requests of a file, the same for every seed.

    `trace_file` says of which columns, or `columns` does (`trace_file.format_by`).

    A request goes to the `model`, or where that is None to the service its row names: a model's
    name, or a key of `services`, whose value is one. What a policy may know of an answer's length
    is `max_output_tokens`, the same for all, or where that is None whatever the context leaves
    beside the prompt. A `deadline_s` is on the clock of the arrivals.

    Of the file, the `requests` first (None: all) whose arrival lies in `window`, [from, to) in
    seconds of its clock (None: from 0 on), come at `rate_scale` times its rate; from the window's
    beginning time counts anew, and a deadline stays as far from its arrival.
    """

    def __init__(
        self,
        *,
        file: str,
        columns: Mapping[str, str] | None,
        model: str | None,
        services: Mapping[str, str],
        requests: int | None,
        window: Sequence[float] | None,
        rate_scale: float,
        max_output_tokens: int | None,
        too_long: str,
        starts_s: float,
    ) -> None:
        """`too_long` says what becomes of prompts and answers that exceed context or limit.

        refuse, cut (a prompt keeps its last tokens, an answer its first) or drop the request.
        Raises ValueError for a file that is not there or damaged, unknown models and a window
        without requests.
        """
        self._starts_s = require_start(starts_s)
        require_positive("workload", rate_scale=rate_scale)
        for name, value in (("requests", requests), ("max_output_tokens", max_output_tokens)):
            if value is not None:
                require_positive("workload", **{name: value})
        if too_long not in TOO_LONG:
            raise ValueError(f"workload.too_long={too_long} is not one of {', '.join(TOO_LONG)}")
        # What is read must not depend on the folder that a worker process is in.
        self._path = Path(file).resolve()
        if not self._path.is_file():
            raise ValueError(f"workload.file={file} is no file")
        self._window, self._scale = _window(window), rate_scale
        self._requests, self._limit, self._too_long = requests, max_output_tokens, too_long
        self._model, self._services, self._columns = model, dict(services), columns
        self.files: Mapping[str, str] = inputs.digests([WORDS, self._path])
        rows = self._rows()
        called = self._called(rows)
        self.models = tuple(facts.name for facts in _asked(called))
        # What cannot be served is refused before anything runs.
        self._arrivals_s(self._fitted(rows, _context_tokens(called))[0])

    def build(self, seed: int) -> Workload:
        """The same workload for every seed."""
        rows = self._rows()
        named = self._called(rows)
        asked = _asked(named)
        number = {facts.name: place for place, facts in enumerate(asked)}
        called = np.array([number[name] for name in named], np.int64)
        rows, kept, limit = self._fitted(rows, _context_tokens(named))
        arrival_s = self._arrivals_s(rows)
        slack_s = _column(rows, "deadline_s") - rows[ARRIVAL].to_numpy()
        tenants = tuple(dict.fromkeys(rows["tenant"].astype(str))) if "tenant" in rows else ("",)
        prefix, prefix_tokens = _prefixes(rows)
        apps = rows["app"] if "app" in rows else pd.Series(np.arange(len(rows)))
        return Workload(
            services=tuple(
                Service(ServiceId(it.name), it.kv_bytes_per_token, it.max_context_tokens)
                for it in asked
            ),
            service=called[kept],
            arrival_s=arrival_s,
            prompt_tokens=rows[PROMPT_TOKENS].to_numpy(np.int64),
            output_tokens=rows[OUTPUT_TOKENS].to_numpy(np.int64),
            max_output_tokens=limit,
            # Numbered as they first come: a number says nothing of later requests.
            app=pd.factorize(apps)[0].astype(np.int64),
            deadline_s=arrival_s + slack_s,
            tenants=tenants,
            tenant=(
                pd.factorize(rows["tenant"].astype(str))[0].astype(np.int64)
                if "tenant" in rows
                else np.zeros(len(rows), np.int64)
            ),
            datasets=self.files,
            texts=tuple(rows["prompt"]) if "prompt" in rows else (),
            predicted_tokens=_column(rows, "predicted_tokens"),
            prefix=prefix,
            prefix_tokens=prefix_tokens,
        ).later(self._starts_s)

    def _rows(self) -> pd.DataFrame:
        """Those of the file that are asked for."""
        rows = read_trace(self._path, self._columns)
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

    def _fitted(self, rows: pd.DataFrame, context: Ints) -> tuple[pd.DataFrame, Ints, Ints]:
        """Rows whose lengths a context and the limit hold, which they were, and their limits."""
        prompt = rows[PROMPT_TOKENS].to_numpy(np.int64)
        output = rows[OUTPUT_TOKENS].to_numpy(np.int64)
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
            limited = "" if self._limit is None else f", of which answers have {self._limit}"
            raise ValueError(
                f"{self._path} row {rows.index[place]}: {prompt[place]} prompt and {output[place]} "
                f"output tokens exceed the context of {context[place]}{limited}; "
                "workload.too_long=cut shortens such requests, drop leaves them out"
            )
        kept = np.flatnonzero(~long) if self._too_long == "drop" else np.arange(len(rows))
        if not len(kept):
            raise ValueError(f"no request of {self._path} fits the context and the limit")
        fitted = rows.assign(
            **{PROMPT_TOKENS: short, OUTPUT_TOKENS: np.minimum(output, limit)}
        ).iloc[kept]
        if "hash_ids" in rows:
            # Of a prompt that is cut the beginning is gone.
            is_cut = (prompt > room)[kept]
            fitted["hash_ids"] = [
                [] if cut else ids for cut, ids in zip(is_cut, fitted["hash_ids"], strict=True)
            ]
        return fitted, kept, limit[kept]


def _prefixes(rows: pd.DataFrame) -> tuple[Ints, Ints]:
    """What prompts have in common, where their blocks have hashes; else no columns."""
    if "hash_ids" not in rows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    prompts = rows[PROMPT_TOKENS].to_numpy(np.int64)
    return prefixes_of_hashes(rows["hash_ids"].tolist(), HASH_TOKENS, prompts)


def _asked(called: Sequence[str]) -> list[ModelFacts]:
    """Facts of every model that is asked, as they are first."""
    return [model_facts(name) for name in dict.fromkeys(called)]


def _context_tokens(called: Sequence[str]) -> Ints:
    """The context that each request has, by the model that it goes to."""
    tokens = {name: model_facts(name).max_context_tokens for name in dict.fromkeys(called)}
    return np.array([tokens[name] for name in called], np.int64)


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
