"""A question of capacity: what is asked, checked, and made into candidates and a site."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from harness.capacity.grid import Candidate, Trial
from harness.capacity.hours import HourOfTrace, hours_of
from harness.capacity.objectives import METRICS, Objective, parse_objectives
from harness.capacity.search import Problem
from harness.capacity.serving import Site, TracePart, requests_of
from harness.capacity.settings import candidates_of, composed_bases, splits
from harness.compare import OWN_KEYS as KEYS_OF_COMPARE
from harness.compare import gpus_of, load_of, refuse_own_keys
from harness.config.hydra_words import word
from harness.runs.building import cell_of
from harness.runs.cells import Cell
from harness.runs.config import RunConfig
from harness.runs.published import RESULTS
from harness.workloads.recorded import BUSIEST
from harness.workloads.trace_load import TraceLoad

SCENARIO = "plan"
MOST_REQUESTS = 5_000
"""Of a longer trace so many are taken: about a minute's work of two cores where all policies are
compiled (0.1 ms of a core for a request and a trial, some 250 trials)."""
MOST_GPUS = 64
PARALLEL = " (--tensor-parallel, --replicas)"
OWN_KEYS = {
    **{key: how for key, how in KEYS_OF_COMPARE.items() if key != "policy"},
    **{
        "slo": " (--slo)",
        "system": " (--dispatch)",
        "hardware.expert_parallel": " (--expert-parallel)",
    },
    **{"system.placement": PARALLEL, "hardware.gpu_count": PARALLEL, "compare": ""},
    **{"workload.window": " (--hours)", "workload.from_first": ""},
    **{"workload.requests_from": " (--requests)", "workload.rate_scale": " (--scale)"},
}
"""Keys that no further word may have, and what says their values."""
KINDS: Mapping[str, Callable[[str], object]] = {
    **{"prices": float, "loads": float, "tensor_parallel": int},
    **{"max_num_batched_tokens": int, "max_num_seqs": int},
}
"""Fields of a question that are numbers."""
OPTIONS = {"prices": "price", "loads": "scale"}
"""Options of a command line that are called otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityQuestion:
    """What is asked; an empty sequence: all that the scenario has, or that a machine allows.

    `slo` is the text of `parse_objectives`, `prices` are dollars for an hour of a GPU of each of
    `gpus`, `loads` multiples of the trace's rate. `more` are further words of `harness/run.py`.
    """

    trace: Path
    model: str
    slo: str
    gpus: Sequence[str] = ("h100_80g_8",)
    prices: Sequence[float] = ()
    most_gpus: int = MOST_GPUS
    policies: Sequence[str] = ()
    dispatch: Sequence[str] = ()
    tensor_parallel: Sequence[int] = ()
    expert_parallel: Sequence[bool] = (False, True)
    max_num_batched_tokens: Sequence[int] = ()
    max_num_seqs: Sequence[int] = ()
    replicas: int | None = None
    requests: int | None = None
    loads: Sequence[float] = ()
    hours: bool = False
    more: Sequence[str] = ()
    results: Path = RESULTS

    @property
    def axes(self) -> dict[str, Sequence[object]]:
        """Values on the scenario's axes, where they are given."""
        axes: dict[str, Sequence[object]] = {
            "policy": self.policies,
            "system/dispatch": self.dispatch,
            "engine.max_num_batched_tokens": self.max_num_batched_tokens,
            "engine.max_num_seqs": self.max_num_seqs,
        }
        return {name: [*values] for name, values in axes.items() if values}

    def words(self, gpu: str, objectives: Sequence[Objective]) -> list[str]:
        """The configuration, but for what differs from trial to trial."""
        return [
            *(f"+scenario={SCENARIO}", f"hardware={gpu}"),
            word("workload.file", str(self.trace.absolute())),
            word("workload.model", self.model),
            "workload.too_long=drop",
            *slo_words(objectives),
            *(word("results", str(self.results.absolute())), "tracking=none", *self.more),
        ]

    def check(self) -> None:
        """Raise ValueError for a trace that is not there, prices that do not fit, and own keys."""
        if not self.trace.is_file():
            raise ValueError(f"{self.trace} is no file")
        refuse_own_keys("plan", self.more, OWN_KEYS)
        if len(self.prices) != len(self.gpus) and (self.prices or len(self.gpus) > 1):
            raise ValueError(
                f"--price has {', '.join(map(str, self.prices)) or 'none'}, it needs one number "
                f"for each kind of GPU: {', '.join(self.gpus)}"
            )
        for name, numbers in (("--price", self.prices), ("--scale", self.loads)):
            if any(not 0 < number < inf for number in numbers):
                raise ValueError(f"{name}: {', '.join(map(str, numbers))} are not all above 0")
        self._check_limits()

    def _check_limits(self) -> None:
        for option, limits in {
            "max-num-seqs": self.max_num_seqs,
            "max-num-batched-tokens": self.max_num_batched_tokens,
        }.items():
            if any(limit < 1 for limit in limits):
                raise ValueError(f"--{option}: {', '.join(map(str, limits))} are not all above 0")
        for gpu in self.gpus:
            for degree in self.tensor_parallel:
                if not 1 <= degree <= gpus_of(gpu):
                    machine = f"{gpu} has {gpus_of(gpu)} GPUs"
                    raise ValueError(f"--tensor-parallel {degree}: a machine of {machine}")


def slo_words(objectives: Sequence[Objective]) -> list[str]:
    """Words for what a request is held against in the run that is kept: the highest limits."""
    limits: dict[str, float] = {}
    for one in objectives:
        limits[one.metric] = max(one.limit_s, limits.get(one.metric, 0.0))
    return [word(f"slo.{metric}_s", limits.get(metric)) for metric in METRICS]


def question_of(texts: Mapping[str, str], **plain: Any) -> CapacityQuestion:
    """The question of a command line: `texts` have values with commas between them, by field.

    Raises ValueError for what is no number.
    """
    lists: dict[str, Any] = {name: _listed(name, text) for name, text in texts.items()}
    return CapacityQuestion(**{name: it for name, it in lists.items() if it}, **plain)


def _listed(name: str, text: str) -> Sequence[object]:
    each = [it.strip() for it in text.split(",") if it.strip()]
    kind = KINDS.get(name)
    try:
        return [kind(it) for it in each] if kind else each
    except ValueError:
        option = OPTIONS.get(name, name.replace("_", "-"))
        raise ValueError(f"--{option} {text}: it takes numbers with commas between them") from None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is searched.

    `first` is a cell that serves the `load`, requests of the `there` of the trace. `hours` are
    those that are served apart, by number, with `rates` of requests a second; `few` have too few
    requests for the objectives.
    """

    problem: Problem
    candidates: Sequence[Candidate]
    site: Site
    first: Cell
    load: TraceLoad
    there: int
    hours: Mapping[int, HourOfTrace] = field(default_factory=dict)
    rates: Mapping[int, float] = field(default_factory=dict)
    few: Sequence[HourOfTrace] = ()

    @property
    def model(self) -> str:
        """The name of the model in costs."""
        return self.first.workload_factory.models[0]

    @property
    def workers(self) -> int | None:
        """Processes that serve trials; None: one for each core."""
        workers = next(iter(self.site.bases.values()))["workers"]
        return workers if isinstance(workers, int) else None


def prepared(asked: CapacityQuestion) -> Prepared:
    """Candidates and site of a question. Raises ValueError, in one sentence, for bad input."""
    objectives = parse_objectives(asked.slo)
    asked.check()
    bases: dict[Any, RunConfig] = {}
    held, machines = {}, {gpu: gpus_of(gpu) for gpu in asked.gpus}
    for gpu, machine in machines.items():
        composed = composed_bases(gpu, asked.words(gpu, objectives), asked.axes)
        degrees = [2**it for it in range(machine.bit_length()) if 2**it <= asked.most_gpus]
        one = next(iter(composed.values()))
        held[gpu] = splits(
            one, asked.model, asked.tensor_parallel or degrees, asked.expert_parallel
        )
        bases |= composed
    candidates = candidates_of([*bases], held)
    site = Site({it: one.model_dump() for it, one in bases.items()}, machines, objectives, {})
    prices = dict(zip(asked.gpus, asked.prices or [1.0], strict=True))
    is_priced, least = bool(asked.prices), asked.replicas or 1
    problem = Problem(objectives, asked.most_gpus, prices, asked.replicas, is_priced)
    if all(problem.most_replicas(one) < least for one in candidates):
        fewest = min(least * one.tensor_parallel for one in candidates)
        raise ValueError(f"--most-gpus is {asked.most_gpus}, the fewest that serve are {fewest}")
    return _with_requests(asked, problem, candidates, site)


def _with_requests(
    asked: CapacityQuestion, problem: Problem, candidates: Sequence[Candidate], site: Site
) -> Prepared:
    """The requests of the trace, and of its hours, which all candidates serve."""
    roomy = _roomy(site, candidates)
    there = load_of(_cell(site, TracePart({}), roomy)).requests
    if asked.requests and asked.requests > there:
        raise ValueError(f"{asked.trace} has {there:,} requests, {asked.requests:,} were asked for")
    most = asked.requests or MOST_REQUESTS
    workload = next(iter(site.bases.values()))["workload"]
    whole = _part({}, there, most, is_drawn=workload["arrivals"] is not None)
    first = _cell(site, whole, roomy)
    load = load_of(first)
    rarest = max(problem.objectives, key=lambda it: it.least_requests)
    if load.requests < rarest.least_requests:
        needed = f"{rarest.name} needs {rarest.least_requests:,} requests"
        raise ValueError(f"{needed}, {load.requests:,} are served")
    parts: dict[int | None, TracePart] = {None: replace(whole, requests=requests_of(first))}
    ready = Prepared(problem, candidates, replace(site, parts=parts), first, load, there)
    return _with_hours(ready, roomy, most, rarest.least_requests) if asked.hours else ready


def _with_hours(ready: Prepared, roomy: Trial, most: int, least: int) -> Prepared:
    """The same with the hours of the trace, of which at most so many requests are served."""
    site, hours, rates, few = ready.site, {}, {}, []
    parts: dict[int | None, TracePart] = {**site.parts}
    for hour in hours_of(next(iter(site.bases.values()))["workload"]):
        window = {"window": [*hour.window], "from_first": hour.is_calendar}
        there = _fitting(site, window, roomy)
        if there < max(least, 2):
            few.append(replace(hour, requests=there))
            continue
        part = _part(window, there, most)
        cell = _cell(site, part, roomy)
        parts[hour.number] = replace(part, requests=requests_of(cell))
        hours[hour.number], rates[hour.number] = hour, load_of(cell).requests_per_s or 0.0
    return replace(ready, site=replace(site, parts=parts), hours=hours, rates=rates, few=few)


def _fitting(site: Site, window: Mapping[str, Any], roomy: Trial) -> int:
    """Requests of an hour that can be served."""
    try:
        return load_of(_cell(site, TracePart(window), roomy)).requests
    except ValueError:  # none fits
        return 0


def _part(
    workload: Mapping[str, Any], there: int, most: int, *, is_drawn: bool = False
) -> TracePart:
    """All of a part of a trace, or so many requests around its busiest minute.

    Where arrivals are drawn the first are taken.
    """
    if there <= most:
        return TracePart(workload)
    return TracePart(
        {**workload, "requests": most, "requests_from": "first" if is_drawn else BUSIEST}
    )


def _cell(site: Site, part: TracePart, trial: Trial) -> Cell:
    return cell_of(replace(site, parts={trial.hour: part}).configuration(trial))


def _roomy(site: Site, candidates: Sequence[Candidate]) -> Trial:
    """One replica of the candidate that leaves out the fewest requests of the trace."""
    most: dict[str, Candidate] = {}
    for one in sorted(candidates, key=_kv_key):
        most[one.gpu] = one
    trials = [Trial(one, 1) for one in most.values()]
    return min(trials, key=lambda it: requests_of(_cell(site, TracePart({}), it))[1])


def _kv_key(one: Candidate) -> tuple[int, int, int]:
    """The larger, the more KV a replica has."""
    return one.tensor_parallel, -one.max_num_batched_tokens, -one.max_num_seqs
