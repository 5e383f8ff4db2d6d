"""Seconds in which an engine starts and reads the weights of a model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """How a machine loads, from what was measured and what is given in its place.

    `start_s` and `bytes_per_s`, if given, are what an engine takes before it reads weights and the
    rate at which it reads them; `read_bytes_per_s` is the measured rate. Of replicas that start at
    the same time, each takes `replica_start_s` longer for every other one.
    """

    replica_start_s: float
    start_s: float | None
    bytes_per_s: float | None
    read_bytes_per_s: float

    def load_s(self, weight_bytes: int, measured_s: float, replicas: int) -> float:
        """Seconds of a load, of each of so many replicas; one alone was measured."""
        further_s = self.replica_start_s * (replicas - 1)
        if self.start_s is None and self.bytes_per_s is None:
            return measured_s + further_s
        read_s = self._read_s(weight_bytes, measured_s)
        return self.before_reading_s(weight_bytes, measured_s) + read_s + further_s

    def before_reading_s(self, weight_bytes: int, measured_s: float) -> float:
        """Seconds of a load beside reading weights, as given, or else of the measured load."""
        if self.start_s is not None:
            return self.start_s
        return max(0.0, measured_s - weight_bytes / self.read_bytes_per_s)

    def _read_s(self, weight_bytes: int, measured_s: float) -> float:
        """The part of a load in which weights are read: at most what was measured, or as given."""
        if self.bytes_per_s is not None:
            return weight_bytes / self.bytes_per_s
        return min(measured_s, weight_bytes / self.read_bytes_per_s)
