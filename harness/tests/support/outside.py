"""Workloads of applications with units outside any LLM."""

from dataclasses import replace

import numpy as np

from harness.interface.apps import OUTSIDE, Apps
from harness.interface.entities import Service
from harness.interface.graph import Edges
from harness.tests.support.serving import workload
from harness.workloads.call_ids import with_apps
from harness.workloads.workload import Workload

LLM_S = float("nan")
"""In place of the seconds outside any LLM of a call of one."""


def applied(
    load: Workload,
    pairs: list[tuple[int, int]],
    *,
    app: list[int],
    external_s: list[float],
    instance: list[int] | None = None,
    seed: int = 0,
) -> Workload:
    """The workload as calls of applications, each a unit of its own where no instance is given.

    Those with seconds run outside any LLM.
    """
    both = np.array(pairs, np.int64).reshape(-1, 2)
    seconds = np.array(external_s, np.float64)
    runs = np.arange(len(load)) if instance is None else np.array(instance, np.int64)
    outside = ~np.isnan(seconds)
    prompt_tokens = np.where(outside, 1, load.prompt_tokens)
    alone = replace(
        load,
        services=(*load.services, Service(OUTSIDE, 0, 2)),
        service=np.where(outside, len(load.services), load.service),
        prompt_tokens=prompt_tokens,
        own_tokens=prompt_tokens,
        output_tokens=np.where(outside, 1, load.output_tokens),
        max_output_tokens=np.where(outside, 1, load.max_output_tokens),
        app=np.array(app, np.int64),
        edges=Edges(both[:, 0], both[:, 1], np.zeros(len(both), np.bool_)),
    )
    apps = Apps(
        kinds=("a", "b"),
        kind=np.arange(max(app) + 1) % 2,
        units=("x", "y", "z"),
        unit=runs % 3,
        instance=runs,
        external_s=seconds,
    )
    return with_apps(alone, apps, seed)


def random_applications(seed: int, count: int = 12, services: int = 2) -> Workload:
    """Calls that wait for up to two others; a third run outside any LLM, some begin together."""
    rng = np.random.default_rng(seed)
    load: list[int] = []
    pairs: list[tuple[int, int]] = []
    app: list[int] = []
    instance: list[int] = []
    for number in range(count):
        first = len(load)
        runs: dict[tuple[int, ...], int] = {}
        for call in range(first, first + int(rng.integers(1, 8))):
            most = min(call - first, int(rng.integers(0, 3)))
            parents = sorted(rng.choice(np.arange(first, call), most, replace=False).tolist())
            pairs += [(parent, call) for parent in parents]
            key = tuple(parents)
            if key not in runs or rng.random() < 0.5:
                runs[key] = max(instance, default=-1) + 1
            instance.append(runs[key])
            app.append(number)
            load.append(call)
    size = len(load)
    gaps_s = np.where(np.diff(app, prepend=0), rng.choice([0.0, 0.0031, 0.0507], size), 0.0)
    prompts, outputs = rng.integers(1, 60, size).tolist(), rng.integers(1, 40, size).tolist()
    seconds = np.where(rng.random(size) < 1 / 3, rng.choice([0.05, 0.1317, 0.4], size), np.nan)
    return applied(
        workload(prompts, outputs, np.cumsum(gaps_s).tolist(), services=services),
        pairs,
        app=app,
        external_s=seconds.tolist(),
        instance=instance,
        seed=seed,
    )
