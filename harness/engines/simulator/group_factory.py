"""Groups of a run as they come: with all the KV and host memory that are theirs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from harness.costs.model import TableCosts
from harness.engines.live import LiveState
from harness.engines.simulator.compiled_groups import CompiledGroups
from harness.engines.simulator.group import LiveGroup
from harness.engines.simulator.host_memory import HostMemory
from harness.engines.simulator.rules import group_kv
from harness.interface.entities import Group, GroupId, Service, ServiceId
from harness.interface.kv_ledger import KvLedger


class GroupSettings(Protocol):
    """What an engine says of all its groups."""

    @property
    def costs(self) -> TableCosts:
        """Seconds and memory of services."""

    @property
    def max_num_seqs(self) -> int:
        """Requests that may run at the same time."""

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens that one iteration may compute."""

    @property
    def host_memory(self) -> HostMemory:
        """Of each GPU."""

    @property
    def swap_overlaps(self) -> bool:
        """Whether KV moves to host memory and back while the GPUs compute."""


@dataclass(frozen=True, slots=True)
class GroupFactory:
    """Makes the groups of a run, each with all the KV that its services leave free.

    `by_number` has the last group of each number.
    """

    state: LiveState
    services: Mapping[ServiceId, Service]
    engine: GroupSettings
    compiled: CompiledGroups
    by_number: dict[int, LiveGroup] = field(default_factory=dict)

    def group(self, group: Group) -> LiveGroup:
        """An empty group that has not loaded."""
        engine = self.engine
        live = LiveGroup(
            group=group,
            services={service: self.services[service] for service in sorted(group.services)},
            kv=self.ledger(group),
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            state=self.state,
            compiled=self.compiled,
            number=self.compiled.reserve(),
            host=engine.host_memory.of_group(group.tensor_parallel, overlaps=engine.swap_overlaps),
        )
        self.by_number[live.number] = live
        return live

    def home_of(self, request: int) -> GroupId:
        """The group in which compiled code has or had a request."""
        return self.by_number[int(self.state.arrays.group[request])].group.id

    def ledger(self, group: Group) -> KvLedger:
        """An empty ledger of a group's KV: bytes as the costs count them, for all its services.

        Raises ValueError where their blocks differ in tokens.
        """
        kv = group_kv(self.engine.costs, group.services, group.tensor_parallel)
        services = {
            service: replace(self.services[service], kv_bytes_per_token=token_bytes)
            for service, token_bytes in kv.token_bytes.items()
        }
        return KvLedger(
            capacity_bytes=kv.capacity_bytes, services=services, block_tokens=kv.block_tokens
        )
