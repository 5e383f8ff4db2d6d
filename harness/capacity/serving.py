"""Trials served in several processes; nothing of them is kept but the values of the objectives."""

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from harness.capacity.grid import Candidate, Trial, TrialValues
from harness.capacity.objectives import Objective, values_of
from harness.runs.building import cell_of
from harness.runs.cells import Cell, compute
from harness.runs.config import RunConfig, configuration
from harness.runs.failures import Failure
from harness.runs.figures import View
from harness.runs.pool_worker import begin, cores_here
from harness.runs.run_key import Changed
from harness.workloads.recorded import Trace

Choice = tuple[str, str, str, int, int]
"""What a configuration is composed for: GPU, policy, dispatch, limits of tokens and requests."""
Requests = tuple[int, int, int, int]
"""How many are served and left out, and the tokens of their prompts and answers."""


@dataclass(frozen=True, slots=True)
class TracePart:
    """A part of a trace, as values of its workload's keys.

    All trials serve the same `requests`: one that would leave out others is impossible. None: not
    known yet.
    """

    workload: Mapping[str, Any]
    requests: Requests | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """The configurations that trials start from, and what is read off a run.

    `bases` are composed configurations, plain; `machines` are the GPUs of a machine by their file.
    `parts` says of each hour of the trace, and of None, what is taken of it.
    """

    bases: Mapping[Choice, Mapping[str, Any]]
    machines: Mapping[str, int]
    objectives: tuple[Objective, ...]
    parts: Mapping[int | None, TracePart]

    def configuration(self, trial: Trial, *, logs: bool = False) -> RunConfig:
        """Of a trial; `logs`: with a table of iterations. Raises ValueError for what cannot be."""
        one = trial.candidate
        base = self.bases[choice_of(one)]
        hardware, system, workload = (base[it] for it in ("hardware", "system", "workload"))
        placement = system["placement"] | {
            "tensor_parallel": one.tensor_parallel,
            "data_parallel": trial.replicas,
        }
        changed = {
            "hardware": hardware
            | {
                "gpu_count": trial.gpus,
                "nvlink_island": min(self.machines[one.gpu], trial.gpus),
                "expert_parallel": one.expert_parallel,
                "scale_seconds": hardware["scale_seconds"] * trial.slower,
            },
            "system": system | {"placement": placement},
            "workload": workload | {**self.parts[trial.hour].workload, "rate_scale": trial.load},
        }
        if logs:
            changed["record"] = base["record"] | {"iterations": True}
        return configuration({**base, **changed})

    def serve(self, trial: Trial) -> TrialValues:
        """The values of the objectives. What cannot be served says why."""
        try:
            cell = cell_of(self.configuration(trial))
            wanted = self.parts[trial.hour].requests
            if wanted is not None and requests_of(cell) != wanted:
                return TrialValues((), "the KV of a replica does not hold the longest requests")
            return TrialValues(values_of(View(compute(cell)), self.objectives))
        except Changed:  # of the program, not of the trial
            raise
        except Exception as error:  # of a policy, too
            return TrialValues((), Failure.of(error).sentence)


def choice_of(one: Candidate) -> Choice:
    """The composed configuration of a candidate."""
    return one.gpu, one.policy, one.dispatch, one.max_num_batched_tokens, one.max_num_seqs


def requests_of(cell: Cell) -> Requests:
    """What a cell serves of its trace."""
    recipe = cell.workload_factory
    assert isinstance(recipe, Trace)
    load = recipe.load(cell.seed)
    return load.requests, load.left_out, load.prompt_tokens, load.output_tokens


_site: Site | None = None


def _begin(site: Site, parent: int) -> None:
    global _site
    _site = site
    begin(parent)


def _serve_here(trial: Trial) -> TrialValues:
    assert _site is not None
    return _site.serve(trial)


class Servers:
    """Processes that serve trials of a site, each trial once; a context, which ends them.

    One worker serves in this process; None: as many as there are cores.
    """

    def __init__(self, site: Site, workers: int | None = None) -> None:
        count = workers or cores_here()
        self._site, self._pool = site, None
        self._asked: dict[Trial, TrialValues | Future[TrialValues]] = {}
        if count > 1:
            self._pool = ProcessPoolExecutor(
                count,
                multiprocessing.get_context("spawn"),
                initializer=_begin,
                initargs=(site, os.getpid()),
            )

    def __enter__(self) -> "Servers":
        """Nothing runs yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def serve(self, trials: Sequence[Trial]) -> list[TrialValues]:
        """What each trial gives, in this order."""
        for trial in trials:
            if trial not in self._asked:
                served = self._pool.submit(_serve_here, trial) if self._pool else None
                self._asked[trial] = served or self._site.serve(trial)
        found = [self._asked[trial] for trial in trials]
        return [it.result() if isinstance(it, Future) else it for it in found]
