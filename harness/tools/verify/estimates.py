"""Means of a queue with their standard errors, sharp enough for differences of a thousandth.

Engine and recursion. The recursion of a queue serves a hundred times as many requests a second as
the simulator, so a mean on the engine is estimated on two levels (Giles, Multilevel Monte Carlo
path simulation, 2008): the mean of the recursion over many requests, plus the mean of what the
engine's response times differ from the recursion's on the same sample. Nothing is assumed about
that difference; where the engine is right it is rounding.

Control variates. Work V found on arrival depends on earlier requests only; service time S and the
gap T to the next arrival do not depend on it, and their moments are known. So the following have
mean zero, whatever the discipline, the engine and the formula to be tested:

    S - E S,  T - E T,  S^2 - E S^2,  T^2 - E T^2,  (S - E S)(T - E T),
    V (S - E S),  V (T - E T),                         V before S and T
    J - E T  and  J^2 - E T^2  where T > V + S,        J = T - V - S, memoryless

Their coefficients are fitted over replications by least squares (Glasserman, Monte Carlo Methods in
Financial Engineering, 2003, sec. 4.1); the figure is the intercept. They span V^2's change from one
arrival to the next (Minh and Sorli, Simulating the GI/G/1 queue in heavy traffic, 1983), which is
why so little noise is left.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.engines.recorder import Recorder, area_under_number_s
from harness.tools.verify.queues import Discipline, Queue
from harness.tools.verify.samples import Floats, Sample, draw_sample, second_moment_s2

EXACT = 1e-9
"""What rounding may do: absolute for response times in seconds, relative for sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many requests, and what difference is allowed (relative)."""

    recursion_runs: int
    recursion_requests: int = 20_000
    engine_runs: int
    engine_requests: int
    bound: float


def verify(queue: Queue, effort: Effort, seed: int) -> dict[str, Any]:
    """Run a queue; the same line of the table for the same seed.

    `max_gap_s` is the largest |engine - recursion|. `engine_alone` is the relative difference by
    the engine's requests only, with the same control variates, and its standard error; None where
    its runs are shorter than the recursion's, as noise and transients are then others. `problems`
    are broken identities, in sentences.
    """
    runs, expected_s = effort.engine_runs, queue.expected_s
    streams = np.random.SeedSequence(seed).spawn(runs + effort.recursion_runs)
    gaps_s, means, max_gap_s, problems = _run_engine(queue, effort.engine_requests, streams[:runs])
    samples = _samples(queue, effort.recursion_requests, streams[runs:])
    fitted = fit_controls(np.array([run_means(queue, s, *queue.recursion_s(s)) for s in samples]))
    coefficients, mean_s, error_s, noise_s = fitted
    alone_s = float((means[:, 0] - means[:, 1:] @ coefficients).mean())
    alike = effort.engine_requests == effort.recursion_requests
    gap_error_s = float(np.std(gaps_s, ddof=1) / np.sqrt(runs)) if runs > 1 else 0.0
    estimate_s = mean_s + float(np.mean(gaps_s))
    difference = estimate_s / expected_s - 1
    return {
        **{"queue": queue.name, "law": queue.law.value, "load": queue.load},
        "figure": "wait" if queue.is_wait else "response",
        "expected_s": expected_s,
        "estimate_s": estimate_s,
        "standard_error_s": float(np.hypot(error_s, gap_error_s)),
        "engine_requests": runs * effort.engine_requests,
        "recursion_requests": effort.recursion_runs * effort.recursion_requests,
        "max_gap_s": max_gap_s,
        "engine_alone": alone_s / expected_s - 1 if alike else None,
        "engine_alone_error": noise_s / float(np.sqrt(runs)) / expected_s if alike else None,
        **{"bound": effort.bound, "problems": problems, "difference": difference},
        "holds": abs(difference) <= effort.bound and not problems,
    }


def _run_engine(
    queue: Queue, requests: int, streams: list[np.random.SeedSequence]
) -> tuple[list[float], Floats, float, list[str]]:
    """Mean gaps of the simulator to the recursion, its means, the largest gap, and its faults."""
    means, gaps_s, max_gap_s, problems = [], [], 0.0, []
    for sample in _samples(queue, requests, streams):
        recorder = queue.serve(sample)
        response_s, work_s = queue.recursion_s(sample)
        served_s = (recorder.requests["finished_s"] - recorder.requests["arrival_s"]).to_numpy()
        gaps_s.append(float((served_s - response_s).mean()))
        max_gap_s = max(max_gap_s, float(np.abs(served_s - response_s).max()))
        means.append(run_means(queue, sample, served_s, work_s))
        problems += broken_identities(queue, recorder, sample)
    if queue.discipline is not Discipline.SHARED and not max_gap_s <= EXACT:
        problems.append(f"a response time is {max_gap_s:g} s off the recursion")
    return gaps_s, np.array(means), max_gap_s, problems


def broken_identities(queue: Queue, recorder: Recorder, sample: Sample) -> list[str]:
    """Sentences where a run breaks Little's law or conservation of work, to 1e-9 relative.

    Little's law as an identity: the area under the number of requests in the system, counted by
    events, is the sum of the response times of the request table. One server is busy for the sum
    of the service times, under any discipline.
    """
    requests, intervals = recorder.requests, recorder.gpu_frame()
    response_s = float((requests["finished_s"] - requests["arrival_s"]).sum())
    busy_s = float((intervals["end_s"] - intervals["start_s"]).sum())
    rules = [("requests in the system, over time", area_under_number_s(recorder), response_s)]
    if queue.max_num_seqs == 1:
        rules.append(("seconds busy", busy_s, float(sample.service_s.sum())))
    return [
        f"{name}: {found}, not {expected}"
        for name, found, expected in rules
        if not np.isclose(found, expected, rtol=EXACT, atol=0.0)
    ]


def _samples(
    queue: Queue, requests: int, streams: list[np.random.SeedSequence]
) -> Iterator[Sample]:
    for stream in streams:
        yield draw_sample(queue.law, queue.rate_per_s, requests, np.random.default_rng(stream))


def run_means(queue: Queue, sample: Sample, response_s: Floats, work_s: Floats) -> Floats:
    """The figure of one run and its control variates, means over its requests.

    A tenth at either end is left out, where the queue is filling or draining.
    """
    edge = len(response_s) // 10
    kept = slice(edge, len(response_s) - edge)
    service_s, found_s = sample.service_s[kept], work_s[kept]
    gap_s = sample.gap_s[edge + 1 : len(response_s) - edge + 1]
    mean_gap_s = 1.0 / queue.rate_per_s
    service, gap = service_s - 1.0, gap_s - mean_gap_s
    idle_s = gap_s - found_s - service_s
    idles = idle_s > 0
    figure_s = response_s[kept] - service_s if queue.is_wait else response_s[kept]
    columns = (
        figure_s,
        service,
        gap,
        service_s**2 - second_moment_s2(queue.law),
        gap_s**2 - 2 * mean_gap_s**2,
        service * gap,
        found_s * service,
        found_s * gap,
        idles * (idle_s - mean_gap_s),
        idles * (idle_s**2 - 2 * mean_gap_s**2),
    )
    return np.array([column.mean() for column in columns])


def fit_controls(means: Floats) -> tuple[Floats, float, float, float]:
    """Regress the first column, one row per run, on the others, whose true means are zero.

    Coefficients, mean, its standard error, and the standard deviation left in the mean of one run.
    """
    scale = means[:, 1:].std(axis=0)
    scale[scale == 0] = 1.0
    design = np.column_stack([np.ones(len(means)), means[:, 1:] / scale])
    inverse = np.linalg.pinv(design, rcond=1e-9)
    found = inverse @ means[:, 0]
    left = means[:, 0] - design @ found
    freedom = len(means) - np.linalg.matrix_rank(design, tol=1e-9 * len(means))
    noise_s = float(np.sqrt((left**2).sum() / freedom))
    error_s = noise_s * float(np.linalg.norm(inverse[0]))
    return found[1:] / scale, float(found[0]), error_s, noise_s
