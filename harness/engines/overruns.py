"""Requests that have outgrown the KV promised to them, the same on both engines."""

from collections.abc import Iterable, Iterator, Mapping

from harness.core.kv_ledger import KvLedger
from harness.interface.entities import GroupId, RequestId
from harness.interface.events import Overran
from harness.interface.views import RequestView


def overruns(
    views: Mapping[RequestId, RequestView],
    made: Mapping[RequestId, int],
    kv: KvLedger,
    group: GroupId,
    now_s: float,
) -> Iterator[Overran]:
    """Unfinished requests whose context went beyond their promise with the tokens just `made`."""
    promises, found = kv.promises, []
    for request in made.keys() & promises.keys():
        beyond = views[request].context_tokens - promises[request].tokens
        if 0 < beyond <= made[request]:
            found.append(request)
    for request in sorted(found):
        yield Overran(now_s, request, group)


def within_promises(views: Iterable[RequestView], kv: KvLedger, most: int) -> int:
    """Decode iterations, at most `most`, until one of these outgrows its promise."""
    promises = kv.promises
    for view in views:
        promise = promises.get(view.facts.id)
        if promise is not None:
            left = promise.tokens + 1 - view.context_tokens
            if 0 < left < most:
                most = left
    return most
