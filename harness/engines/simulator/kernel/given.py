"""Batches that a policy has written itself: how long they take, and what they produce.

A flight is one iteration, or several with the same requests, of which those after the first are
decodes: a run that goes on until something happens, or a batch of whole requests. Of a group whose
batches share the SMs there are several flights at a time.

`tables` and `flights` have one row each: compiled code takes an array from Python in a quarter of
the time of a record.
"""

import numpy as np

from harness.costs.compiled import compiled
from harness.costs.iteration import decode_iterations_within, decode_run_seconds, iteration_seconds
from harness.engines.simulator.kernel.layout import ALL, Record, Records
from harness.engines.simulator.kernel.running import start
from harness.engines.state import Ints
from harness.engines.token_gaps import add_gaps, add_run, note_tokens

WORKS = 7
FLIGHT = np.dtype(
    [
        # `Work` of the first iteration, `WORKS` fields
        ("prefill_requests", np.int64),
        ("prefill_tokens", np.int64),
        ("prefill_padded_tokens", np.int64),
        ("prefill_attended", np.float64),
        ("decode_requests", np.int64),
        ("context_tokens", np.int64),
        ("longest_tokens", np.int64),
        ("start_s", np.float64),
        (
            "before_s",
            np.float64,
        ),  # before the first iteration: deciding, reading, copying, taking in
        ("ends_s", np.float64),
        ("slows", np.float64),  # how many times longer its share of the SMs makes it
        ("gpu_share", np.float64),
        ("until", np.int64),  # FIRST or ALL answers; 0 for iterations that may be cut
        ("iterations", np.int64),
        ("booked", np.int64),  # iterations whose tokens are counted
        ("booked_s", np.float64),  # when the last of these ended
        ("spent_s", np.float64),  # of those that were counted last
        ("fewest_left", np.int64),  # tokens of the answer of which the fewest, and most, are left
        ("most_left", np.int64),
        ("is_cut", np.bool_),  # whether the first leaves context without KV
        # Contexts of the second iteration
        ("later_context_tokens", np.int64),
        ("later_longest_tokens", np.int64),
    ],
    align=True,
)


@compiled
def _decodes(requests: Records, request: int) -> bool:
    """Whether a request has all of its context in KV but for the last token, which it generated."""
    row = requests[request]
    return bool(row.kv > 0 and row.generated > 0 and row.kv == row.prompt + row.generated - 1)


@compiled
def fill(
    requests: Records,
    flights: Records,
    ids: Ints,
    tokens: Ints,
    now_s: float,
    gpu_share: float,
    until: int,
    pads: bool,
) -> bool:
    """A batch begins now: sum up what it computes first, so many `tokens` of each request.

    Returns whether any of these does not decode.
    """
    flight, longest_prompt = flights[0], 0
    flight.start_s = flight.booked_s = now_s
    flight.slows, flight.gpu_share, flight.until = 1.0, gpu_share, until
    flight.fewest_left = flight.most_left = requests[ids[0]].output - requests[ids[0]].generated
    for i in range(len(ids)):
        row = requests[ids[i]]
        context, left = row.prompt + row.generated, row.output - row.generated
        flight.fewest_left = min(flight.fewest_left, left)
        flight.most_left = max(flight.most_left, left)
        flight.is_cut |= row.kv + tokens[i] < context
        flight.later_context_tokens += context + 1
        flight.later_longest_tokens = max(flight.later_longest_tokens, context + 1)
        if _decodes(requests, ids[i]):
            flight.decode_requests += 1
            flight.context_tokens += context
            flight.longest_tokens = max(flight.longest_tokens, context)
        else:
            flight.prefill_requests += 1
            flight.prefill_tokens += tokens[i]
            longest_prompt = max(longest_prompt, tokens[i])
            flight.prefill_attended += tokens[i] * (2.0 * (row.kv + tokens[i]) - tokens[i])
    flight.prefill_padded_tokens = flight.prefill_tokens
    if pads:
        flight.prefill_padded_tokens = flight.prefill_requests * longest_prompt
        flight.prefill_attended = flight.prefill_requests * float(longest_prompt) ** 2
    return bool(flight.prefill_requests > 0)


@compiled
def begin(
    requests: Records, tables: Records, flights: Records, ids: Ints, iterations: int
) -> float:
    """So many iterations of a flight begin, and its requests that do not decode begin to run.

    Returns when they end.
    """
    flight = flights[0]
    flight.iterations = iterations
    flight.ends_s = flight.start_s + _seconds(tables, flights, iterations)
    if flight.prefill_requests > 0:
        for request in ids:
            if not _decodes(requests, request):
                start(requests, request, flight.start_s)
    return float(flight.ends_s)


@compiled
def first_s(tables: Records, flights: Records) -> float:
    """Seconds of the first iteration on all SMs, without what is before it."""
    flight = flights[0]
    return float(
        iteration_seconds(
            tables[0],
            flight.prefill_requests,
            flight.prefill_tokens,
            flight.prefill_padded_tokens,
            flight.prefill_attended,
            flight.decode_requests,
            flight.context_tokens,
            flight.longest_tokens,
        )
    )


@compiled
def _is_run(flight: Record) -> bool:
    """Whether all of its iterations are decodes that may be cut."""
    return bool(flight.until == 0 and flight.prefill_requests == 0)


@compiled
def _run_of(flight: Record) -> tuple[int, int, int]:
    """The decodes of a flight, if any: requests, tokens of their contexts at first, the longest."""
    if _is_run(flight):
        return flight.decode_requests, flight.context_tokens, flight.longest_tokens
    size = flight.prefill_requests + flight.decode_requests
    return size, flight.later_context_tokens, flight.later_longest_tokens


@compiled
def _seconds(tables: Records, flights: Records, iterations: int) -> float:
    """Seconds of the first `iterations` of a flight, and of what is before."""
    flight, decodes = flights[0], iterations
    spent_s = float(flight.before_s)
    if not _is_run(flight):
        spent_s += flight.slows * first_s(tables, flights)
        decodes -= 1
    if decodes > 0:
        spent_s += flight.slows * decode_run_seconds(tables[0], *_run_of(flight), decodes)
    return spent_s


@compiled
def end_s(tables: Records, flights: Records, iterations: int) -> float:
    """When so many iterations of a flight have ended."""
    if iterations == flights[0].iterations:
        return float(flights[0].ends_s)
    return float(flights[0].start_s + _seconds(tables, flights, iterations))


@compiled
def within(tables: Records, flights: Records, seconds: float, most: int) -> int:
    """Fewest iterations, of `most`, that take at least so long; `most` if none do."""
    flight, first = flights[0], 0
    left_s = (seconds - flight.before_s) / flight.slows
    if not _is_run(flight):
        left_s -= first_s(tables, flights)
        if left_s <= 0.0 or most == 1:
            return 1
        first = 1
    run = _run_of(flight)
    return first + decode_iterations_within(tables[0], *run, left_s, most - first)


@compiled
def cut(tables: Records, flights: Records, now_s: float) -> int:
    """End a flight at its next boundary; returns how many iterations it has then."""
    flight = flights[0]
    iterations = within(tables, flights, now_s - flight.start_s, flight.iterations)
    if iterations < flight.iterations:
        flight.iterations = iterations
        flight.ends_s = flight.start_s + _seconds(tables, flights, iterations)
    return int(iterations)


@compiled
def ended_by(tables: Records, flights: Records, now_s: float) -> int:
    """Iterations that have ended by a time before the last one does."""
    flight = flights[0]
    begun = within(tables, flights, now_s - flight.start_s, flight.iterations)
    if flight.start_s + _seconds(tables, flights, begun) > now_s:
        begun -= 1
    return int(min(begun, flight.iterations - 1))


@compiled
def book(
    requests: Records,
    gaps: Ints,
    tables: Records,
    flights: Records,
    ids: Ints,
    tokens: Ints,
    iterations: int,
    made: Ints,
    answered: Ints,
) -> int:
    """Count the tokens and the time of a flight up to its iteration `iterations`.

    Writes into `made` how many tokens each request has produced since those counted before, and
    into `answered` the requests whose answers are there; returns how many these are. Requests whose
    answers needed fewer iterations have gone on as padding.
    """
    flight, count = flights[0], 0
    more, to_s = iterations - flight.booked, end_s(tables, flights, iterations)
    # Of a batch until all are answered no token is seen before.
    first_token_s = to_s if flight.until == ALL else end_s(tables, flights, flight.booked + 1)
    if flight.booked == 0 and flight.prefill_requests > 0:
        _note_prefills(requests, tables, flights, ids)
    flight.spent_s = to_s - flight.booked_s
    for i in range(len(ids)):
        chunk = tokens[i] if flight.booked == 0 else 1
        made[i] = _produce(requests, flight, ids[i], chunk, more, first_token_s)
        if requests[ids[i]].generated == requests[ids[i]].output:
            answered[count] = ids[i]
            count += 1
    if flight.until != ALL:
        _note_gaps(requests, gaps, tables, flights, ids, iterations, made)
    flight.booked, flight.booked_s = iterations, to_s
    return count


@compiled
def _produce(
    requests: Records, flight: Record, request: int, chunk: int, more: int, first_token_s: float
) -> int:
    """Count so many iterations of a request, the first of which computed a chunk of its context.

    Returns how many tokens it has produced, none in mid-prompt.
    """
    row = requests[request]
    made = min(more, row.output - row.generated)
    row.kv += chunk + made - 1
    row.gpu_s += flight.spent_s * flight.gpu_share
    if row.kv < row.prompt + row.generated:
        return 0
    if row.generated == 0:
        row.first_token_s = first_token_s
    row.generated += made
    return int(made)


@compiled
def _note_prefills(requests: Records, tables: Records, flights: Records, ids: Ints) -> None:
    """The prompts of a flight have been computed."""
    flight = flights[0]
    alone_s = end_s(tables, flights, 1) - flight.start_s
    for request in ids:
        if not _decodes(requests, request):
            requests[request].prefill_s += alone_s * flight.gpu_share


@compiled
def _note_gaps(
    requests: Records,
    gaps: Ints,
    tables: Records,
    flights: Records,
    ids: Ints,
    iterations: int,
    made: Ints,
) -> None:
    """Count the gaps between the tokens of the iterations that have ended since `booked`."""
    booked, to_s = flights[0].booked, end_s(tables, flights, iterations)
    first_token_s, longest_s = end_s(tables, flights, booked + 1), 0.0
    if iterations > booked + 1:
        making = 0
        for tokens in made:
            making += int(tokens > 0)
        second_s = end_s(tables, flights, booked + 2) - first_token_s
        add_gaps(gaps, second_s, making)
        run_s, more = to_s - first_token_s, iterations - booked - 1
        longest_s = max(second_s, add_run(gaps, second_s, run_s, more, making))
    for i in range(len(ids)):
        if made[i] > 0:
            note_tokens(requests, gaps, ids[i], first_token_s, to_s, longest_s)
