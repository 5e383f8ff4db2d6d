"""Dedicated GPUs: even shares, degrees, refusals."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest

from baselines.dedicated import Dedicated
from harness.interface.decisions import Deployment
from harness.interface.entities import ServiceId
from harness.interface.views import ClusterView
from harness.tests.support.serving import LinearCosts, cluster, workload

COSTS = LinearCosts(blocks=1000)


@dataclass(frozen=True)
class OneIsLarge(LinearCosts):
    """m1 needs two GPUs."""

    blocks: int = 1000

    def kv_blocks(self, service: ServiceId, tensor_parallel: int) -> int:
        """m1 does not fit one GPU."""
        return 0 if service == "m1" and tensor_parallel < 2 else self.blocks


def _gpus(costs: LinearCosts, tensor_parallel: int | None, gpus: int, services: int) -> list[str]:
    """What has how many GPUs, group by group."""
    known = {service.id: service for service in workload([], [], services=services).services}
    view = SimpleNamespace(deployment=Deployment(()), cluster=cluster(gpus), services=known)
    placement = Dedicated(tensor_parallel=tensor_parallel, costs=costs)
    groups = placement.place(cast(ClusterView, view)).groups
    return [f"{'+'.join(group.services)} on {group.tensor_parallel}" for group in groups]


def test_even_shares_by_hand() -> None:
    """Two services on four GPUs have two each: two groups of one, or one of two."""
    assert _gpus(COSTS, 1, 4, 2) == ["m0 on 1", "m0 on 1", "m1 on 1", "m1 on 1"]
    assert _gpus(COSTS, 2, 4, 2) == ["m0 on 2", "m1 on 2"]
    assert _gpus(OneIsLarge(), None, 4, 2) == ["m0 on 1", "m0 on 1", "m1 on 2"]
    assert _gpus(COSTS, None, 3, 2) == ["m0 on 1", "m1 on 1"]


def test_what_does_not_fit_a_share_is_refused() -> None:
    with pytest.raises(ValueError, match="each of 3 services on 2 GPUs has 0, tensor_parallel is"):
        _gpus(COSTS, 1, 2, 3)
    with pytest.raises(ValueError, match="m1 does not fit 1 GPUs, the share of each of 2 services"):
        _gpus(OneIsLarge(), 1, 2, 2)
    with pytest.raises(ValueError, match="tensor_parallel is 0"):
        Dedicated(tensor_parallel=0, costs=COSTS)
