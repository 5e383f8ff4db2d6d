"""Requests of groups of which all keys are asked again, and their new order."""

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import NOTHING
from harness.engines.simulator.kernel.loop import interrupt
from harness.engines.simulator.kernel.order import push_waiting, without
from harness.engines.simulator.kernel.running import holder
from harness.engines.simulator.kernel.world import World
from harness.engines.state import Ints


@compiled
def collect_open(world: World, numbers: Ints, ids: Ints, counts: Ints) -> None:
    """Write down the unfinished requests of groups, group by group, and how many each has."""
    count = 0
    for n in range(len(numbers)):
        group = world.groups[numbers[n]]
        counts[n] = group.n_decoding + group.n_partial + group.n_waiting
        for k in range(counts[n]):
            ids[count] = holder(group, world.queue, k)
            count += 1


@compiled
def sort_anew(world: World, numbers: Ints) -> None:
    """Put the waiting requests of groups in the order of their new keys.

    Requests that have a slot and nothing else wait again. A run of iterations that was planned as
    one went by the old keys: it ends, see `interrupt`.
    """
    for n in range(len(numbers)):
        i = numbers[n]
        group = world.groups[i]
        waiting = group.n_waiting
        group.n_waiting = 0
        for k in range(waiting):
            push_waiting(world.requests, group, world.queue, world.queue[group.queue_at + k])
        release_slots(world, i)
        if group.flight == NOTHING:
            group.is_due = group.is_due or group.n_waiting > 0
        interrupt(world, i)


@compiled
def release_slots(world: World, i: int) -> None:
    """Requests of a group of which nothing is computed, or in flight, give up their slots."""
    group, kept = world.groups[i], 0
    for k in range(group.n_partial):
        request = group.partial[k]
        in_flight = group.flight != NOTHING and group.chunk[k] > 0
        if world.requests[request].kv > 0 or in_flight:
            group.partial[kept] = request
            group.chunk[kept] = group.chunk[k]
            kept += 1
            continue
        group.n_in_slots = without(group.slots, group.n_in_slots, request)
        push_waiting(world.requests, group, world.queue, request)
    group.n_partial = kept
