"""What is sent to an actor of several threads, in the order in which it was sent."""

import threading
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class InTurn(Generic[T]):
    """A queue from which things come in the order of their numbers, from 0, however they came."""

    def __init__(self) -> None:
        self._early: dict[int, T] = {}
        self._next, self._lock = 0, threading.Lock()
        self._ready: SimpleQueue[T] = SimpleQueue()

    def put(self, number: int, thing: T) -> None:
        """Keep it until all before it are there."""
        with self._lock:
            self._early[number] = thing
            while self._next in self._early:
                self._ready.put(self._early.pop(self._next))
                self._next += 1

    def get(self, wait_s: float) -> T:
        """The next one. Raises `Empty` where it does not come within this time."""
        return self._ready.get(timeout=wait_s) if wait_s else self._ready.get(False)
