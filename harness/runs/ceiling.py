"""The most that any scheduler could serve in the setting of a run: full batches, no preemption.

All the KV holds requests that decode, or as many requests run as an iteration takes, whichever is
fewer. A request holds its prompt and what it has answered so far, in whole blocks of which the last
is half used. Prompts are computed in iterations of decodes, at the seconds of their tokens alone.
Of its B requests an iteration of t seconds answers B / (mean answer), so that

    requests per second = B / (mean answer x t(B) + B x seconds of a prompt's tokens)

at the B for which this is largest. Nothing is said of latency, at which such a machine is useless.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from harness.costs.iteration import IterationTable
from harness.interface.entities import ServiceId
from harness.interface.tables import Floats, Ints
from harness.runs.building import costs_of
from harness.runs.record import config_of


class Room(NamedTuple):
    """What a group of GPUs has room for."""

    kv_tokens: int
    block_tokens: int
    max_num_seqs: int


def kv_tokens(folder: Path) -> float:
    """Tokens of KV, in whole blocks, of the group of a run of one service.

    Raises ValueError as `most_per_s`.
    """
    return float(_room_and_table(folder)[0].kv_tokens)


def most_per_s(folder: Path) -> float:
    """Requests per second, of the lengths, KV, limits and costs of a run of one service and group.

    Raises ValueError for a run whose placement states no tensor parallelism.
    """
    room, table = _room_and_table(folder)
    columns = ["prompt_tokens", "output_tokens"]
    requests = pd.read_parquet(folder / "requests.parquet", columns=columns)
    prompts, answers = (requests[name].to_numpy(np.int64) for name in columns)
    return most_of(table, room, prompts, answers)


def _room_and_table(folder: Path) -> tuple[Room, IterationTable]:
    config = config_of(folder)
    degree = config["system"]["placement"].get("tensor_parallel")
    if not isinstance(degree, int):
        raise ValueError(f"{folder} has no one tensor parallelism")
    costs, service = costs_of(config), ServiceId(config["workload"]["model"])
    block_tokens, most = costs.block_tokens(service), int(config["engine"]["max_num_seqs"])
    room = Room(costs.kv_blocks(service, degree) * block_tokens, block_tokens, most)
    return room, costs.table(service, degree)


def most_of(table: IterationTable, room: Room, prompt_tokens: Ints, output_tokens: Ints) -> float:
    """Requests per second of requests of these lengths."""
    prompts, answers = (np.asarray(it, np.float64) for it in (prompt_tokens, output_tokens))
    answer = answers.mean()
    # Averages over the iterations of requests: long answers are in more of them.
    context = (answers * (prompts + answers / 2)).mean() / answer
    held = context + room.block_tokens / 2
    most = min(room.max_num_seqs, len(table.decode_base_s) - 1, int(room.kv_tokens / held))
    running = np.arange(1, max(1, most) + 1)
    iteration_s = table.decode_base_s[running] + running * (
        table.decode_per_context_s[running] * context + table.decode_per_padded_s[running] * context
    )
    per_s = running / (answer * iteration_s + running * _prompt_s(table, prompts))
    return float(per_s.max())


def _prompt_s(table: IterationTable, prompts: Floats) -> float:
    """Mean seconds of the tokens of a prompt."""
    seconds = (
        table.prefill_per_padded_token_s[1] + table.prefill_per_token_s[1]
    ) * prompts + table.prefill_per_attended_s[1] * prompts**2
    return float(seconds.mean())
