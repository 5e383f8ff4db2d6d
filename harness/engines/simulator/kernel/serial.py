"""Groups that serve one request at a time, in the order of arrival, and drop late requests."""

from harness.costs.compiled import compiled
from harness.costs.iteration import IterationTable, decode_run_seconds, iteration_seconds
from harness.engines.state import Floats, Ints
from harness.interface.tables import Bools


@compiled
def set_alone_s(
    table: IterationTable, rows: Ints, prompts: Ints, outputs: Ints, alone_s: Floats
) -> None:
    """Set `alone_s` of these rows: seconds of the whole prompt, then of one decode after another.

    `prompts` and `outputs` are tokens, by row as `alone_s`.
    """
    for row in rows:
        prompt = prompts[row]
        prefill_s = iteration_seconds(table, 1, prompt, prompt, float(prompt) * prompt, 0, 0, 0)
        after = prompt + 1
        alone_s[row] = prefill_s + decode_run_seconds(table, 1, after, after, outputs[row] - 1)


@compiled
def serve_one_at_a_time(
    arrival_s: Floats,
    service: Ints,
    limit_s: Floats,
    alone_s: Floats,
    degree: Ints,
    holds: Bools,
    free_s: Floats,
    finished_s: Floats,
) -> None:
    """Set when requests are answered; `finished_s` of those that are dropped stays as it is.

    Each goes to the group of its service that is `free_s` first, at equal times to the first one,
    and is dropped where its answer would be late; the group is then as if it had not come.
    `alone_s` is by degree and request, `degree` and `free_s` are by group, `holds` is by service
    and group.
    """
    for row in range(arrival_s.size):
        chosen = -1
        for group in range(free_s.size):
            if holds[service[row], group] and (chosen < 0 or free_s[group] < free_s[chosen]):
                chosen = group
        if chosen < 0:
            continue
        end_s = max(arrival_s[row], free_s[chosen]) + alone_s[degree[chosen], row]
        if end_s - arrival_s[row] <= limit_s[row]:
            free_s[chosen] = finished_s[row] = end_s
