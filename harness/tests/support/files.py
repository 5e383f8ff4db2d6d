"""Policies and systems as the YAML files under `scenarios/` name them."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from harness.config.engine_limits import USUAL, with_limits
from harness.config.paths import ROOT
from harness.config.yaml_files import read_choice
from harness.interface.entities import Cluster
from harness.tests.support.serving import SOME_HOST_MEMORY

SCENARIOS = ROOT / "scenarios"


def name_of(path: Path) -> str:
    """A file's name as the id of a test case."""
    return path.stem


def read_nodes(policy: Path, system: Path | None = None, **rule: object) -> dict[str, Any]:
    """What the files say, with references between them resolved; `rule` in the place of its own."""
    groups: dict[str, Any] = {
        "variant": "paper",
        "policy": OmegaConf.merge(OmegaConf.load(policy), {"rule": rule} if rule else {}),
        "system": read_choice("system", system.stem) if system else {},
    }
    plain = with_limits(OmegaConf.to_container(OmegaConf.create(groups), resolve=True), USUAL)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def offered_to_all(costs: Any, machine: Cluster) -> dict[str, object]:
    """What constructors may ask for."""
    return {"costs": costs, "cluster": machine, "seed": 0, "host_memory": SOME_HOST_MEMORY}
