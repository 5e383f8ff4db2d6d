"""The most that any scheduler could serve in the setting of a run: full batches, no preemption.

All the KV holds requests that decode, or as many requests run as the engine allows, whichever is
fewer. A request holds its prompt and what it has answered so far, in whole blocks of which the last
is half used. Prompts are computed in iterations of decodes, in pieces of the size at which their
tokens take the fewest seconds; the last piece gives the first token of an answer. With n requests
that decode and d decodes of a mean answer

    requests per second = n / (d x seconds of an iteration of n + n x seconds of a prompt's tokens)

at the n, not necessarily whole, for which this is largest. Nothing is said of latency, at which
such a machine is useless.
"""

from typing import NamedTuple

import numpy as np

from harness.costs.iteration import IterationTable
from harness.interface.entities import ServiceId
from harness.interface.tables import Floats, Ints
from harness.runs.building import costs_of
from harness.runs.cells import Run
from harness.runs.config import stored_configuration

MOST_TOKENS = 8192
"""Of a prompt in one iteration, as servers limit it."""


class Room(NamedTuple):
    """What a group of GPUs has room for."""

    kv_tokens: int
    block_tokens: int
    max_num_seqs: int


def kv_tokens(run: Run) -> float:
    """Tokens of KV, in whole blocks, of the group of a run of one service.

    Raises ValueError as `most_per_s`.
    """
    return float(_room_and_table(run)[0].kv_tokens)


def most_per_s(run: Run) -> float:
    """Requests per second, of the lengths, KV, limits and costs of a run of one service and group.

    Raises ValueError for a run whose placement states no tensor parallelism.
    """
    room, table = _room_and_table(run)
    lengths = run.columns("requests", "prompt_tokens", "output_tokens")
    prompts, answers = lengths.to_numpy(np.int64).T
    return most_of(table, room, prompts, answers)


def _room_and_table(run: Run) -> tuple[Room, IterationTable]:
    config = stored_configuration(run.config)
    degree = config.system["placement"].get("tensor_parallel")
    if not isinstance(degree, int):
        raise ValueError("the run has no one tensor parallelism")
    costs, service = costs_of(config), ServiceId(config.workload["model"])
    block_tokens, most = costs.block_tokens(service), int(config.engine["max_num_seqs"])
    room = Room(costs.kv_blocks(service, degree) * block_tokens, block_tokens, most)
    return room, costs.table(service, degree)


def most_of(table: IterationTable, room: Room, prompt_tokens: Ints, output_tokens: Ints) -> float:
    """Requests per second of requests of these lengths; each answers at least two tokens."""
    prompts, decodes = np.asarray(prompt_tokens, float), np.asarray(output_tokens, float) - 1
    # Averages over the decodes of requests: long answers have more of them.
    context = float((decodes * (prompts + 1 + decodes / 2)).mean() / decodes.mean())
    most = min(room.max_num_seqs, room.kv_tokens / (context + room.block_tokens / 2))
    running = np.append(np.arange(1.0, most), most)
    iteration_s = _at(table.decode_base_s, running) + running * context * (
        _at(table.decode_per_context_s, running) + _at(table.decode_per_padded_s, running)
    )
    prompt_s = prompts.mean() * _token_s(table)
    return float((running / (decodes.mean() * iteration_s + running * prompt_s)).max())


def _at(by_requests: Floats, running: Floats) -> Floats:
    """Coefficients at numbers of requests that need not be whole."""
    found: Floats = np.interp(running, np.arange(len(by_requests)), by_requests)
    return found


def _token_s(table: IterationTable) -> float:
    """Least seconds that a token of a prompt adds to an iteration of decodes, whatever the piece.

    Attention to the prompt's own tokens is left out.
    """
    tokens = np.arange(1, MOST_TOKENS + 1)
    steps, shared = (
        it[np.minimum(tokens, len(it) - 1)] for it in (table.prefill_step_s, table.shared_s)
    )
    per_token_s = table.prefill_per_padded_token_s[1] + table.prefill_per_token_s[1]
    seconds = table.prefill_base_s[1] + per_token_s * tokens + steps - shared
    return max(0.0, float((seconds / tokens).min()))
