"""Seconds of an iteration: a table of coefficients by number of requests, read by compiled code.

The coefficients belong to linear functions with constants of their own per number of requests
(arXiv 2503.16893 eq. 5). The loops of the simulator are compiled with the functions of this file.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.costs.compiled import compiled
from harness.costs.profiles import Phase, Profile, SmShares
from harness.interface.entities import Work

Floats = NDArray[np.float64]

MAX_REQUESTS = 1024


class IterationTable(NamedTuple):
    """Coefficients of an iteration, indexed by its number of requests (0 is unused).

    `shared_s` is what is counted once when prefill and decode share an iteration, indexed by the
    tokens of the smaller of the two, its last entry for more: the fixed cost, and the experts that
    both read; our choice, never measured. `prefill_step_s` is indexed by padded prompt tokens:
    what they cost beyond the linear terms (reading the weights hides a short prompt, and matrix
    multiplications go by tiles of 64 to 256 tokens); its last entry holds for more tokens.
    """

    prefill_base_s: Floats
    prefill_per_padded_token_s: Floats
    prefill_per_attended_s: Floats
    prefill_per_token_s: Floats
    decode_base_s: Floats
    decode_per_context_s: Floats
    decode_per_padded_s: Floats
    shared_s: Floats
    prefill_step_s: Floats = np.zeros(1)

    def scaled(self, factor: float, prompt_factor: float = 1.0) -> "IterationTable":
        """The table of iterations that take `factor` times as long.

        What prompts add takes `prompt_factor` times longer still. What they share with decodes is
        counted as often as the smaller of the two has it: no iteration gets shorter by a prompt.
        """
        by_name = {
            name: values * (factor * prompt_factor if name.startswith("prefill") else factor)
            for name, values in self._asdict().items()
        }
        by_name["shared_s"] = by_name["shared_s"] * min(1.0, prompt_factor)
        return IterationTable(**by_name)


BY_TOKENS = ("shared_s", "prefill_step_s")
"""Indexed by tokens, not by requests."""

MAX_STEP_TOKENS = 1 << 17
"""Padded prompt tokens up to which `prefill_step_s` may change."""

TABLE = np.dtype(
    [
        *((name, np.float64, (MAX_REQUESTS + 1,)) for name in IterationTable._fields[:-1]),
        ("prefill_step_s", np.float64, (MAX_STEP_TOKENS + 1,)),
    ],
    align=True,
)
"""An `IterationTable` as one record, which compiled code reads at a small cost per call."""


def table_record(table: IterationTable) -> NDArray[np.void]:
    """The table as an array of one record. ValueError where the record is too small for it."""
    record = np.zeros(1, TABLE)
    for name, values in table._asdict().items():
        field = record[name][0]
        if len(values) > len(field):
            raise ValueError(f"{name} of {len(values)} entries, a table has at most {len(field)}")
        field[: len(values)] = values
        # Beyond the numbers of requests of the table nothing is known; by tokens the last holds.
        field[len(values) :] = values[-1] if name in BY_TOKENS else np.nan
    return record


@compiled
def iteration_seconds(
    table: IterationTable,
    prefill_requests: int,
    prefill_tokens: int,
    prefill_padded_tokens: int,
    prefill_attended: float,
    decode_requests: int,
    context_tokens: int,
    longest_tokens: int,
) -> float:
    """Seconds of one iteration; the arguments are the fields of `Work`."""
    seconds = 0.0
    if prefill_requests > 0:
        step = min(int(prefill_padded_tokens), table.prefill_step_s.size - 1)
        seconds += (
            table.prefill_base_s[prefill_requests]
            + table.prefill_per_padded_token_s[prefill_requests] * prefill_padded_tokens
            + table.prefill_per_attended_s[prefill_requests] * prefill_attended
            + table.prefill_per_token_s[prefill_requests] * prefill_tokens
            + table.prefill_step_s[step]
        )
    if decode_requests > 0:
        seconds += (
            table.decode_base_s[decode_requests]
            + table.decode_per_context_s[decode_requests] * context_tokens
            + table.decode_per_padded_s[decode_requests] * (decode_requests * longest_tokens)
        )
        if prefill_requests > 0:
            fewer = min(decode_requests, int(prefill_tokens))
            seconds -= table.shared_s[min(fewer, table.shared_s.size - 1)]
    return seconds


@compiled
def decode_run_seconds(
    table: IterationTable, requests: int, context_tokens: int, longest_tokens: int, iterations: int
) -> float:
    """Seconds of a run of decode iterations with the same requests.

    Lengths are those of the first; every iteration adds a token to each request.
    """
    first = (
        table.decode_base_s[requests]
        + table.decode_per_context_s[requests] * context_tokens
        + table.decode_per_padded_s[requests] * (requests * longest_tokens)
    )
    growth = requests * (table.decode_per_context_s[requests] + table.decode_per_padded_s[requests])
    return float(iterations * first + growth * (iterations * (iterations - 1.0) / 2.0))


@compiled
def decode_iterations_within(
    table: IterationTable,
    requests: int,
    context_tokens: int,
    longest_tokens: int,
    seconds: float,
    most: int,
) -> int:
    """Fewest decode iterations (1..most) that take at least `seconds`; `most` if none do."""
    first = decode_run_seconds(table, requests, context_tokens, longest_tokens, 1)
    half_growth = (
        decode_run_seconds(table, requests, context_tokens, longest_tokens, 2) / 2.0 - first
    )
    # half_growth n^2 + linear n = seconds, solved in the form that does not cancel
    linear = first - half_growth
    root = math.sqrt(max(0.0, linear * linear + 4.0 * half_growth * seconds))
    guess = 2.0 * seconds / (linear + root) if linear + root > 0.0 else float(most)
    count = max(1, min(most, math.ceil(min(guess, float(most)))))
    # the guess is off by rounding only; what counts is agreement with decode_run_seconds
    while (
        count > 1
        and decode_run_seconds(table, requests, context_tokens, longest_tokens, count - 1)
        >= seconds
    ):
        count -= 1
    while (
        count < most
        and decode_run_seconds(table, requests, context_tokens, longest_tokens, count) < seconds
    ):
        count += 1
    return count


def work_seconds(table: IterationTable | Any, work: Work) -> float:
    """Seconds of one iteration, by a table or its record."""
    return float(
        iteration_seconds(
            table,
            work.prefill_requests,
            work.prefill_tokens,
            work.prefill_padded_tokens,
            work.prefill_attended,
            work.decode_requests,
            work.context_tokens,
            work.longest_tokens,
        )
    )


def share_seconds(measured: SmShares, table: IterationTable, work: Work, share: float) -> float:
    """Seconds of an iteration on a share of the SMs: those of each phase, as much longer."""
    decodes = Work(
        decode_requests=work.decode_requests,
        context_tokens=work.context_tokens,
        longest_tokens=work.longest_tokens,
    )
    decode_s = work_seconds(table, decodes)
    prefill_s = work_seconds(table, work) - decode_s
    if work.prefill_requests:
        prefill_s *= measured.at("prefill", work.prefill_tokens, share)
    if work.decode_requests:
        decode_s *= measured.at("decode", work.decode_requests, share)
    return prefill_s + decode_s


def expand(profile: Profile, parts: tuple[str, ...]) -> IterationTable:
    """The table of a profile: chosen components added up, linear between and beyond its knots."""

    def total(phase: Phase, coefficient: str) -> Floats:
        at_knots = np.zeros(len(profile.knots_requests))
        for part in parts:
            at_knots += np.asarray(phase[part].get(coefficient, (0.0,)))
        return _along_requests(profile.knots_requests, at_knots)

    prefill_base_s = total(profile.prefill, "base_s")
    decode_base_s = total(profile.decode, "base_s")
    tokens = np.arange(profile.step_knots_tokens[-1] + 1)
    step_s = np.interp(tokens, profile.step_knots_tokens, profile.step_s)
    experts_s, few = np.zeros(1), np.arange(MAX_REQUESTS + 1)
    if profile.experts_s and "forward" in parts:
        experts_s = np.interp(few, profile.step_knots_tokens, profile.experts_s)
    shared_s = np.minimum(prefill_base_s[1], decode_base_s[1]) + experts_s
    if profile.shared_s and "forward" in parts:
        shared_s = np.interp(few, profile.step_knots_tokens, profile.shared_s)
    return IterationTable(
        prefill_base_s=prefill_base_s,
        prefill_per_padded_token_s=total(profile.prefill, "per_padded_token_s"),
        prefill_per_attended_s=total(profile.prefill, "per_attended_s"),
        prefill_per_token_s=total(profile.prefill, "per_token_s"),
        decode_base_s=decode_base_s,
        decode_per_context_s=total(profile.decode, "per_context_s"),
        decode_per_padded_s=total(profile.decode, "per_padded_s"),
        shared_s=shared_s,
        prefill_step_s=step_s if "forward" in parts else np.zeros(1),
    )


def _along_requests(knots: tuple[int, ...], values: Floats) -> Floats:
    """Values at 0..MAX_REQUESTS requests; index 0 is 0, and nothing is extrapolated below 0."""
    requests = np.arange(MAX_REQUESTS + 1)
    line = np.interp(requests, knots, values)
    beyond = requests > knots[-1]
    slope = (values[-1] - values[-2]) / (knots[-1] - knots[-2])
    line[beyond] += slope * (requests[beyond] - knots[-1])
    line[0] = 0.0
    bounded: Floats = np.maximum(line, 0.0)
    return bounded
