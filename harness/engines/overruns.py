"""Who has outgrown the KV promised to it, the same on both engines."""

from collections.abc import Iterable, Iterator, Mapping

from harness.interface.entities import GroupId, RequestId
from harness.interface.events import Overran
from harness.interface.kv_ledger import KvLedger
from harness.interface.views import RequestView


def overruns(
    views: Mapping[RequestId, RequestView],
    made: Mapping[RequestId, int],
    kv: KvLedger,
    group: GroupId,
    now_s: float,
) -> Iterator[Overran]:
    """Unfinished requests whose context went beyond their promise with the tokens just `made`."""
    promises = kv.promises
    for request in sorted(promises.keys() & made.keys() & views.keys()):
        promised = promises[request].tokens
        context = views[request].context_tokens
        if context - made[request] <= promised < context:
            yield Overran(now_s, request, group, promised)


def within_promises(views: Iterable[RequestView], most: int) -> int:
    """Decode iterations, at most `most`, until one of these outgrows its promise."""
    for view in views:
        promise = view.reservation
        if promise is not None:
            left = promise.tokens + 1 - view.context_tokens
            most = min(most, left) if left > 0 else most
    return most
