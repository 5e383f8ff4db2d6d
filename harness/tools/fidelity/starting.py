"""What starting engines beside each other costs: `python -m harness.tools.fidelity.starting`.

Loading is profiled per plan by planners, and printed figures of one model on 1 and on 8 GPUs imply
that replicas started together take longer than one alone (`hardware.replica_start_s`). Here
processes of real vLLM with a model of random weights are started alone and two at once, in turns,
from the order to the moment when all have loaded. On a machine without GPUs that is mostly imports,
of which it is not known how they share a GPU machine's disk and PCIe bus.
"""

import argparse
import json
import statistics
import sys
import time
from importlib.util import find_spec
from typing import Any

from omegaconf import OmegaConf

from harness.config.build import build
from harness.config.paths import ROOT
from harness.config.yaml_files import read_choice, read_policy
from harness.costs.model_facts import load_models
from harness.interface.entities import Cluster, GpuId, Group, GroupId, Service, ServiceId
from harness.runs import published
from harness.runs.provenance import machine

MODEL = "tiny"
AT_ONCE = (1, 2)
REPEATS = 3
CONTEXT_TOKENS = 512
SERVICE = Service(ServiceId(MODEL), load_models()[MODEL].kv_bytes_per_token, CONTEXT_TOKENS)


def measure() -> dict[str, list[float]]:
    """Seconds of every start, by how many started at once."""
    from harness.engines.vllm.ray import slots_of_ray

    with slots_of_ray(max(AT_ONCE)):
        _seconds(1)  # what the first one reads from disk stays in memory
        turns = [{str(count): _seconds(count) for count in AT_ONCE} for _ in range(REPEATS)]
    return {str(count): [turn[str(count)] for turn in turns] for count in AT_ONCE}


def _seconds(count: int) -> float:
    """Start so many engines of `engine=vllm_ray` at one moment; seconds until all have loaded."""
    from harness.engines.vllm.options import VllmOptions
    from harness.engines.vllm.ray import RayGroup

    began_s = time.perf_counter()
    gpus = tuple(map(GpuId, range(max(AT_ONCE))))
    words: Any = OmegaConf.to_container(read_choice("engine", "vllm_ray"))
    del words["_target_"]
    options = VllmOptions(cluster=Cluster(gpus, ()), seed=0, **words)
    placed = [Group(GroupId(f"g{gpu}"), frozenset({SERVICE.id}), (gpu,)) for gpu in gpus[:count]]
    groups = [
        RayGroup.start(
            options.settings([SERVICE], placed[0]),
            group=group,
            services=[SERVICE],
            # Any: nothing is asked of these engines.
            policy=build(read_policy(ROOT / "scenarios" / "policy" / "vllm.yaml")),
            keep_answers=False,
            on_gpus=False,
        )
        for group in placed
    ]
    try:
        for group in groups:
            group.wait()
        return time.perf_counter() - began_s
    finally:
        for group in groups:
            group.stop()


def summary(found: dict[str, list[float]]) -> dict[str, object]:
    """Means, and how much longer the second of two takes, [seconds]."""
    means = {count: statistics.fmean(seconds) for count, seconds in found.items()}
    return {
        "model": MODEL,
        "seconds": found,
        "mean_s": means,
        "further_replica_s": means["2"] - means["1"],
        "machine": machine(),
    }


def main() -> int:
    """Measure, print and write; the exit status."""
    parser = argparse.ArgumentParser(description="What engines started beside each other cost.")
    published.add_publish(parser)
    given = parser.parse_args()
    if find_spec("vllm") is None:
        print("error: this needs vLLM: make setup-vllm", file=sys.stderr)
        return 2
    text = json.dumps(summary(measure()), indent=1) + "\n"
    print(text, end="")
    published.write(published.place("starting", publish=given.publish) / "cpu.json", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
