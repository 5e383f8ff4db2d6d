"""Calls of applications as an order's key sees them, without an engine."""

from dataclasses import dataclass

import numpy as np

from harness.interface.entities import (
    AppId,
    GpuId,
    Group,
    GroupId,
    Request,
    RequestId,
    ServiceId,
    TenantId,
)
from harness.interface.policies import SchedulingPolicy
from harness.interface.tables import RequestTable

GROUP = GroupId("g")
HERE = Group(GROUP, frozenset({ServiceId("m")}), (GpuId(0),))


@dataclass(frozen=True)
class Call:
    """A call; `admitted` says whether it holds KV."""

    id: int
    app: int
    prompt_tokens: int = 10
    generated: int = 0
    admitted: bool = False
    arrival_s: float = 0.0
    deadline_s: float = np.nan
    tenant: str = ""

    @property
    def facts(self) -> Request:
        """What is known when it arrives."""
        return Request(
            id=RequestId(self.id),
            service=ServiceId("m"),
            app=AppId(self.app),
            tenant=TenantId(self.tenant),
            arrival_s=self.arrival_s,
            prompt_tokens=self.prompt_tokens,
            max_output_tokens=99,
        )


def table_of(*calls: Call) -> RequestTable:
    """As columns."""
    holds = [call.prompt_tokens if call.admitted else 0 for call in calls]
    count = len(calls)
    return RequestTable(
        id=np.array([call.id for call in calls]),
        arrival_s=np.array([call.arrival_s for call in calls]),
        prompt_tokens=np.array([call.prompt_tokens for call in calls]),
        generated_tokens=np.array([call.generated for call in calls]),
        kv_tokens=np.array(holds) + np.array([call.generated for call in calls]),
        gpu_s=np.zeros(count),
        max_output_tokens=np.full(count, 99),
        deadline_s=np.array([call.deadline_s for call in calls]),
        predicted_mean_tokens=np.full(count, np.nan),
        service=np.zeros(count, np.int64),
        services=(ServiceId("m"),),
        app=np.array([call.app for call in calls]),
    )


@dataclass(frozen=True)
class _View:
    """The group that a policy is asked about, and no more."""

    group: Group


def keys(policy: SchedulingPolicy, *calls: Call) -> list[float]:
    """What the policy's order says of each call."""
    order = policy.schedule(_View(HERE)).priority_order  # type: ignore[arg-type]
    assert order is not None
    key = order.keys(table_of(*calls))
    assert isinstance(key, np.ndarray)
    found: list[float] = key.tolist()
    return found
