"""Requests of groups of which all keys are asked again, and their new order."""

from harness.costs.compiled import compiled
from harness.engines.simulator.kernel.layout import NOTHING, Record
from harness.engines.simulator.kernel.loop import interrupt
from harness.engines.simulator.kernel.order import push_waiting
from harness.engines.simulator.kernel.world import World
from harness.engines.state import Ints


@compiled
def collect_open(world: World, numbers: Ints, ids: Ints, counts: Ints) -> None:
    """Write down the unfinished requests of groups, group by group, and how many each has."""
    count = 0
    for n in range(len(numbers)):
        group = world.groups[numbers[n]]
        counts[n] = group.n_waiting
        for k in range(group.n_waiting):
            ids[count] = world.queue[group.queue_at + k]
            count += 1
        counts[n] += group.n_decoding + group.n_partial
        for k in range(group.n_decoding):
            ids[count] = group.decoding[k]
            count += 1
        for k in range(group.n_partial):
            ids[count] = group.partial[k]
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
        _release_slot(group, request)
        push_waiting(world.requests, group, world.queue, request)
    group.n_partial = kept


@compiled
def _release_slot(group: Record, request: int) -> None:
    """Take a request out of those with a slot, if it is one."""
    kept = 0
    for k in range(group.n_in_slots):
        if group.slots[k] != request:
            group.slots[kept] = group.slots[k]
            kept += 1
    group.n_in_slots = kept
