"""Loads the compiled kernel before a policy's first decision pays for it."""

from functools import cache

import numpy as np

from harness.costs.iteration import IterationTable
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.kernel.work import add_flops
from harness.engines.simulator.rules import continuous_rule
from harness.engines.state import BRIEF, new_arrays
from harness.interface.decisions import ContinuousBatching

REQUESTS = 4


@cache
def warm_up() -> None:
    """Load (at first: compile) the kernel.

    A few requests with made-up costs pass through it; forecasts use the same kernel.
    """
    table = IterationTable(*(np.full(REQUESTS + 1, 0.001) for _ in IterationTable._fields))
    table = table._replace(shared_s=table.shared_s[:1])
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
    compiled = CompiledGroups(arrays, 1)
    number = compiled.reserve()
    in_numbers = continuous_rule(rule, capacity_blocks=64, block_tokens=16, log_columns=BRIEF)
    compiled.open(number, table, in_numbers, 0.0)
    compiled.add(number, np.arange(REQUESTS))
    compiled.run(np.inf)
    compiled.settle()
    compiled.stop(number)
    add_flops(np.ones((1, BRIEF)), 1, 1.0, 1, np.zeros(2), np.zeros(2))
