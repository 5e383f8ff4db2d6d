"""Cells on a Ray cluster of several nodes, all on this machine."""

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import run
from harness.engines.ray_session import joined_ray
from harness.runs.cells import Cell, Computed
from harness.runs.cluster import JoinedRay
from harness.runs.failures import Failure
from harness.tests.support.command import SMALL, runs_below
from harness.tests.support.configured import cells_of, composed
from harness.tests.support.failing import Deadly, Slow
from harness.trust import TRUSTED_PACKAGES

pytestmark = pytest.mark.slow

POLICY = '''
from baselines.fcfs import Fcfs
from somebodys_policies.told import TOLD


class Theirs(Fcfs):
    """First come first served, under another name."""

    told = TOLD
'''
"""A policy from outside the tree, in a package of two modules."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one core each; the address is that of the loopback interface."""
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)
        node = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
        nodes = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
        nodes.add_node(**node)
        yield nodes
        nodes.shutdown()


def words(results: Path, *more: str) -> list[str]:
    return [*SMALL, f"results={results}", "+matrix.seed=[0,1,2,3,4,5]", "tracking=none", *more]


def go(results: Path, *more: str) -> int:
    with composed(*words(results, *more)) as config:
        return run.run(config)


def assert_same(results: Path, other: Path) -> None:
    """The same runs, and the same bytes of all that is simulated."""
    assert runs_below(results).keys() == runs_below(other).keys()
    for name in runs_below(results):
        for table in ("config.yaml", "requests.parquet", "gpu.parquet"):
            assert (results / name / table).read_bytes() == (other / name / table).read_bytes()


def test_nodes_get_the_program_and_give_what_one_core_gives(cluster: Any, tmp_path: Path) -> None:
    assert go(tmp_path / "one", "workers=1") == 0
    joined = ("cluster=ray", f"cluster.address={cluster.address}")
    assert go(tmp_path / "many", *joined) == 0
    assert len(runs_below(tmp_path / "many")) == 6
    assert_same(tmp_path / "one", tmp_path / "many")


def test_a_node_and_a_worker_that_die_cost_no_cell(cluster: Any, tmp_path: Path) -> None:
    """The second node goes while it computes; what it had is computed by another."""
    lost = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    cells = cells_of(*words(tmp_path))
    slow = [
        replace(
            cell,
            workload_factory=Slow(
                Deadly(cell.workload_factory, tmp_path, int(cell.seed == 1)), tmp_path, 1.0
            ),
        )
        for cell in cells
    ]
    found: dict[int, Computed | Failure] = {}

    def settle(cell: Cell, gave: Computed | Failure) -> None:
        if not found:
            cluster.remove_node(lost, allow_graceful=False)
        found[cell.seed] = gave

    JoinedRay(address=cluster.address).run(iter(slow), settle, samples=slow)
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    assert [one.sentence for one in found.values() if isinstance(one, Failure)] == []


def test_policies_from_outside_the_tree_travel_too(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lab" / "somebodys_policies"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "told.py").write_text("TOLD = 1\n")
    (package / "theirs.py").write_text(POLICY)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv(TRUSTED_PACKAGES, package.name)
    theirs = "policy._target_=somebodys_policies.theirs.Theirs"
    joined = ("cluster=ray", f"cluster.address={cluster.address}")
    assert go(tmp_path / "many", theirs, *joined) == 0
    assert go(tmp_path / "one", theirs, "workers=1") == 0
    assert_same(tmp_path / "one", tmp_path / "many")


def test_a_file_that_a_node_lacks_is_named(cluster: Any, tmp_path: Path) -> None:
    cell = cells_of(*words(tmp_path))[0]
    gone = tmp_path / "prompts.jsonl"
    named = replace(cell.named, files={str(gone): "0" * 64})
    found: list[Computed | Failure] = []
    JoinedRay(address=cluster.address).run(
        iter([replace(cell, named=named)]), lambda _, gave: found.append(gave), samples=[cell]
    )
    (failure,) = found
    assert isinstance(failure, Failure)
    assert failure.sentence == f"{gone} is not on {socket.gethostname()}; every node needs it there"


def test_what_no_node_has_is_said_at_once(cluster: Any, tmp_path: Path) -> None:
    """Not waited for: no node of this cluster has a GPU."""

    class Measures:
        runs_alone = True
        slots = type("Slots", (), {"cpus": None, "gpus": 4})()

    cell = replace(cells_of(*words(tmp_path))[0], engine=Measures())  # type: ignore[arg-type]
    found: list[Computed | Failure] = []
    JoinedRay(address=cluster.address).run(
        iter([cell]), lambda _, gave: found.append(gave), samples=[cell]
    )
    assert [one.sentence for one in found if isinstance(one, Failure)] == [
        "no node of the cluster has 4 GPUs"
    ]


def test_an_address_where_nobody_answers_is_refused_soon() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with (
        pytest.raises(ValueError, match=f"^cluster.address={address}: no Ray cluster answers: "),
        joined_ray(address, {}),
    ):
        pass
    assert "RAY_ADDRESS" not in os.environ
