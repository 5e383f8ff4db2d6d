"""Advances all lanes to one time: the horizon, or the first moment that concerns others.

That is when a service has answered its last request, or a request that others elsewhere wait for.
Lanes do not depend on each other between such moments, so each runs ahead by itself; one that
ran past a moment found later is undone and run again to it.
"""

from collections.abc import Mapping

import numpy as np

from harness.engines.live_state import LiveGroup
from harness.engines.simulator.fast.heaps import count_followers
from harness.engines.simulator.fast.lane import CLOCK, Ints
from harness.engines.simulator.fast.lanes import Lane
from harness.interface.entities import ServiceId


def run_lanes(
    groups: list[LiveGroup],
    remaining: Mapping[ServiceId, int],
    horizon_s: float,
    *,
    may_stop: bool,
) -> tuple[float, Ints]:
    """Advance to the horizon or the first such moment, whichever is earlier.

    `remaining` counts the unfinished requests of each service, those to come included; `may_stop`
    says whether lanes may stop before the horizon for requests that others wait for. Returns the
    time reached and the ids finished by then, in order of their end.
    """
    by_service: dict[ServiceId, list[tuple[LiveGroup, Lane]]] = {}
    for live in groups:
        if live.lane is not None and live.lane.has_work:
            (service,) = live.group.services
            by_service.setdefault(service, []).append((live, live.lane))
    closing = _closing(by_service, remaining)
    lanes = sum(len(pairs) for pairs in by_service.values())
    saved = []
    for service in sorted(by_service, key=lambda s: closing.get(s, np.inf)):
        for live, lane in by_service[service]:
            # Only another lane's stop or another service's drain can cut this one's run short.
            if closing.keys() - {service} or (may_stop and lanes > 1):
                saved.append((live, lane, lane.save()))
            lane.run_to(min(horizon_s, live.stop_s))
            if lane.stopped:
                horizon_s = min(horizon_s, float(lane.arrays.time_s[CLOCK]))
        if service in closing:
            horizon_s = min(
                horizon_s, _drained_s([lane for _, lane in by_service[service]], remaining[service])
            )
    for live, lane, before in saved:
        if lane.arrays.time_s[CLOCK] > horizon_s:
            lane.restore(before)
            lane.run_to(min(horizon_s, live.stop_s))
    return horizon_s, _collect([lane for pairs in by_service.values() for _, lane in pairs])


def _closing(
    by_service: Mapping[ServiceId, list[tuple[LiveGroup, Lane]]], remaining: Mapping[ServiceId, int]
) -> dict[ServiceId, float]:
    """Services with all unfinished requests in lanes, and the tokens that each lane has left.

    Running the one with the least first keeps what must be undone small.
    """
    closing = {}
    for service, pairs in by_service.items():
        ids = np.concatenate([lane.open_ids() for _, lane in pairs])
        arrays = pairs[0][1].requests
        if len(ids) + count_followers(arrays, ids) == remaining[service]:
            closing[service] = float((arrays.output[ids] - arrays.generated[ids]).sum()) / len(
                pairs
            )
    return closing


def _drained_s(lanes: list[Lane], remaining: int) -> float:
    """When the last of `remaining` requests ended; infinite if some have not."""
    done = np.concatenate([lane.done() for lane in lanes])
    if len(done) < remaining:
        return np.inf
    return float(lanes[0].requests.finished_s[done].max())


def _collect(lanes: list[Lane]) -> Ints:
    """Ids finished since the last report, in order of their end."""
    done = [lane.done().copy() for lane in lanes]
    for lane, ids in zip(lanes, done, strict=True):
        lane.reported += len(ids)
    if not done:
        return np.zeros(0, np.int64)
    ids = np.concatenate(done)
    in_order: Ints = ids[np.lexsort((ids, lanes[0].requests.finished_s[ids]))]
    return in_order
