"""What policies see of a group on the virtual clock."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from harness.interface.decisions import Batch
from harness.interface.entities import Group, RequestId, Service, ServiceId
from harness.interface.kv_ledger import KvLedger
from harness.interface.tables import RequestTable
from harness.interface.views import GroupView, RequestView


class Absorbing(GroupView, Protocol):
    """A group that opens accounts for its newcomers only when somebody looks."""

    def absorb(self) -> None:
        """Open them."""


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """A group as policies see it: no way leads from here to what requests will produce."""

    _live: Absorbing

    @property
    def now_s(self) -> float:
        """Time of the decision."""
        return self._live.now_s

    @property
    def group(self) -> Group:
        """GPUs and services."""
        return self._live.group

    @property
    def services(self) -> Mapping[ServiceId, Service]:
        """Facts of the services loaded here."""
        return self._live.services

    @property
    def kv(self) -> KvLedger:
        """KV held and promised here."""
        self._live.absorb()
        return self._live.kv

    @property
    def free_host_bytes(self) -> int:
        """Room for KV in host memory."""
        return self._live.free_host_bytes

    @property
    def used_host_bytes(self) -> int:
        """KV in host memory."""
        return self._live.used_host_bytes

    @property
    def max_num_seqs(self) -> int:
        """Requests that may run at the same time."""
        return self._live.max_num_seqs

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens that one iteration may compute."""
        return self._live.max_num_batched_tokens

    @property
    def requests(self) -> Mapping[RequestId, RequestView]:
        """Unfinished requests here, oldest first."""
        return self._live.requests

    @property
    def table(self) -> RequestTable:
        """The same as columns."""
        return self._live.table

    @property
    def in_flight(self) -> tuple[Batch, ...]:
        """Batches being computed."""
        return self._live.in_flight

    @property
    def free_share(self) -> float:
        """All of the SMs or none."""
        return self._live.free_share
