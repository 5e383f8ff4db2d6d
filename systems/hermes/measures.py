"""Figures of Hermes' claims that no run's summary holds."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache

import pandas as pd

from harness.runs.cells import Run

BACKLOGGED = 50
"""Calls that wait while an engine counts as fully loaded."""
SCALES = (1.2, 1.5, 2.0)
"""Section 5.2: a deadline lies one of these times an execution time after arrival."""

BLOCK_TOKENS = 32
"""Tokens of a block of KV, of its program's script for caches."""
FOUND, NOT_USED, OUTSIDE = "warm", "unused", "outside"
"""What a run's folder calls a use that finds what it reads, a load without a use, and the service
of calls outside any LLM."""
FEW_ADAPTERS = 10
"""Adapters in the host memory that its program compares the others with."""


def policy_ms(run: Run) -> float:
    """Wall-clock milliseconds of one decision of the scheduling policy, on average."""
    return 1e3 * float(run.facts["decisions"]["schedule"]["s_mean"])


@cache
def met_at(scale: float) -> Callable[[Run], float]:
    """The share of deadlines of a scale that are met.

    Deadlines of one kind of application differ by their scale alone, so that its shortest has the
    smallest; kinds that do not have all scales are left out.
    """

    def share(run: Run) -> float:
        apps = run.columns("apps", "kind", "arrived_s", "finished_s", "deadline_s")
        within_s = (apps["deadline_s"] - apps["arrived_s"]).round(6)
        by_kind = within_s.groupby(apps["kind"].astype(str))
        has_all = by_kind.transform("nunique") == len(SCALES)
        is_scale = (within_s / by_kind.transform("min") * SCALES[0] - scale).abs() < 1e-3
        met = (apps["finished_s"] <= apps["deadline_s"])[has_all & is_scale]
        return float(met.mean())

    return share


def blocks_found_share(run: Run) -> float:
    """Blocks of prompts that are found in memory, over all that are asked for, first prompts too.

    Only full blocks can be found and are counted. The engine keeps no contexts on the GPU between
    calls, as the program does: what it finds there is in host memory here. NaN without contexts.
    """
    uses = run.tables["backends"]
    requests = run.columns("requests", "prompt_tokens")
    found = uses["tokens"][uses["backend"] == "context"]
    asked = (requests["prompt_tokens"] // BLOCK_TOKENS).sum()
    return float((found // BLOCK_TOKENS).sum() / asked) if len(found) and asked else float("nan")


def misses_avoided(run: Run) -> float:
    """The share of an LRU's misses that are avoided, if its host memory holds `FEW_ADAPTERS`.

    That LRU has the uses of the run, in the order in which calls began; each use of an adapter that
    is not in host memory yet is a miss. NaN without adapters.
    """
    uses = run.tables["backends"]
    requests = run.columns("requests", "request", "started_s")
    uses = uses[(uses["backend"] == "adapter") & (uses["found"] != NOT_USED)]
    uses = uses.merge(requests, on="request")
    ordered = uses.sort_values(["started_s", "request"])["resource"]
    most = lru_misses(ordered, FEW_ADAPTERS)
    return 1.0 - float((uses["found"] != FOUND).sum()) / most if most else float("nan")


def lru_misses(uses: Iterable[str], capacity: int) -> int:
    """Misses of a cache of so many that evicts the least recently used."""
    held: OrderedDict[str, None] = OrderedDict()
    misses = 0
    for one in uses:
        misses += one not in held
        held[one] = None
        held.move_to_end(one)
        if len(held) > capacity:
            held.popitem(last=False)
    return misses


def _iterations(run: Run) -> pd.DataFrame:
    """Iterations of all groups while more than `BACKLOGGED` calls wait."""
    columns = ("duration_s", "iterations", "prefill_requests", "prefill_tokens", "group")
    found = run.columns("iterations", *columns, "decode_requests", "waiting_requests")
    return found[found["waiting_requests"] > BACKLOGGED]


def answer_tokens_per_s(run: Run) -> float:
    """Tokens of answers that all groups give in a second of a backlog."""
    busy = _iterations(run)
    tokens = busy["decode_requests"] * busy["iterations"] + busy["prefill_requests"]
    return float(tokens.sum() / busy["duration_s"].sum() * busy["group"].nunique())


def prompt_tokens_per_s(run: Run) -> float:
    """Tokens of prompts that all groups compute in a second of a backlog."""
    busy = _iterations(run)
    return float(busy["prefill_tokens"].sum() / busy["duration_s"].sum() * busy["group"].nunique())


def decode_ms(run: Run) -> float:
    """Milliseconds of an iteration without prompts, in a backlog."""
    busy = _iterations(run)
    decodes = busy[busy["prefill_requests"] == 0]
    return float(1e3 * decodes["duration_s"].sum() / decodes["iterations"].sum())


def prompts_share(run: Run) -> float:
    """Share of the seconds of a backlog in which prompts are computed."""
    busy = _iterations(run)
    return float(
        busy.loc[busy["prefill_requests"] > 0, "duration_s"].sum() / busy["duration_s"].sum()
    )


def backlog_s(run: Run) -> float:
    """Seconds in which all answers of a run would be given at the rate of its backlog."""
    answers = run.columns("requests", "output_tokens", "service")
    tokens = answers.loc[answers["service"].astype(str) != OUTSIDE, "output_tokens"].sum()
    return float(tokens / answer_tokens_per_s(run))


@cache
def median_act_s(*kinds: str) -> Callable[[Run], float]:
    """Median seconds from arrival to end of the applications of these kinds."""

    def median(run: Run) -> float:
        apps = run.columns("apps", "kind", "arrived_s", "finished_s")
        these = apps[apps["kind"].astype(str).isin(kinds)]
        return float((these["finished_s"] - these["arrived_s"]).median())

    return median
