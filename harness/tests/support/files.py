"""Policies and systems as the YAML files under `scenarios/` name them; what holds for every run."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from harness.config.engine_limits import USUAL, with_limits
from harness.config.paths import ROOT
from harness.config.yaml_files import read_choice
from harness.engines.recorder import Recorder
from harness.interface.entities import Cluster
from harness.interface.events import Finished
from harness.tests.support.serving import SOME_HOST_MEMORY
from harness.workloads.workload import Workload

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
