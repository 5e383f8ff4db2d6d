"""Deadlines: by what a typical answer takes alone, and nothing of a request's own."""

import dataclasses

import numpy as np
import pytest

from harness.interface.graph import Edges
from harness.tests.support.serving import FlatCosts, LinearCosts, serve, workload
from harness.workloads.deadlines import WithDeadlines
from harness.workloads.workload import Workload


@dataclasses.dataclass
class Fixed:
    """A recipe of one workload."""

    load: Workload
    models: tuple[str, ...] = ("m",)
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    def build(self, seed: int) -> Workload:
        """The same for every seed."""
        return self.load


def test_a_deadline_is_a_multiple_of_a_typical_solo_time() -> None:
    """Half a second for a prompt, a quarter for each decode; answers of 4 tokens in the mean."""
    load = workload([9, 30, 9], [2, 4, 6], [0.0, 1.0, 2.0])
    recipe = WithDeadlines(workload=Fixed(load), costs=FlatCosts(), scale=3.0, tensor_parallel=1)
    assert recipe.build(0).deadline_s.tolist() == [3.75, 4.75, 5.75]
    assert recipe.build(0).facts(1).deadline_s == 4.75


def test_a_request_served_alone_takes_what_its_deadline_is_made_of() -> None:
    costs = LinearCosts()
    for prompt, answer in ((40, 31), (7, 1)):
        load = workload([prompt], [answer])
        recipe = WithDeadlines(workload=Fixed(load), costs=costs, scale=1.0, tensor_parallel=1)
        took_s = serve(load, costs=costs, gpus=1).requests["finished_s"][0] - costs.load
        assert recipe.build(0).deadline_s[0] == pytest.approx(took_s, rel=1e-3)


def test_a_deadline_says_nothing_of_the_answer() -> None:
    """Two requests exchange their answers: each keeps its deadline."""
    loads = [workload([9, 30], outputs) for outputs in ([2, 60], [60, 2])]
    due = [
        WithDeadlines(workload=Fixed(load), costs=LinearCosts(), scale=2.0, tensor_parallel=1)
        .build(0)
        .deadline_s
        for load in loads
    ]
    np.testing.assert_array_equal(due[0], due[1])


def test_what_has_no_arrival_yet_gets_no_deadline() -> None:
    load = workload([9, 9], [3, 3])
    chain = dataclasses.replace(
        load,
        edges=Edges(np.array([0]), np.array([1]), np.array([False])),
        own_tokens=load.prompt_tokens,
    )
    recipe = WithDeadlines(workload=Fixed(chain), costs=FlatCosts(), scale=2.0, tensor_parallel=1)
    with pytest.raises(ValueError, match=r"calls that wait for others have none yet"):
        recipe.build(0)
    with pytest.raises(ValueError, match=r"workload.scale is 0.0, it must be positive"):
        WithDeadlines(workload=Fixed(load), costs=FlatCosts(), scale=0.0, tensor_parallel=1)
