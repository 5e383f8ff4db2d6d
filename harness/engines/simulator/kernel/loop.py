"""All groups of a run in clock order: completions, releases, arrivals and dispatch of an instant.

At every instant all that ends ends, then all that comes comes, and then groups begin. Nothing runs
ahead of the clock: what an instant changes in a group cuts its run of iterations at the boundary.
"""

import numpy as np

from harness.costs.compiled import compiled, inlined
from harness.engines.simulator.kernel.host_cache import store
from harness.engines.simulator.kernel.iterations import (
    begin,
    cut,
    end,
    ended_by,
    next_event_s,
    split,
)
from harness.engines.simulator.kernel.layout import (
    ASKED,
    BEGUN,
    DECODES,
    NOTHING,
    UNADMITTED,
    GroupArrays,
    Record,
    Records,
)
from harness.engines.simulator.kernel.order import place_anew, push_waiting
from harness.engines.simulator.kernel.prefixes import CacheRecords
from harness.engines.simulator.kernel.promotion import come, note_running, promote_due
from harness.engines.simulator.kernel.running import write_back
from harness.engines.simulator.kernel.shared import end_turn
from harness.engines.simulator.kernel.work import note_busy, take_rows
from harness.engines.simulator.kernel.world import (
    BY_POLICY,
    BY_TOKENS,
    CALLS_OUTSIDE,
    HOMES,
    HOW,
    IN_TURN,
    REMAINING,
    SERVICE_BITS,
    TURN,
    World,
)
from harness.engines.state import OUTSIDE, UNDISPATCHED, Ints

# Why `run` returned: the horizon is reached; something of this instant is for others to see to; an
# array is full, of the group `subject` if that is one; its first waiting request can never be
# admitted; the key of one of its running requests is to be told again
HORIZON, STOPPED, FULL, STUCK, UNTOLD = range(5)


@compiled
def run(world: World, cache: CacheRecords | None, until_s: float) -> int:
    """Run all groups to `until_s`, or to the first instant that others see to.

    What ends or comes at `until_s` has done so then; no iteration begins at or after it. Prefixes
    are cached where there is a `cache`: else the code is compiled without that.
    """
    state = world.state[0]
    while True:
        if not _end_all(world, cache, state) or not _come_all(world, state):
            return FULL
        if state.is_stopped:
            state.is_stopped = False
            return STOPPED
        if state.now_s >= until_s:
            return HORIZON
        for i in range(len(world.groups)):
            group = world.groups[i]
            if group.is_due:
                status = _begin(world, cache, state, group, i)
                if status == UNADMITTED:
                    return STUCK
                if status == ASKED:
                    write_back(world.requests, group)
                    return UNTOLD
        state.now_s = min(until_s, max(state.now_s, _next_instant_s(world, state)))


@inlined
def _next_instant_s(world: World, state: Record) -> float:
    """When the next thing happens; infinite if nothing will."""
    at_s = np.inf
    for i in range(len(world.next_s)):
        at_s = min(at_s, world.next_s[i])
    if state.next_coming < len(world.coming):
        at_s = min(at_s, _comes_s(world.requests, world.coming[state.next_coming]))
    if state.next_delayed < state.n_delayed:
        at_s = min(at_s, _comes_s(world.requests, world.delayed[state.next_delayed]))
    if state.next_external < state.n_external:
        at_s = min(at_s, _over_s(world, world.external[state.next_external]))
    if state.next_turn < len(world.turns):
        at_s = min(at_s, world.turns[state.next_turn].at_s)
    return at_s


@inlined
def _begin(world: World, cache: CacheRecords | None, state: Record, group: Record, i: int) -> int:
    """Begin what a group does next, if it is idle and has anything to do."""
    is_loading = group.ready_s > state.now_s
    if group.flight != NOTHING or not group.is_live or group.is_stopping or is_loading:
        group.is_due = False
        return BEGUN
    status = BEGUN
    group.clock_s = state.now_s
    if group.n_waiting + group.n_decoding + group.n_partial > 0:
        requests, pieces, queue = world.requests, world.pieces, world.queue
        promotes, idle = group.promotes_after < np.inf, world.idle
        if promotes:
            found = promote_due(requests, pieces, world.promoted, idle, group, queue)
            state.promotions += found
        arrays = GroupArrays(requests, pieces, world.swap, queue)
        status = begin(world.tables, arrays, group, world.held, cache)
        state.subject = i
        if promotes and status == BEGUN:
            note_running(world.tables[group.table], requests, idle, group)
    if status == BEGUN:
        group.is_due = False
        world.next_s[i] = next_event_s(group)
    return status


@inlined
def _end_all(world: World, cache: CacheRecords | None, state: Record) -> bool:
    """End all flights and all calls outside any LLM that end by now.

    False where there is no room for what they leave.
    """
    while state.next_external < state.n_external:
        call = world.external[state.next_external]
        if _over_s(world, call) > state.now_s:
            break
        state.subject = -1
        if state.n_done >= len(world.done):
            return False
        state.next_external += 1
        world.requests[call].finished_s = state.now_s
        _note_answered(world, state, call)
    for i in range(len(world.next_s)):
        if world.next_s[i] > state.now_s or world.next_s[i] == np.inf:
            continue
        group = world.groups[i]
        state.subject = -1
        if (
            state.n_done + group.n_decoding + group.n_partial > len(world.done)
            or state.n_busy >= len(world.busy)
            or state.n_log + 2 > len(world.log)
        ):
            return False
        world.next_s[i] = np.inf
        group.is_due = True
        if group.flight == NOTHING:
            continue
        note_busy(world.busy, state, group, i, group.clock_s, group.clock_s + group.flight_s)
        end(world.requests, world.pieces, group, world.queue, cache)
        take_rows(world.log, state, group, i)
        _note_finished(world, state, group)
        if group.n_over > 0:
            state.is_stopped = True
    return True


@inlined
def _note_finished(world: World, state: Record, group: Record) -> None:
    """The requests that have finished with a flight of a group are answered."""
    if len(world.held.cache) > 0:
        # By number, as groups that are stepped store their contexts.
        _sort(group.finished, group.n_finished)
    for k in range(group.n_finished):
        _note_answered(world, state, group.finished[k])
    group.n_finished = 0


@inlined
def _note_answered(world: World, state: Record, request: int) -> None:
    """A request is answered: it is put with those of all groups, and calls that waited may come.

    The run stops where others see to its answer. The next call of a chain stays in the group of its
    predecessor.
    """
    requests, first_child = world.requests, world.first_child
    world.done[state.n_done] = request
    state.n_done += 1
    service = requests[request].service
    world.services[service, REMAINING] -= 1
    if state.stops_at_finish or world.services[service, REMAINING] == 0:
        state.is_stopped = True
    if state.stops_at_units:
        world.left[world.instance[request]] -= 1
        if world.left[world.instance[request]] == 0:
            state.is_stopped = True
    if len(world.held.cache) > 0:
        context = requests[request].prompt + requests[request].generated
        store(world.held, request, context, state.now_s)
    if state.stops_at_parents and first_child[request] < first_child[request + 1]:
        state.is_stopped = True
    if state.releases:
        _release(world, state, request)


@inlined
def _release(world: World, state: Record, request: int) -> None:
    """Calls that waited for this answer alone are sent, or the next request of a closed loop."""
    requests, first_child = world.requests, world.first_child
    if len(world.sent) > 0 and world.sent[0] < len(requests):
        _send(world, state, world.sent[0])
        world.sent[0] += 1
    for c in range(first_child[request], first_child[request + 1]):
        call = world.children[c]
        world.waits[call] -= 1
        if world.waits[call] > 0:
            continue
        if world.follower[request] == call:
            requests[call].group = requests[request].group
        _send(world, state, call)


@compiled
def _send(world: World, state: Record, call: int) -> None:
    """A call is sent when an answer has been handed over, and comes after its intake."""
    requests, delayed = world.requests, world.delayed
    requests[call].arrival_s = requests[call].key = state.now_s + state.hand_over_s
    if state.stops_at_units or world.services[requests[call].service, CALLS_OUTSIDE]:
        requests[call].group = OUTSIDE
    comes_s = _comes_s(requests, call)
    if comes_s <= state.now_s:
        world.instant[state.n_instant] = (requests[call].service << SERVICE_BITS) + call
        state.n_instant += 1
        return
    at = state.n_delayed
    while at > state.next_delayed and _comes_s(requests, delayed[at - 1]) > comes_s:
        delayed[at] = delayed[at - 1]
        at -= 1
    delayed[at] = call
    state.n_delayed += 1


@inlined
def _come_all(world: World, state: Record) -> bool:
    """Requests and predictions of this instant come; False where there is no room for them."""
    requests, state.subject = world.requests, -1
    turns = world.turns
    while state.next_turn < len(turns) and turns[state.next_turn].at_s <= state.now_s:
        _turn(world, turns[state.next_turn].request, turns[state.next_turn].key)
        state.next_turn += 1
    last = _gather(
        requests, state, world.delayed, state.next_delayed, state.n_delayed, world.instant
    )
    state.next_delayed = last
    last = _gather(
        requests, state, world.coming, state.next_coming, len(world.coming), world.instant
    )
    state.next_coming = last
    if state.n_instant >= len(world.instant):
        return False
    if state.next_instant == 0 and state.n_instant > 1:
        _sort(world.instant, state.n_instant)
    while state.next_instant < state.n_instant:
        request = world.instant[state.next_instant] & ((1 << SERVICE_BITS) - 1)
        if not _dispatch(world, state, request):
            return False
        state.next_instant += 1
    state.n_instant = state.next_instant = 0
    return True


@compiled
def _gather(
    requests: Records, state: Record, line: Ints, first: int, end: int, instant: Ints
) -> int:
    """Move the requests of a line that have come by now to `instant`; returns where it then begins.

    One place stays free: without it there is no room.
    """
    while first < end and state.n_instant < len(instant):
        request = line[first]
        if _comes_s(requests, request) > state.now_s:
            break
        instant[state.n_instant] = (requests[request].service << SERVICE_BITS) + request
        state.n_instant += 1
        first += 1
    return first


@compiled
def _sort(values: Ints, count: int) -> None:
    """Sort the first values in place, nearly sorted as they mostly are: by Shell's method."""
    gap = count // 2
    while gap > 0:
        for i in range(gap, count):
            value, at = values[i], i
            while at >= gap and values[at - gap] > value:
                values[at] = values[at - gap]
                at -= gap
            values[at] = value
        gap //= 2


@inlined
def _turn(world: World, request: int, key: float) -> None:
    """A request gets the key of its prediction; if it waits, its place in the order, too."""
    requests = world.requests
    requests[request].key = key
    if requests[request].group < 0 or not np.isnan(requests[request].finished_s):
        return
    group = world.groups[requests[request].group]
    if not group.is_live:
        return
    if place_anew(requests, group, world.queue, request):
        _interrupt(world, group, requests[request].group)
    elif group.displaces or group.services_end > 0 or group.buckets > 0:
        # It may lose its slot or its turn, or free its blocks before a request that ends with it.
        interrupt(world, requests[request].group)


@inlined
def _interrupt(world: World, group: Record, i: int) -> None:
    """Something has come to a group: it is looked at when its iteration ends, or at once."""
    has_slots = group.n_decoding < group.max_requests or group.services_end > 0
    is_seen = group.displaces or group.promotes_after < np.inf
    if group.flight == NOTHING:
        group.is_due = True
    elif has_slots or is_seen or group.receiving_s > 0.0:
        # With every slot taken nothing changes before a finish, unless by displacing; but what has
        # come is taken in before the next iteration, and its promotion counts from there.
        cut(world.tables[group.table], group, world.state[0].now_s)
        world.next_s[i] = next_event_s(group)


@inlined
def _dispatch(world: World, state: Record, request: int) -> bool:
    """A request that has come goes to its group, or outside; False where there is no room."""
    requests = world.requests
    at = requests[request].group
    if at == UNDISPATCHED and len(world.external_s) and not np.isnan(world.external_s[request]):
        requests[request].started_s = state.now_s
        begin_external(world, request)
        return True
    if at == UNDISPATCHED:
        at = _choose(world, requests[request].service)
    if at >= 0 and (not world.groups[at].is_live or world.groups[at].is_stopping):
        at = OUTSIDE
    if at < 0:
        if state.n_outside >= len(world.outside):
            return False
        world.outside[state.n_outside] = request
        state.n_outside += 1
        state.is_stopped = True
        return True
    group = world.groups[at]
    # Noted before the check for room: when the request is tried again, it must not take a turn.
    requests[request].group = at
    if group.n_waiting + group.n_decoding + group.n_partial >= group.queue_room:
        state.subject = at
        return False
    group.load += requests[request].weight
    group.generated += requests[request].generated
    place = requests[request].service if group.services_end > 0 else 0
    _take_in(group, group.received_s[place, 0], group.received_s[place, 1])
    _wait(world, group, request)
    _interrupt(world, group, at)
    if group.stops_at_arrival:
        state.is_stopped = True
    return True


@compiled
def _wait(world: World, group: Record, request: int) -> None:
    """A request waits in a group."""
    push_waiting(world.requests, group, world.queue, request)
    if group.promotes_after < np.inf:
        ended = ended_by(world.tables[group.table], group, world.state[0].now_s)
        come(world.idle, group, request, ended)


@inlined
def _choose(world: World, service: int) -> int:
    """The group that a request of a service goes to, as the values of `services` say."""
    facts, homes = world.services[service], world.homes[service]
    if facts[HOW] == BY_POLICY:
        return OUTSIDE
    if facts[HOW] == IN_TURN:
        facts[TURN] += 1
        return int(homes[(facts[TURN] - 1) % facts[HOMES]])
    best, least = OUTSIDE, np.int64(1 << 62)
    for k in range(facts[HOMES]):
        group = world.groups[homes[k]]
        load = group.load
        if facts[HOW] == BY_TOKENS:
            load += group.generated
            ended = ended_by(world.tables[group.table], group, world.state[0].now_s)
            load += ended * group.n_decoding
        if load < least:
            best, least = homes[k], load
    return int(best)


@inlined
def _comes_s(requests: Records, request: int) -> float:
    """When a request that has been sent reaches its scheduler."""
    return float(requests[request].arrival_s + requests[request].intake_s)


@inlined
def _over_s(world: World, call: int) -> float:
    """When a call outside any LLM that has come is over."""
    return float(world.requests[call].arrival_s + world.external_s[call])


@compiled
def begin_external(world: World, call: int) -> None:
    """A call outside any LLM is under way from now on."""
    state, at = world.state[0], world.state[0].n_external
    ends_s = _over_s(world, call)
    while at > state.next_external and _over_s(world, world.external[at - 1]) > ends_s:
        world.external[at] = world.external[at - 1]
        at -= 1
    world.external[at] = call
    state.n_external += 1


@compiled
def settle(world: World, cache: CacheRecords | None) -> bool:
    """Write down what all groups have computed by now; False where there is no room for it."""
    state = world.state[0]
    for i in range(len(world.groups)):
        group = world.groups[i]
        if not group.is_live:
            continue
        if state.n_busy >= len(world.busy) or state.n_log >= len(world.log):
            return False
        table = world.tables[group.table]
        ended = ended_by(table, group, state.now_s)
        if ended > 0:
            start_s = group.clock_s
            split(table, world.requests, group, world.queue, cache, ended)
            note_busy(world.busy, state, group, i, start_s, group.clock_s)
            take_rows(world.log, state, group, i)
            world.next_s[i] = next_event_s(group)
        write_back(world.requests, group)
    return True


@compiled
def interrupt(world: World, i: int) -> None:
    """End the run of iterations of a group: now where one has just ended, else at the next end."""
    group, now_s = world.groups[i], world.state[0].now_s
    if group.flight == DECODES and group.is_rest and group.clock_s == now_s:
        group.flight, group.is_due = NOTHING, True
        if group.services_end > 0:
            end_turn(world.requests, world.pieces, group, world.queue)
    cut(world.tables[group.table], group, now_s)
    world.next_s[i] = next_event_s(group)


@compiled
def receive(world: World, i: int, first_s: float, more_s: float) -> None:
    """A request has come to a group: so long to take in as the first since the last iteration."""
    _take_in(world.groups[i], first_s, more_s)
    interrupt(world, i)


@inlined
def _take_in(group: Record, first_s: float, more_s: float) -> None:
    """A request is taken in before the next iteration."""
    group.receiving_s += more_s if group.receiving_s > 0.0 else first_s


@compiled
def add_all(world: World, i: int, ids: Ints) -> None:
    """Requests wait in a group from now on."""
    group, requests = world.groups[i], world.requests
    for k in range(len(ids)):
        group.load += requests[ids[k]].weight
        group.generated += requests[ids[k]].generated
        _wait(world, group, ids[k])
    if len(ids) > 0:
        _interrupt(world, group, i)
