"""Figures of EcoServe's claims that no run's summary holds."""

import bisect
from collections.abc import Sequence

from harness.runs.cells import Run

SLO_SCALE = 2.0
SMALLEST_TOKENS = 8
"""Of the space that a guest may have."""


def throughput_per_s(run: Run) -> float:
    """Requests answered per second from the first arrival to the last answer."""
    rows = run.columns("requests", "arrival_s", "finished_s")
    span_s = rows["finished_s"].max() - rows["arrival_s"].min()
    return float(rows["finished_s"].notna().sum() / span_s)


def within_limit(run: Run, seconds: tuple[float, float], scale: float = SLO_SCALE) -> float:
    """Share of requests answered within `scale` times (a prompt's + answer x a token's seconds).

    The length is the true one, as attainment is known only afterwards.
    """
    rows = run.columns("requests", "arrival_s", "finished_s", "output_tokens")
    prompt_s, token_s = seconds
    limit_s = scale * (prompt_s + token_s * rows["output_tokens"])
    return float((rows["finished_s"] - rows["arrival_s"] <= limit_s).mean())


def mean_tokens(run: Run, column: str) -> float:
    """Mean of `prompt_tokens` or `output_tokens`."""
    return float(run.columns("requests", column)[column].mean())


def provided_share(run: Run, part: str) -> float:
    """Tokens set aside for answers that were `over` them, or `short` of them, of those set aside.

    The shares of sums over all requests, when generations were placed first.
    """
    return _share(run, f"{part}_tokens", "provided_tokens")


def preempted_share(run: Run) -> float:
    """Share of requests that lost their KV at least once, for want of room."""
    return float((run.columns("requests", "preemptions")["preemptions"] > 0).mean())


def preemption_share(run: Run) -> float:
    """Seconds from preemption to running again, over the JCT of all requests."""
    rows = run.columns("requests", "arrival_s", "finished_s", "preempted_s")
    return float(rows["preempted_s"].sum() / (rows["finished_s"] - rows["arrival_s"]).sum())


def groups_of(run: Run, least: int) -> float:
    """Share of length groups that have at least so many requests."""
    return _share(run, f"groups_of_{least}", "groups")


def in_groups_of(run: Run, least: int) -> float:
    """Share of placed requests that are in length groups of at least so many."""
    return _share(run, f"requests_in_groups_of_{least}", "placed")


def _share(run: Run, part: str, whole: str) -> float:
    counts = run.facts["counts"]
    return float(counts[part] / counts[whole])


def nested_share(lengths: Sequence[float], buffer_share: float) -> float:
    """The share of answer tokens that guests can hold at all, hosts nested greedily.

    Every answer is there at once and known; the longest without a host hosts the longest that fit
    half, a quarter, an eighth of its space, less the buffer, and each of them hosts likewise.
    """
    left = sorted(int(one) for one in lengths)
    total, guests = sum(left), 0

    def lend(space: int) -> int:
        held = 0
        while space // 2 >= SMALLEST_TOKENS:
            place = bisect.bisect_left(left, space // 2 - int(buffer_share * space / 2))
            if not place:
                break
            guest = left.pop(place - 1)
            held += guest + lend(guest)
            space //= 2
        return held

    while left:
        guests += lend(left.pop())
    return guests / total
