"""Cells on a Ray cluster of several nodes, all on this machine."""

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import run
from harness.config.trust import TRUSTED_PACKAGES
from harness.engines.ray_session import joined_ray
from harness.runs.cells import Cell, Run
from harness.runs.cluster import JoinedRay
from harness.runs.failures import Failure
from harness.tests.support.command import SMALL, runs_below
from harness.tests.support.configured import cells_of, composed

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
    return [*SMALL, f"results={results}", "+matrix.seed=[0,1,2]", "tracking=none", *more]


def go(results: Path, *more: str) -> int:
    with composed(*words(results, *more)) as config:
        return run.run(config)


def assert_same(results: Path, other: Path) -> None:
    """The same runs, and the same bytes of all that is simulated."""
    assert runs_below(results).keys() == runs_below(other).keys()
    for name in runs_below(results):
        for table in ("config.yaml", "requests.parquet", "gpu.parquet"):
            assert (results / name / table).read_bytes() == (other / name / table).read_bytes()


def failures(address: str, *cells: Cell) -> dict[int, str]:
    """What is said of cells that fail on the cluster, by their seeds."""
    found: dict[int, Run | Failure] = {}
    JoinedRay(address=address).run(
        iter(cells), lambda cell, gave: found.update({cell.seed: gave}), samples=cells
    )
    return {seed: gave.sentence for seed, gave in found.items() if isinstance(gave, Failure)}


def test_nodes_of_a_cluster(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes get the program and a policy of another package, and give what one core gives."""
    package = tmp_path / "lab" / "somebodys_policies"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "told.py").write_text("TOLD = 1\n")
    (package / "theirs.py").write_text(POLICY)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv(TRUSTED_PACKAGES, package.name)
    theirs = "policy._target_=somebodys_policies.theirs.Theirs"
    assert go(tmp_path / "many", theirs, "cluster=ray", f"cluster.address={cluster.address}") == 0
    assert go(tmp_path / "one", theirs, "workers=1") == 0
    assert len(runs_below(tmp_path / "many")) == 3
    assert_same(tmp_path / "one", tmp_path / "many")

    class Measures:
        runs_alone = True
        slots = type("Slots", (), {"cpus": None, "gpus": 4})()

    # A file that a node lacks is named, and what no node has is not waited for.
    cell, other, _ = cells_of(*words(tmp_path))
    gone = tmp_path / "prompts.jsonl"
    unread = replace(cell, named=replace(cell.named, files={str(gone): "0" * 64}))
    lacking = replace(other, engine=Measures())  # type: ignore[arg-type]
    assert failures(cluster.address, unread, lacking) == {
        0: f"{gone} is not on {socket.gethostname()}; every node needs it there",
        1: "no node of the cluster has 4 GPUs",
    }


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
