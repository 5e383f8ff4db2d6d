"""Several workloads as one: nothing is lost, nothing is mixed up."""

from dataclasses import replace

import numpy as np
import pytest

from harness.interface.graph import Edges
from harness.tests.support.serving import workload
from harness.workloads.together import Together, together
from harness.workloads.workload import Workload


class Fixed:
    """A recipe of one workload."""

    def __init__(self, load: Workload) -> None:
        self._load = load
        self.files = {"a": "1"}
        self.models = [str(service.id) for service in load.services]

    def build(self, seed: int) -> Workload:
        """Always the same."""
        return self._load


def _chain() -> Workload:
    """r1 and r2 wait for r0, whose answer r1 is given; all at 1 s."""
    edges = Edges(np.array([0, 0]), np.array([1, 2]), np.array([True, False]))
    single = workload([5, 9, 5], [4, 2, 1], [1.0, 1.0, 1.0])
    return replace(single, edges=edges, own_tokens=np.array([5, 5, 5]))


def test_parts_keep_their_requests_edges_and_applications() -> None:
    """The second part's requests come at 0, 1 and 2 s: around and behind those of the first."""
    other = workload([7, 7, 7], [3, 3, 3], [0.0, 1.0, 2.0])
    load = Together(
        parts={"a": Fixed(_chain()), "b": Fixed(other)}, order=["a", "b"], only=["a", "b"]
    ).build(0)
    assert [str(s.id) for s in load.services] == ["m~a", "m~b"]
    assert load.service.tolist() == [1, 0, 0, 0, 1, 1]
    assert load.prompt_tokens.tolist() == [7, 5, 9, 5, 7, 7]
    assert load.own_tokens.tolist() == [7, 5, 5, 5, 7, 7]
    assert load.edges.parent.tolist() == [1, 1]
    assert load.edges.child.tolist() == [2, 3]
    assert load.edges.carries.tolist() == [True, False]
    assert len(set(load.app[load.service == 0]) & set(load.app[load.service == 1])) == 0


def test_one_part_alone_is_itself() -> None:
    part = _chain()
    alone = Together(parts={"a": Fixed(part), "b": Fixed(part)}, order=["a", "b"], only=["a"])
    assert alone.models == ("m",)
    load = alone.build(0)
    assert load.services == part.services
    assert (load.prompt_tokens == part.prompt_tokens).all()
    assert (load.edges.child == part.edges.child).all()


def test_tenants_and_texts_stay_with_their_requests() -> None:
    """Tenants of one name are one; the part without texts has empty ones, and no predictions."""
    one = replace(
        workload([7, 7], [3, 3], [0.0, 2.0]),
        tenants=("x", "y"),
        tenant=np.array([1, 0]),
        texts=("first", "third"),
        predicted_tokens=np.array([4.0, 5.0]),
    )
    other = replace(workload([7], [3], [1.0]), tenants=("y",))
    load = together([one, other])
    assert [load.facts(row).tenant for row in range(3)] == ["y", "y", "x"]
    assert load.texts == ("first", "", "third")
    assert load.predicted_tokens.tolist() == pytest.approx([4.0, np.nan, 5.0], nan_ok=True)
    assert together([other, other]).texts == ()


class Drawing(Fixed):
    """A recipe that draws its prompts, and one that would draw the same."""

    def build(self, seed: int) -> Workload:
        """A number of the seed."""
        drawn = np.random.default_rng([seed, 1]).integers(1, 4000, 3)
        return workload(list(drawn), [1, 1, 1], [0.0, 1.0, 2.0])


def test_two_parts_of_a_kind_are_asked_different_things() -> None:
    """A part does not depend on the others; all depend on the seed."""
    parts = {name: Drawing(_chain()) for name in "abc"}

    def prompts(seed: int, *only: str) -> dict[str, list[int]]:
        load = Together(parts=parts, order=["a", "b", "c"], only=only).build(seed)
        return {
            name: load.prompt_tokens[load.service == place].tolist()
            for place, name in enumerate(sorted(only))
        }

    every = prompts(0, "a", "b", "c")
    assert len({tuple(drawn) for drawn in every.values()}) == 3
    assert prompts(0, "b", "c") == {name: every[name] for name in "bc"}
    assert every["a"] == Drawing(_chain()).build(0).prompt_tokens.tolist()
    assert all(every[name] != prompts(1, "a", "b", "c")[name] for name in "abc")


@pytest.mark.parametrize("only", [[], ["a", "a"], ["c"]])
def test_unknown_parts_are_refused(only: list[str]) -> None:
    with pytest.raises(ValueError, match=r"workload\.only"):
        Together(parts={"a": Fixed(_chain())}, order=["a"], only=only)


def test_the_order_of_parts_is_that_of_their_services() -> None:
    parts = {"a": Fixed(_chain()), "b": Fixed(workload([7], [3], [0.0]))}
    load = Together(parts=parts, order=["b", "a"], only=["a", "b"])
    assert load.models == ("m~b", "m~a")
    assert [str(s.id) for s in load.build(0).services] == ["m~b", "m~a"]
    with pytest.raises(ValueError, match=r"workload.order=\['a'\] must name each of a, b"):
        Together(parts=parts, order=["a"], only=["a"])
