"""Groups of a run as they come: with all the KV and host memory that are theirs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from harness.costs.model import TableCosts
from harness.engines.live import LiveState
from harness.engines.simulator.group import LiveGroup
from harness.engines.simulator.host_memory import HostMemory
from harness.interface.entities import Group, Service, ServiceId
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
    """Makes the groups of a run, each with all the KV that its services leave free."""

    state: LiveState
    services: Mapping[ServiceId, Service]
    engine: GroupSettings

    def group(self, group: Group) -> LiveGroup:
        """An empty group that has not loaded."""
        engine = self.engine
        return LiveGroup(
            group=group,
            services={service: self.services[service] for service in sorted(group.services)},
            kv=self.ledger(group),
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            state=self.state,
            host=engine.host_memory.of_group(group.tensor_parallel, overlaps=engine.swap_overlaps),
        )

    def ledger(self, group: Group) -> KvLedger:
        """An empty ledger of a group's KV: bytes as the costs count them, for all its services.

        Raises ValueError where their blocks differ in tokens.
        """
        costs, tp = self.engine.costs, group.tensor_parallel
        block_tokens = {service: costs.block_tokens(service) for service in sorted(group.services)}
        if len(set(block_tokens.values())) > 1:
            raise ValueError(f"{group.id} would have KV blocks of different tokens: {block_tokens}")
        services = {}
        for service, tokens in block_tokens.items():
            block_bytes = costs.kv_bytes([service], tp) // costs.kv_blocks(service, tp)
            facts = self.services[service]
            services[service] = replace(facts, kv_bytes_per_token=block_bytes // tokens)
        return KvLedger(
            capacity_bytes=costs.kv_bytes(group.services, tp),
            services=services,
            block_tokens=min(block_tokens.values()),
        )
