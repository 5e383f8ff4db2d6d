"""Only classes of the project, and of packages that the user trusts, are built from files."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.config.build import build
from harness.config.engine_limits import USUAL
from harness.config.trust import TRUSTED_PACKAGES, is_trusted, without_trust
from harness.engines.vllm.policy_file import policy_of
from harness.interface.policies import SchedulingPolicy
from harness.runs.cells import PredictorFactory, WorkloadFactory
from harness.tests.support.command import refused

WORKLOAD = {
    "_target_": "harness.workloads.routing.Routing",
    "requests": {"vicuna-13b-v1.5": 5},
    "max_output_tokens": 10,
    "answers": "own",
    "prompt_tokens": {"least": 4, "mean": 9, "most": 20, "concentration": 2.0},
    "answer_tokens": {"least": 4, "mean": 9, "most": 20, "sigma": 1.0},
    "output_scale": 1.0,
}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that prints when it is imported; not trusted yet."""
    monkeypatch.setenv(TRUSTED_PACKAGES, "")
    (tmp_path / "somelab").mkdir()
    (tmp_path / "somelab" / "__init__.py").write_text(
        "from pathlib import Path\n"
        "Path(__file__).with_name('imported').touch()\n"
        "class Ours:\n"
        "    def observe(self, event): pass\n"
        "    def schedule(self, view): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "somelab", raising=False)
    return tmp_path / "somelab"


def written(folder: Path) -> dict[str, str]:
    """A node that would make a file."""
    return {"_target_": "logging.FileHandler", "filename": str(folder / "written"), "mode": "w"}


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_class_of_others_is_not_built_at_any_depth(tmp_path: Path, depth: int) -> None:
    node: Any = written(tmp_path)
    for _ in range(depth):
        node = {"a": [node]}
    said = r"_target_=logging\.FileHandler names no class of this project; .* --trust PACKAGE"
    with pytest.raises(ValueError, match=said):
        build({**WORKLOAD, "prompt_tokens": {"least": node}}, path="workload")
    with pytest.raises(ValueError, match=said):
        build(written(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "harness.runs.failures.os.system",
        "harness.runs.cells.Path",
        "harness.claims.__main__.main",
        "builtins.eval",
        "somelabs.Ours",
    ],
)
def test_a_name_that_only_leads_through_ours_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"names no class|is a class of pathlib"):
        build({"_target_": name})


def test_a_package_is_imported_only_when_trusted(lab: Path) -> None:
    node = {"_target_": "somelab.Ours"}
    with pytest.raises(ValueError, match="names no class of this project"):
        build(node)
    assert not (lab / "imported").exists()
    assert without_trust(["policy=ours", "--trust", "somelab", "seed=1"]) == [
        "policy=ours",
        "seed=1",
    ]
    assert type(build(node, kind=SchedulingPolicy)).__name__ == "Ours"
    assert os.environ[TRUSTED_PACKAGES] == "somelab"  # what workers and engines inherit
    assert not is_trusted("somelab2.Ours")


@pytest.mark.parametrize("words", [["--trust"], ["--trust="], ["--trust", "a/b"]])
def test_to_trust_nothing_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match="that is not the name of a package"):
        without_trust(words)


def test_the_policy_of_a_server_follows_the_same_rule(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lab / "policy.yaml"
    path.write_text("_target_: somelab.Ours\n")
    with pytest.raises(ValueError, match=r"SCHEDULER_POLICY=.*names no class of this project"):
        policy_of(str(path), USUAL)
    monkeypatch.setenv(TRUSTED_PACKAGES, "somelab")
    assert type(policy_of(str(path), USUAL)).__name__ == "Ours"
    path.write_text("_target_: harness.workloads.arrivals.AtOnce\n")
    with pytest.raises(ValueError, match="is a AtOnce, not SchedulingPolicy: it has no observe"):
        policy_of(str(path), USUAL)


def test_a_node_is_what_its_place_asks_for() -> None:
    oracle = {"_target_": "harness.predictors.oracle.Oracle"}
    assert build(oracle, kind=PredictorFactory)
    with pytest.raises(ValueError, match="is a Oracle, not WorkloadFactory: it has no"):
        build(oracle, path="workload", kind=WorkloadFactory)
    with pytest.raises(ValueError, match="_partial_=True, but workload is needed at once"):
        build({**WORKLOAD, "_partial_": True}, path="workload", kind=WorkloadFactory)


def test_the_command_refuses_code_inside_mappings(tmp_path: Path) -> None:
    code = f"{{_target_:logging.FileHandler,filename:{tmp_path}/written,mode:w}}"
    key = "workload.prompt_tokens.concentration"
    said = refused("workload=routing", f"{key}={code}", f"results={tmp_path}")
    assert said.startswith(f"{key}._target_=logging.FileHandler names no class of this project")
    assert list(tmp_path.iterdir()) == []
