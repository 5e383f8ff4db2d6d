"""MuxServe's placement: partitions of GPUs, the throughput of a unit, and a placement by hand."""

import numpy as np
import pytest

from baselines.muxserve_placement import partitions
from harness.interface.entities import Service, ServiceId, Work
from harness.planning.sm_shares import Demand, ShareEstimates
from harness.tests.support.shared import UnitCosts

A, B = ServiceId("a"), ServiceId("b")


class ShareCosts(UnitCosts):
    """A second for any iteration on all SMs, and two on half of them."""

    def iteration_s(
        self, service: ServiceId, tensor_parallel: int, work: Work, *, gpu_share: float = 1.0
    ) -> float:
        """Seconds of one iteration."""
        return super().iteration_s(service, tensor_parallel, work) / gpu_share


def estimates(*demands: Demand) -> ShareEstimates:
    return ShareEstimates(ShareCosts(), dict(zip((A, B), demands, strict=False)))


def test_four_gpus_are_split_in_four_ways_by_hand() -> None:
    assert list(partitions(4)) == [(4,), (2, 2), (2, 1, 1), (1, 1, 1, 1)]
    assert len(list(partitions(8))) == 10
    assert next(partitions(6)) == (4, 2)


def test_throughput_of_a_service_alone_by_hand() -> None:
    """64 requests a second with answers of 7 tokens: a round of 256, the most, takes 1 + 7 s.

    KV for 100 requests of 12 tokens leaves rounds of a second or less, of 64 requests in 8 s.
    """
    found, service = estimates(Demand(64.0, 9, 7)), Service(A, 100, 4096)
    assert found.throughput_per_s([service], 1, 10**12) == 32.0
    assert found.throughput_per_s([service], 1, 100 * 12 * 100) == 8.0


def test_prefills_of_a_unit_follow_one_another_by_hand() -> None:
    """Both ask for 64 a second, on the share on which decodes do most, 0.9 of the SMs.

    Rounds of a second: prompts of both, 2 s, and 7 decodes of 1/0.9 s: 64 in 9.78 s, twice.
    """
    found = estimates(Demand(64.0, 9, 7), Demand(64.0, 9, 7))
    units = [Service(A, 100, 4096), Service(B, 100, 4096)]
    assert found.decode_share(A, 1) == 0.9
    rate_per_s = found.throughput_per_s(units, 1, 150 * 12 * 100)
    assert rate_per_s == pytest.approx(2 * 64 / (2 + 7 / 0.9))


def test_the_least_share_that_keeps_up_by_hand() -> None:
    """256 requests at most in 1 + 7 / share s: at 0.3 of the SMs 10.5 a second, at 0.5 17.1."""
    assert estimates(Demand(10.0, 9, 7)).decode_share(A, 1) == 0.3
    assert estimates(Demand(15.0, 9, 7)).decode_share(A, 1) == 0.5
    assert np.isclose(estimates(Demand(15.0, 9, 7)).rate_per_s(A, 1, 256, 0.5), 256 / 15)
