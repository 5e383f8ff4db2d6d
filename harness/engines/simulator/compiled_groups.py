"""The groups of a run that compiled code fills by priority orders: their arrays, in Python."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.costs.iteration import MAX_REQUESTS, TABLE, IterationTable, table_record
from harness.engines.simulator.kernel import loop, promotion, renewal
from harness.engines.simulator.kernel.layout import BY_GPU_S, GROUP, NOTHING, RUN, Rule
from harness.engines.simulator.kernel.prefixes import CacheRecords
from harness.engines.simulator.kernel.world import (
    NO_SECONDS,
    TURN_OF_KEY,
    World,
    empty_world,
    longer,
)
from harness.engines.state import (
    END,
    HOST,
    OUTSIDE,
    UNDISPATCHED,
    Floats,
    Ints,
    RequestArrays,
)
from harness.interface.tables import attained_s

_NO_ROWS = np.zeros((0, 0))
MOST_TABLES = 256  # and rules, kept by `reset`: runs on ever other costs would fill the memory


@dataclass(slots=True)
class CompiledGroups:
    """Groups by number, and what has happened in them.

    `tell_keys` tells the keys of running requests of a group again; `record` takes the stretches
    (start, end) in which a group has computed, and its rows of the log. Prefixes are in `cache`.
    `releases` says whether calls that wait for answers come by themselves.
    """

    requests: RequestArrays
    services: int
    tell_keys: Callable[[int, Ints], None] = lambda number, ids: None
    record: Callable[[int, Floats, Floats], None] = lambda number, busy_s, rows: None
    cache: CacheRecords | None = None
    world: World = field(init=False)
    releases: bool = False
    _tables: list[IterationTable] = field(default_factory=list)
    _free: list[int] = field(default_factory=list)
    _empty: dict[Rule, NDArray[np.void]] = field(default_factory=dict)
    _queue_used: int = 0
    _left: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        """No group yet."""
        self.world = empty_world(self.requests, self.services)

    @property
    def state(self) -> Any:
        """How far the run is."""
        return self.world.state[0]

    def stop_at_parents(self, first_child: Ints) -> None:
        """Every answer that calls wait for is for others to see to."""
        self.state["stops_at_parents"] = True
        self.world = self.world._replace(first_child=first_child)

    def stop_at_units(self, instance: Ints, left: Ints) -> None:
        """Stop where a unit begins or ends; `left` counts the calls that each still has."""
        self.state["stops_at_units"], self._left = True, left
        self.world = self.world._replace(instance=instance, left=left.copy())

    def release_calls(
        self,
        first_child: Ints,
        children: Ints,
        waits: Ints,
        follower: Ints,
        hand_over_s: float,
        external_s: Floats = NO_SECONDS,
    ) -> None:
        """Calls that wait for answers come by themselves from now on; see `World`."""
        count = len(self.requests.rows)
        self.releases = self.state["releases"] = True
        self.state["hand_over_s"] = hand_over_s
        self.world = self.world._replace(
            first_child=first_child,
            children=children,
            waits=waits,
            follower=follower,
            external_s=external_s,
            external=np.zeros(int((~np.isnan(external_s)).sum()), np.int64),
            instant=np.zeros(count + 1024, np.int64),
            delayed=np.zeros(count, np.int64),
        )

    def reset(self, requests: RequestArrays) -> None:
        """Begin again at 0 with other requests and no groups, in the same arrays."""
        self.requests, self.releases = requests, False
        self.world.state[:] = np.zeros(1, RUN)
        self.world.groups["is_live"] = self.world.groups["is_due"] = False
        self.world.next_s[:] = np.inf
        self._free = list(range(len(self.world.groups)))
        self._queue_used = 0
        if max(len(self._tables), len(self._empty)) > MOST_TABLES:
            self._tables, self._empty = [], {}
        self.world = self.world._replace(
            requests=requests.rows,
            pieces=requests.pieces,
            swap=requests.swap,
            promoted=requests.promoted,
            idle=requests.idle,
            coming=self.world.coming[:0],
            turns=self.world.turns[:0],
        )

    def reserve(self) -> int:
        """Number of a group that may be opened later; until then requests of it go outside."""
        if not self._free:
            self._add_groups()
        return self._free.pop(0)

    def open(self, number: int, table: IterationTable, rule: Rule, ready_s: float) -> None:
        """Run a group, without requests so far, by a rule; it has loaded at `ready_s`."""
        if rule not in self._empty:
            empty = np.zeros(1, GROUP)
            for name, value in rule._asdict().items():
                empty[name] = value
            empty["is_live"], empty["longest"] = True, -(1 << 62)
            empty["chain_first"] = empty["chain_end"] = -1
            empty["due_s"], empty["slack_kv"] = np.inf, 1 << 62
            empty["block_kv"][:, 0] = 1
            empty["spare_kv"][:, 0] = floor(rule.watermark * rule.capacity_blocks)
            self._empty[rule] = empty
        self.world.groups[number] = self._empty[rule][0]
        group = self.world.groups[number]
        group["table"], group["clock_s"], group["ready_s"] = self._table(table), ready_s, ready_s
        self._make_room(number)
        self.world.next_s[number] = ready_s if ready_s > self.state["now_s"] else np.inf

    def close(self, number: int) -> None:
        """Take away a group, from which all requests have been withdrawn; its number is free."""
        self.write_down()
        group = self.world.groups[number]
        if group["busy_to_s"] > group["busy_from_s"]:
            self.record(number, np.array([[group["busy_from_s"], group["busy_to_s"]]]), _NO_ROWS)
        self.requests.gaps[:] += group["gaps"]
        group["gaps"] = 0
        group["is_live"], group["busy_from_s"], group["busy_to_s"] = False, 0.0, 0.0
        self.world.next_s[number] = np.inf
        self._free.append(number)

    def _add_groups(self) -> None:
        """Twice as many groups."""
        old, count = self.world.groups, len(self.world.groups)
        groups, next_s = np.zeros(2 * count + 1, GROUP), np.full(2 * count + 1, np.inf)
        groups[:count], next_s[:count] = old, self.world.next_s
        self.world = self.world._replace(groups=groups, next_s=next_s)
        self._free += range(count, len(groups))

    def _table(self, table: IterationTable) -> int:
        """Place of a table among the records."""
        place = next((at for at, it in enumerate(self._tables) if it is table), len(self._tables))
        if place < len(self._tables):
            return place
        if place == len(self.world.tables):
            records = np.zeros(2 * place + 1, TABLE)
            records[:place] = self.world.tables
            self.world = self.world._replace(tables=records)
        self.world.tables[place] = table_record(table)[0]
        self._tables.append(table)
        return place

    def _make_room(self, number: int, more: int = 0) -> None:
        """Give a group room for twice the requests that it has, and so many more."""
        group, queue, used = self.world.groups[number], self.world.queue, self._queue_used
        at, waiting = int(group["queue_at"]), int(group["n_waiting"])
        room = 2 * (waiting + int(group["n_decoding"]) + int(group["n_partial"]) + more) + 64
        if used + room > len(queue):
            grown = np.zeros(2 * (used + room), np.int64)
            grown[:used] = queue[:used]
            self.world = self.world._replace(queue=grown)
        queue = self.world.queue
        queue[used : used + waiting] = queue[at : at + waiting].copy()
        group["queue_at"], group["queue_room"] = used, room
        self._queue_used = used + room

    def add(self, number: int, ids: Ints) -> None:
        """Requests wait in a group from now on."""
        if not len(ids):
            return
        group = self.world.groups[number]
        open_count = sum(int(group[name]) for name in ("n_waiting", "n_decoding", "n_partial"))
        if open_count + len(ids) > group["queue_room"]:
            self._make_room(number, len(ids))
        self.requests.group[ids] = number
        loop.add_all(self.world, number, ids)

    def add_coming(self, ids: Ints, group: Ints | int = UNDISPATCHED) -> None:
        """Requests come to groups by themselves; they are in that order, behind all others."""
        coming = np.concatenate([self._coming, ids])
        self.requests.group[ids] = group
        self.state["next_coming"] = 0
        self.world = self.world._replace(coming=coming)

    @property
    def _coming(self) -> Ints:
        left: Ints = self.world.coming[int(self.state["next_coming"]) :]
        return left

    def coming_to(self, number: int) -> Ints:
        """Requests to come to a group, or of no group yet."""
        coming = self._coming
        found: Ints = coming[self.requests.group[coming] == number]
        return found

    def add_turns(self, at_s: Floats, requests: Ints, keys: Floats) -> None:
        """Predictions will come at these times, and give requests these keys."""
        new = np.zeros(len(at_s), TURN_OF_KEY)
        new["at_s"], new["request"], new["key"] = at_s, requests, keys
        turns = np.concatenate([self._turns, new])
        self._set_turns(turns[np.argsort(turns["at_s"], kind="stable")])

    def drop_turns(self, requests: Ints) -> None:
        """Predictions of these requests are told by others."""
        self._set_turns(self._turns[~np.isin(self._turns["request"], requests)])

    @property
    def _turns(self) -> NDArray[np.void]:
        left: NDArray[np.void] = self.world.turns[int(self.state["next_turn"]) :]
        return left

    def _set_turns(self, turns: NDArray[np.void]) -> None:
        self.state["next_turn"] = 0
        self.world = self.world._replace(turns=turns)

    def set_homes(self, service: int, numbers: list[int]) -> None:
        """The groups of a service, among which compiled code chooses."""
        world = self.world
        if len(numbers) > world.homes.shape[1]:
            homes = np.zeros((self.services, 2 * len(numbers)), np.int64)
            homes[:, : world.homes.shape[1]] = world.homes
            self.world = world = world._replace(homes=homes)
        world.homes[service, : len(numbers)] = numbers
        self.settle()
        for number in numbers:
            ids = self.open_ids(number)
            world.groups[number]["load"] = self.requests.weight[ids].sum()
            world.groups[number]["generated"] = self.requests.generated[ids].sum()

    def share(self, number: int, facts: Mapping[int, tuple[IterationTable, int, float]]) -> None:
        """Let every batch of a group be of one service and one phase, its KV counted in bytes.

        `facts` has by service its table, the bytes of a block, and after how many seconds it is
        starved.
        """
        places = {service: self._table(table) for service, (table, _, _) in facts.items()}
        group = self.world.groups[number]
        group["services_end"] = max(facts) + 1
        for service, (_, block_bytes, starves_after_s) in facts.items():
            blocks = int(group["capacity_blocks"]) // block_bytes
            group["tables"][service] = places[service]
            group["block_kv"][service] = block_bytes
            group["spare_kv"][service] = floor(group["watermark"] * blocks) * block_bytes
            group["starves_after_s"][service] = starves_after_s
            group["may_starve"] |= starves_after_s < np.inf

    def use(self, **arrays: Any) -> None:
        """Requests have these of `RequestArrays` from now on."""
        self.requests = self.requests._replace(**arrays)
        self.world = self.world._replace(**arrays)

    def run(self, until_s: float) -> None:
        """Run all groups to `until_s`, or to the first instant that others see to.

        ValueError where the first waiting request of a group can never be admitted.
        """
        self.world.left[:] = self._left
        while True:
            status = loop.run(self.world, self.cache, until_s)
            if status in (loop.HORIZON, loop.STOPPED):
                return
            self._see_to(status)

    def _see_to(self, status: int) -> None:
        number = int(self.state["subject"])
        if status == loop.FULL:
            if number >= 0:
                self._make_room(number, 1)
            else:
                self._make_room_for_all()
        elif status == loop.UNTOLD:
            self.tell_keys(number, self._past_their_keys(number))
        else:
            self._refuse(number)

    def _make_room_for_all(self) -> None:
        """Record what has been written down, and lengthen what may be full."""
        self.write_down()
        state, world = self.state, self.world
        self.world = world._replace(
            done=longer(world.done, int(state["n_done"]) + MAX_REQUESTS),
            instant=longer(world.instant, int(state["n_instant"])),
            outside=longer(world.outside, int(state["n_outside"])),
        )

    def write_down(self) -> None:
        """Record the stretches and the log of all groups so far."""
        state = self.state
        busy, log = self.world.busy[: state["n_busy"]], self.world.log[: state["n_log"]]
        state["n_busy"] = state["n_log"] = 0
        for number in np.union1d(busy[:, 0], log[:, 0]).astype(np.int64).tolist():
            columns = 1 + int(self.world.groups[number]["log_columns"])
            spans_s = busy[busy[:, 0] == number, 1:]
            self.record(number, spans_s, log[log[:, 0] == number, 1:columns])

    def _past_their_keys(self, number: int) -> Ints:
        """Running requests past the last piece of their key."""
        group, pieces = self.world.groups[number], self.requests.pieces
        ids = np.sort(self._waiting(group) if group["services_end"] else self._running(group))
        gpu_s, generated = attained_s(self.requests.gpu_s[ids]), self.requests.generated[ids]
        progress = gpu_s if group["moves"] == BY_GPU_S else generated
        past: Ints = ids[pieces[ids, -1, END] <= progress]
        return past

    def _refuse(self, number: int) -> None:
        group = self.world.groups[number]
        stuck = group["partial"][0] if group["n_partial"] else self.world.queue[group["queue_at"]]
        block_tokens, spare = group["block_tokens"], group["spare_kv"][0]
        memory = f"{group['capacity_blocks']} KV blocks of {block_tokens} tokens, {spare} kept free"
        memory = f"{group['capacity_blocks']} bytes of KV" if group["services_end"] else memory
        tokens = self.requests.prompt[stuck] + self.requests.generated[stuck]
        blocks = f" in {-(-tokens // block_tokens)} KV blocks" * (not group["services_end"])
        raise ValueError(
            f"r{stuck} can never be admitted: {memory}, {group['max_tokens']} tokens a batch; "
            f"it has {tokens} tokens{blocks}"
        )

    def settle(self) -> None:
        """Write down what all groups have computed by now: others are going to look."""
        while not loop.settle(self.world, self.cache):
            self._make_room_for_all()

    def take_done(self) -> Ints:
        """Requests answered since this was asked last, in order of their end, then of their id."""
        ids = self.world.done[: self.state["n_done"]]
        self.state["n_done"] = 0
        in_order: Ints = ids[np.lexsort((ids, self.requests.finished_s[ids]))]
        return in_order

    def take_outside(self) -> list[int]:
        """Requests that have come and that others dispatch."""
        ids: list[int] = self.world.outside[: self.state["n_outside"]].tolist()
        self.state["n_outside"] = 0
        return ids

    def take_overruns(self) -> list[tuple[int, Ints]]:
        """By group, requests that have outgrown what was set aside, since this was asked last."""
        found = []
        for number in np.flatnonzero(self.world.groups["n_over"]).tolist():
            group = self.world.groups[number]
            found.append((number, np.sort(group["over"][: group["n_over"]])))
            group["n_over"] = 0
        return found

    def leave_delayed(self, number: int) -> list[int]:
        """Calls on their way to a group that ends come outside; returns which."""
        state, group = self.state, self.requests.group
        delayed = self.world.delayed[int(state["next_delayed"]) : int(state["n_delayed"])]
        mine = delayed[group[delayed] == number]
        group[mine] = OUTSIDE
        found: list[int] = mine.tolist()
        return found

    def host_bytes(self, number: int) -> int:
        """KV of a group in host memory."""
        group = self.world.groups[number]
        return int(group["host_used_tokens"]) * int(group["token_bytes"])

    @property
    def is_working(self) -> bool:
        """Whether anything is in flight, or will come by itself."""
        state = self.state
        return bool(
            np.isfinite(self.world.next_s).any()
            or len(self._coming) > 0
            or state["next_delayed"] < state["n_delayed"]
            or state["next_external"] < state["n_external"]
            or self.world.groups["is_due"].any()
        )

    def open_ids(self, number: int) -> Ints:
        """Unfinished requests in a group, in no order."""
        group = self.world.groups[number]
        return np.concatenate([self._waiting(group), self._running(group)])

    def _waiting(self, group: Any) -> Ints:
        at = int(group["queue_at"])
        waiting: Ints = self.world.queue[at : at + int(group["n_waiting"])].copy()
        return waiting

    def _running(self, group: Any) -> Ints:
        decoding = group["decoding"][: group["n_decoding"]]
        return np.concatenate([decoding, group["partial"][: group["n_partial"]]])

    def begun_ids(self, number: int) -> Ints:
        """Requests of which the iteration in flight computes a part of the prompt."""
        group = self.world.groups[number]
        partial = group["partial"][: group["n_partial"] if group["flight"] != NOTHING else 0]
        begun: Ints = partial[group["chunk"][: len(partial)] > 0].copy()
        return begun

    def boundary_s(self, number: int) -> tuple[float, float]:
        """When the flight of a group began and ends; both the last boundary where it has none."""
        group = self.world.groups[number]
        begun_s, in_flight = float(group["clock_s"]), group["flight"] != NOTHING
        return begun_s, begun_s + float(group["flight_s"]) if in_flight else begun_s

    def stop(self, number: int) -> float:
        """Let a group end its iteration in flight and begin no other; returns when that ends."""
        self.world.groups[number]["is_stopping"] = True
        loop.interrupt(self.world, number)
        return self.boundary_s(number)[1]

    def withdraw(
        self, number: int, *, everything: bool, services: Sequence[int] | None = None
    ) -> Ints:
        """Take out the requests that hold no KV, or all of them; their KV is dropped.

        Of a group of several services, those of some only, where `services` are given. A request
        with KV in host memory holds it: there is its only copy.
        """
        renewal.release_slots(self.world, number)
        group, requests = self.world.groups[number], self.requests
        waiting = self._waiting(group)
        if everything and group["host_used_tokens"]:
            requests.swap[waiting, HOST] = group["host_used_tokens"] = group["n_swapped"] = 0
        holds = requests.kv[waiting] > 0
        if services is not None:
            holds |= ~np.isin(requests.rows["service"][waiting], services)
        if group["host_used_tokens"]:
            holds |= requests.swap[waiting, HOST] > 0
        taken = [waiting[~holds]]
        group["n_waiting"] = 0
        if everything:
            group["used_blocks"] = 0
            holders = np.concatenate([waiting[holds], self._running(group)])
            requests.preemptions[holders] += 1
            requests.preempted_at_s[holders] = group["clock_s"]
            requests.kv[holders] = 0
            for name in ("n_decoding", "n_partial", "n_in_slots", "paused_blocks", "n_heap"):
                group[name] = 0
            taken.append(holders)
        ids = np.sort(np.concatenate(taken))
        requests.group[ids] = OUTSIDE
        promotion.forget(self.world.idle, group, ids)
        # `add_all` counts the holders that stay again.
        gone = ids if everything else np.concatenate([ids, waiting[holds]])
        group["load"] -= requests.weight[gone].sum()
        group["generated"] -= requests.generated[gone].sum()
        if not everything:
            loop.add_all(self.world, number, waiting[holds])
        return ids
