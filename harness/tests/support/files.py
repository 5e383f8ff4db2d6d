"""Policies and systems as the YAML files under `scenarios/` name them; what holds for every run."""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from harness.engines.recorder import Recorder
from harness.interface.entities import Cluster
from harness.interface.events import Finished
from harness.workloads.workload import Workload

SCENARIOS = Path(__file__).resolve().parents[3] / "scenarios"


def name_of(path: Path) -> str:
    """A file's name as the id of a test case."""
    return path.stem


def read_nodes(policy: Path, system: Path | None = None) -> dict[str, Any]:
    """What the files say, with references between them resolved."""
    groups: dict[str, Any] = {
        "variant": "paper",
        "policy": OmegaConf.load(policy),
        "system": OmegaConf.load(system) if system else {},
    }
    plain = OmegaConf.to_container(OmegaConf.create(groups), resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def build_node(node: object, offered: Mapping[str, object]) -> Any:
    """What a node names, given what its constructor asks for of `offered`."""
    if isinstance(node, list):
        return [build_node(item, offered) for item in node]
    if not isinstance(node, dict) or "_target_" not in node:
        return node
    module, _, name = node["_target_"].rpartition(".")
    target = getattr(importlib.import_module(module), name)
    wanted = inspect.signature(target).parameters
    own = {
        key: build_node(value, offered) for key, value in node.items() if not key.startswith("_")
    }
    return target(**{key: value for key, value in offered.items() if key in wanted}, **own)


def offered_to_all(costs: Any, machine: Cluster) -> dict[str, object]:
    """What constructors may ask for."""
    return {"costs": costs, "cluster": machine, "seed": 0}


def assert_conserved(load: Workload, recorder: Recorder) -> None:
    """Every request ends once, with the tokens asked, after its first token and its arrival."""
    frame = recorder.requests
    np.testing.assert_array_equal(frame["output_tokens"], load.output_tokens)
    assert (frame["arrival_s"] < frame["first_token_s"]).all()
    assert (frame["first_token_s"] <= frame["finished_s"]).all()
    ends = [event.request.id for event in recorder.events if isinstance(event, Finished)]
    assert sorted(ends) == list(range(len(load)))


def assert_equal(one: Recorder, other: Recorder) -> None:
    pd.testing.assert_frame_equal(one.requests, other.requests, check_exact=True)
    pd.testing.assert_frame_equal(one.gpu_frame(), other.gpu_frame(), check_exact=True)
    assert one.events == other.events
