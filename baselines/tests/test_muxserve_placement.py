"""MuxServe's placement: partitions of GPUs, the throughput of a unit, and a placement by hand."""

import numpy as np
import pytest

from baselines.muxserve_placement import partitions
from harness.interface.entities import Service, ServiceId, Work
from harness.planning.sm_shares import ServiceDemand, ShareEstimates, fewest_requests
from harness.tests.support.shared import UnitCosts

A, B = ServiceId("a"), ServiceId("b")


class ShareCosts(UnitCosts):
    """A second for any iteration on all SMs, and two on half of them."""

    def iteration_s(
        self, service: ServiceId, tensor_parallel: int, work: Work, *, gpu_share: float = 1.0
    ) -> float:
        """Seconds of one iteration."""
        return super().iteration_s(service, tensor_parallel, work) / gpu_share


def estimates(*demands: ServiceDemand) -> ShareEstimates:
    return ShareEstimates(ShareCosts(), dict(zip((A, B), demands, strict=False)))


def test_four_gpus_are_split_in_four_ways_by_hand() -> None:
    assert list(partitions(4)) == [(4,), (2, 2), (2, 1, 1), (1, 1, 1, 1)]
    assert len(list(partitions(8))) == 10
    assert next(partitions(6)) == (4, 2)


def test_throughput_of_a_service_alone_by_hand() -> None:
    """64 requests a second with answers of 7 tokens, decoded on 0.9 of the SMs as beside others.

    A round of 256, the most, takes 1 + 7 / 0.9 s. KV for 100 requests of 12 tokens leaves rounds of
    a second or less, of 64 requests in as long.
    """
    found, service = estimates(ServiceDemand(64.0, 9, 7)), Service(A, 100, 4096)
    round_s = 1 + 7 / 0.9
    assert found.throughput_per_s([service], 1, 10**12) == pytest.approx(256 / round_s)
    assert found.throughput_per_s([service], 1, 100 * 12 * 100) == pytest.approx(64 / round_s)


def test_prefills_of_a_unit_follow_one_another_by_hand() -> None:
    """Both ask for 64 a second, on the share on which decodes do most, 0.9 of the SMs.

    Rounds of a second: prompts of both, 2 s, and 7 decodes of 1/0.9 s: 64 in 9.78 s, twice.
    """
    found = estimates(ServiceDemand(64.0, 9, 7), ServiceDemand(64.0, 9, 7))
    units = [Service(A, 100, 4096), Service(B, 100, 4096)]
    assert found.decode_share(A, 1) == 0.9
    rate_per_s = found.throughput_per_s(units, 1, 150 * 12 * 100)
    assert rate_per_s == pytest.approx(2 * 64 / (2 + 7 / 0.9))


def test_the_fewest_requests_that_keep_up_by_hand() -> None:
    """A prefill of 0.1 s and 20 decodes of 0.05 s: so many requests / 1.1 s.

    For 10/s 1 to 256 requests are halved down to 11.96, of which 11 count: 10.87/s. For 4/s it is
    3.99: 3.63/s and the tenth of it that may be missing are less than 4.
    """
    tried = []

    def rate_per_s(requests: float) -> float:
        tried.append(requests)
        return requests / 1.1

    found = fewest_requests(10.0, 256, rate_per_s)
    halves = [128.5, 64.75, 32.88, 16.94, 8.97, 12.95, 10.96, 11.96]
    assert tried == pytest.approx(halves, abs=0.01)
    assert (found.requests, found.is_enough) == (11, True)
    assert found.rate_per_s == pytest.approx(10.87, abs=0.005)
    found = fewest_requests(4.0, 256, rate_per_s)
    assert (found.requests, found.is_enough) == (3, False)
    assert found.rate_per_s == pytest.approx(3.63, abs=0.005)


def test_the_least_share_that_keeps_up_by_hand() -> None:
    """255.5 requests at most in 1 + 7 / share s: at 0.3 of the SMs 10.5/s, at 0.4 13.8, at 0.5 17.

    Half a request a second may be missing. For 10.9/s the least share does, for 11.1/s not.
    """
    assert estimates(ServiceDemand(10.9, 9, 7)).decode_share(A, 1) == 0.3
    assert estimates(ServiceDemand(11.1, 9, 7)).decode_share(A, 1) == 0.4
    assert estimates(ServiceDemand(15.0, 9, 7)).decode_share(A, 1) == 0.5
    assert np.isclose(estimates(ServiceDemand(15.0, 9, 7)).rate_per_s(A, 1, 256, 0.5), 256 / 15)
