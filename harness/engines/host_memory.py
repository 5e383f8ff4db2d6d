"""Host memory beside the GPUs of a group: room for the KV of the preempted, and the way there."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostMemory:
    """What each GPU has of it: `kv_bytes` for KV, copied at `bytes_per_s` in either direction.

    ValueError for less than nothing, or a way on which nothing moves.
    """

    kv_bytes: int
    bytes_per_s: float

    def __post_init__(self) -> None:
        """Refuse what could never be."""
        if self.kv_bytes < 0:
            raise ValueError(f"hardware.host_kv_bytes is {self.kv_bytes}, it must be 0 or more")
        if not 0 < self.bytes_per_s < float("inf"):
            raise ValueError(f"hardware.pcie_bytes_per_s is {self.bytes_per_s}, it must be above 0")

    def of_group(self, tensor_parallel: int, *, overlaps: bool) -> "GroupHost":
        """All of a group's: every GPU copies its part of each request's KV on a bus of its own."""
        return GroupHost(
            self.kv_bytes * tensor_parallel, self.bytes_per_s * tensor_parallel, overlaps
        )


NO_HOST_MEMORY = HostMemory(kv_bytes=0, bytes_per_s=1.0)
"""No room: nothing can be swapped out."""


@dataclass(slots=True)
class GroupHost:
    """The host memory of a group: `used_bytes` of `capacity_bytes`, free to copy at `idle_s`.

    Copies follow each other, in and out, since what comes in takes the blocks of what goes out.
    Where they do not overlap with computing, an iteration begins to compute when all are done;
    where they do, it ends no earlier than they do.
    """

    capacity_bytes: int
    bytes_per_s: float
    overlaps: bool
    used_bytes: int = 0
    idle_s: float = 0.0

    def copy(self, now_s: float, count_bytes: int) -> float:
        """Copy so many bytes after what is being copied already; returns the seconds they take."""
        seconds = count_bytes / self.bytes_per_s
        self.idle_s = max(self.idle_s, now_s) + seconds
        return seconds

    def longer_s(self, now_s: float, alone_s: float) -> float:
        """How much longer an iteration takes that begins now and would take `alone_s`."""
        left_s = max(0.0, self.idle_s - now_s)
        return max(0.0, left_s - alone_s) if self.overlaps else left_s
