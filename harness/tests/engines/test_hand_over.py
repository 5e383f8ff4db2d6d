"""Answers that take a while to reach the calls that waited for them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interface.decisions import Deployment
from harness.interface.policies import Capability
from harness.interface.views import ClusterView
from harness.tests.support.applications import assert_served_as_stepped, linked
from harness.tests.support.policies import Restless
from harness.tests.support.serving import (
    Everywhere,
    FlatCosts,
    UnevenCosts,
    a_group,
    serve,
    workload,
)
from harness.workloads.workload import Workload


def test_a_chain_is_longer_by_every_hand_over() -> None:
    chain = linked(workload([5, 5, 5], [4, 4, 4], [0.0] * 3), [(0, 1), (1, 2)])
    at_once, later = serve(chain).requests, serve(chain, hand_over_s=0.25).requests
    waited_s = later["finished_s"] - at_once["finished_s"]
    assert waited_s.tolist() == pytest.approx([0.0, 0.25, 0.5])
    assert later["arrival_s"][1] == later["finished_s"][0] + 0.25


@st.composite
def chains(draw: st.DrawFn) -> Workload:
    """Up to 8 applications of up to 5 calls of one service, each waiting for the one before."""
    services = draw(st.integers(1, 2))
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    starts_s = np.cumsum(draw(st.lists(st.sampled_from([0.0, 0.0507]), min_size=8, max_size=8)))
    app = np.repeat(np.arange(len(lengths)), lengths)
    sizes = st.lists(st.integers(1, 40), min_size=len(app), max_size=len(app))
    load = workload(draw(sizes), draw(sizes), starts_s[app].tolist(), services=services)
    follows = [(i, i + 1) for i in range(len(app) - 1) if app[i] == app[i + 1]]
    return linked(replace(load, service=app % services), follows)


@given(
    load=chains(),
    after_s=st.sampled_from([0.0, 0.003, 0.0907, 0.4]),
    seed=st.integers(0, 999),
    waits_s=st.lists(st.sampled_from([0.0113, 0.0719, 0.2719]), max_size=5),
)
@settings(deadline=None, max_examples=20)
def test_groups_may_go_while_an_answer_is_on_its_way(
    load: Workload, after_s: float, seed: int, waits_s: list[float]
) -> None:
    assert_served_as_stepped(
        load,
        lambda fast: serve(
            load,
            placement=Restless(seed, waits_s, 3),
            costs=UnevenCosts(blocks=12, load=0.05),
            gpus=3,
            hand_over_s=after_s,
            fast_forward=fast,
        ),
        after_s,
    )


class SecondLater(Everywhere):
    """A second group of the service from 3 s on."""

    requires = frozenset({Capability.REDEPLOY})

    def place(self, view: ClusterView) -> Deployment:
        """One on GPU 0, and when it is time one on GPU 1."""
        (service,) = view.services
        first, second = a_group(service, 0), a_group(service, 1)
        return Deployment((first,), wake_s=3.0) if view.now_s < 3 else Deployment((first, second))


def test_a_chain_stays_in_its_group_while_an_answer_is_on_its_way() -> None:
    """Load 1 s, prefill and decode until 1.75 s; the answer is handed over at 5.75 s.

    Taking turns alone would send the second call to the second group.
    """
    chain = linked(workload([9, 9], [2, 2]), [(0, 1)])
    for fast in (True, False):
        served = serve(
            chain, placement=SecondLater(), costs=FlatCosts(), hand_over_s=4.0, fast_forward=fast
        )
        busy = served.gpu_frame().query("use == 'busy'")
        assert set(busy["gpu"]) == {0}
        assert served.requests["finished_s"].tolist() == [1.75, 6.5]


@pytest.mark.parametrize("after_s", [-1.0, np.inf, np.nan])
def test_answers_are_neither_early_nor_lost(after_s: float) -> None:
    with pytest.raises(ValueError, match=f"engine.hand_over_s is {after_s}, it must be 0 or more"):
        serve(workload([5], [4], [0.0]), hand_over_s=after_s)
