"""Which figures the ratios over the peer are made of."""

from harness.report.pages import PEER, policies_over_peer
from harness.tools.benchmarks.peer import over_peer
from harness.tools.benchmarks.speed import kinds, policies


def test_a_kind_is_as_fast_as_its_slowest_policy() -> None:
    figures = {PEER: 20.0, "slowest_moving_requests_per_s": 70.0, "w1_a_requests_per_s": 10.0}
    assert over_peer(figures) == {"moving_over_peer": 3.5}
    assert policies_over_peer(figures) == {"w1_a_requests_per_s": 0.5}


def test_policies_with_bounds_of_their_own_have_a_ratio() -> None:
    figures = {PEER: 20.0, "w1_doubling_budget_requests_per_s": 5.0}
    assert over_peer(figures) == {"doubling_budget_over_peer": 0.25}


def test_without_the_peer_there_is_no_ratio() -> None:
    assert over_peer({"slowest_moving_requests_per_s": 70.0}) == {}


def test_every_policy_of_the_tree_is_of_one_kind() -> None:
    members = [name for kind in kinds().values() for name in kind]
    assert len(members) == len(set(members))
    assert set(policies()) <= set(members)


def test_a_policy_of_more_preemptions_than_requests_is_of_a_kind_of_its_own() -> None:
    assert list(kinds()["thrashing"]) == ["fastserve_promoting"]
