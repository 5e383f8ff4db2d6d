"""Loads the compiled kernel before anybody waits for it."""

from functools import cache

import numpy as np

from harness.costs.iteration import IterationTable
from harness.engines.simulator.fast.anew import serve_anew
from harness.engines.simulator.fast.flops import add_flops
from harness.engines.simulator.fast.replica import ReplicaState
from harness.engines.simulator.fast.rules import replica_rule
from harness.engines.state import BRIEF, new_arrays
from harness.interface.decisions import ContinuousBatching

REQUESTS = 4


@cache
def warm_up() -> None:
    """Load (at first: compile) the kernel, so that no policy's first decision pays for it.

    A few requests with made-up costs pass through it; placements that plan by simulating use the
    same kernel.
    """
    table = IterationTable(*(np.full(REQUESTS + 1, 0.001) for _ in IterationTable._fields))
    rule = ContinuousBatching(
        chunked_prefill=False,
        pads_prompts=True,
        max_num_seqs=REQUESTS,
        max_num_batched_tokens=64,
        max_padding_tokens=64,
        watermark=0.0,
    )
    one = np.ones(REQUESTS, np.int64)
    arrays = new_arrays(one, 4 * one, one - 1, np.zeros(REQUESTS))
    in_numbers = replica_rule(rule, capacity_blocks=64, block_tokens=16, log_columns=BRIEF)
    replica = ReplicaState.empty(table, in_numbers, arrays, 0.0)
    every = np.arange(REQUESTS)
    # Groups are given requests in turn: compiled code sees every other place, too.
    for ids in (every[::2], every[1:2]):
        replica.add(ids, 0.0)
    replica.run_to(np.inf)
    again = new_arrays(one, 4 * one, one - 1, np.zeros(REQUESTS))
    served = serve_anew(table, in_numbers, again, every, 2, until_s=np.inf)
    add_flops(served.log, served.rows, 1, 1.0, 1, np.linspace(0.0, 1.0, 2), np.zeros(2))
