"""Simulated twins of measured runs: the same cell, with the engine as it was, at its speed.

A measured run's folder says how vLLM resolved its configuration and how much KV it had
(engines.json), and how fast the machine was before and after it (speed.parquet). Policies and
planners of the twin believe the profile, as those of the measured run did.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from harness.config.scratch import TEMPORARY
from harness.engines.simulator.loop import Simulator
from harness.runs.building import cell_of
from harness.runs.cells import Cell, compute
from harness.runs.config import stored_configuration
from harness.runs.record import config_of, read_rows
from harness.runs.sweep import keep
from harness.tools.fidelity.speed import (
    AtSpeed,
    Speed,
    against,
    reference_of,
    speed_of,
    speeds_between,
)

ENGINES, SPEED = "engines.json", "speed.parquet"
WHEN = ("before", "after")


def speeds_in(measured: Path, cell: Cell) -> dict[str, Speed]:
    """By service, how fast the machine was in a measured run; empty where nothing says so.

    The mean of before and after.
    """
    if not (measured / SPEED).is_file():
        return {}
    found: dict[str, Speed] = {}
    rows = pd.read_parquet(measured / SPEED)
    for service, part in rows.groupby("service"):
        name = str(service)
        sweeps = [speed_of(part[part["when"] == when], cell.costs, name) for when in WHEN]
        (between,) = speeds_between(sweeps)
        found[name] = against(between, reference_of(cell.costs, name))
    return found


def as_resolved(plain: Mapping[str, Any], measured: Path) -> dict[str, Any]:
    """A simulated cell's configuration with the limits and the KV that a real engine had.

    As it is where nothing was kept of engines. Raises ValueError where groups had different KV.
    """
    if not (measured / ENGINES).is_file():
        return dict(plain)
    groups = json.loads((measured / ENGINES).read_text(encoding="utf-8")).values()
    found = [service for group in groups for service in group.values()]
    kv_bytes = {it["kv_blocks"] * it["block_tokens"] * it["kv_bytes_per_token"] for it in found}
    if len(kv_bytes) != 1:
        raise ValueError(
            f"{measured.name}: its groups have {sorted(kv_bytes)} bytes of KV, and simulated "
            "groups have the same"
        )
    limits = {name: found[0][name] for name in ("max_num_seqs", "max_num_batched_tokens")}
    block_tokens = min(it["block_tokens"] for it in found)
    kv = {"kv_bytes": kv_bytes.pop(), "block_tokens": block_tokens}
    return {**plain, "engine": plain["engine"] | limits, "hardware": plain["hardware"] | kv}


@contextmanager
def twins(pairs: Mapping[Path, Path], *, at_speed: bool) -> Iterator[dict[Path, dict[str, Any]]]:
    """By measured folder, the row of its twin, whose folder is there while this lasts.

    `pairs` has the folder of the simulated run of the same cell for each. With `at_speed`
    iterations take as many times longer as the machine was slower than its profile.
    """
    with TemporaryDirectory(prefix=TEMPORARY) as temporary:
        yield {
            measured: _twin(measured, like, Path(temporary) / measured.name, at_speed=at_speed)
            for measured, like in pairs.items()
        }


def _twin(measured: Path, like: Path, results: Path, *, at_speed: bool) -> dict[str, Any]:
    plain = as_resolved(config_of(like), measured)
    cell = cell_of(stored_configuration(plain, results=str(results), name="twin"))
    speeds = speeds_in(measured, cell)
    if at_speed and speeds:
        assert isinstance(cell.engine, Simulator)
        cell = replace(cell, engine=replace(cell.engine, costs=AtSpeed(cell.costs, speeds)))
    keep(cell, compute(cell))
    (row,) = read_rows(cell.folder.parent).values()
    return {**row, "speed": {name: speed._asdict() for name, speed in speeds.items()}}
