"""The waiting queue of an engine that is told which requests to admit, by their names."""

from collections.abc import Iterable, Iterator
from typing import Any


class PlannedQueue:
    """All waiting requests; while a step is scheduled, only the ones that it admits, in order.

    Does what vLLM asks of a `RequestQueue`.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Any] = {}
        self._offered: list[Any] | None = None

    def offer(self, requests: list[Any]) -> None:
        """Show only these until `close`."""
        self._offered = requests[::-1]

    def close(self) -> None:
        """Show all again."""
        self._offered = None

    def add_request(self, request: Any) -> None:
        """One more."""
        self._waiting[request.request_id] = request

    prepend_request = add_request

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Several more."""
        for request in requests:
            self.add_request(request)

    def peek_request(self) -> Any:
        """The first one shown. IndexError if there is none."""
        if self._offered is not None:
            return self._offered[-1]
        if not self._waiting:
            raise IndexError("no request waits")
        return next(iter(self._waiting.values()))

    def pop_request(self) -> Any:
        """Remove the first one shown."""
        request = self.peek_request()
        if self._offered is not None:
            self._offered.pop()
        return self._waiting.pop(request.request_id)

    def remove_request(self, request: Any) -> None:
        """Remove one."""
        del self._waiting[request.request_id]

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Remove those of them that wait."""
        for request in requests:
            self._waiting.pop(request.request_id, None)

    def __bool__(self) -> bool:
        return bool(self._waiting if self._offered is None else self._offered)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._waiting.values()))
