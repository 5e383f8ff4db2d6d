"""Admission by the longest cached prefix, among clients that have not used up their quantum."""

from dataclasses import replace

import numpy as np
import pytest

from baselines.dlpm import Dlpm
from harness.tests.support.serving import FlatCosts, serve, workload
from harness.workloads.workload import Workload


def dlpm(**settings: object) -> Dlpm:
    """One slot, prices 1 and 2."""
    given: dict[str, object] = {
        "max_num_seqs": 1,
        "max_num_batched_tokens": 256,
        "client": "tenant",
        "quantum": 1000.0,
        "prompt_price": 1.0,
        "output_price": 2.0,
    }
    return Dlpm(**given | settings)  # type: ignore[arg-type]


def of_two_clients() -> Workload:
    """Requests of A, B and A; the third begins with 32 of the 40 tokens of the first."""
    return replace(
        workload([40] * 3, [2] * 3),
        prefix=np.array([-1, -1, 0]),
        prefix_tokens=np.array([0, 0, 32]),
        tenants=("a", "b"),
        tenant=np.array([0, 1, 0]),
    )


def finished_s(policy: Dlpm, *, caches: bool = True) -> list[float]:
    """Half a second a prefill, a quarter a decode: each takes 0.75 s alone."""
    served = serve(of_two_clients(), policy, costs=FlatCosts(load=0.0), prefix_caching=caches)
    found: list[float] = served.requests["finished_s"].tolist()
    return found


def test_the_cached_prefix_is_admitted_first_by_hand() -> None:
    assert finished_s(dlpm()) == [0.75, 2.25, 1.5]
    # Where nothing is cached, the order is that of arrival.
    assert finished_s(dlpm(), caches=False) == [0.75, 1.5, 2.25]


def test_a_used_up_quantum_lets_another_client_in_by_hand() -> None:
    """The first request costs A 40 + 2 x 2 of its 43: B is admitted, and then both get 43 more."""
    assert finished_s(dlpm(quantum=43.0)) == [0.75, 1.5, 2.25]
    assert finished_s(dlpm(quantum=45.0)) == [0.75, 2.25, 1.5]
    # By application, each request has a quantum of its own.
    assert finished_s(dlpm(quantum=43.0, client="application")) == [0.75, 2.25, 1.5]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"client": "kind"}, "policy.client is kind, not application or tenant"),
        ({"quantum": 0.0}, "policy.quantum is 0.0, it must be above 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        dlpm(**settings)
